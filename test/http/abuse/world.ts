import { Effect } from "effect"
import { TestServer } from "../../support/server.ts"
import type { OidcProvider } from "../../support/oidc.ts"
import { must } from "../operations.ts"
import { makeTenant, type Tenant } from "../tenants.ts"

/** A url where nothing listens. Where private addresses are refused, it is refused first. */
const nowhere = "https://localhost:9/"
/** An id and a key that do not exist. */
const gone = "01KAHBMKZ3D2X7S5QN8W4V6R9T"

export type Ids = Readonly<Record<string, string>>

/** Documentation that is stored with a project, with `mark` in it. */
const storeDocs = Effect.fnUntraced(function* (
  { orgId }: Tenant,
  projectId: string,
  mark: string,
  as: string | undefined,
) {
  const { send, sql } = yield* TestServer
  const json = { docsZipUrl: `${nowhere}${mark}`, keepQuestions: true }
  yield* must(send, "PUT", `/api/v0/projects/${projectId}/docs`, { json, as })
  yield* sql`
    INSERT INTO docs_pages (org_id, project_id, edition, slug, title, description, markdown)
    VALUES (${orgId}, ${projectId}, 'e', ${mark}, ${mark}, ${mark}, ${mark})`
  yield* sql`
    UPDATE project_docs SET edition = 'e', digest = '', stored_target = '', pages = 1, bytes = 100, characters = 100,
      stored_at = now()
    WHERE org_id = ${orgId} AND project_id = ${projectId}`
})

/** Creates one of every resource of a tenant, with `mark` in each text. Returns the ids by the name of their field. */
const makeMarked = Effect.fnUntraced(function* (
  tenant: Tenant,
  mark: string,
  provider: OidcProvider,
  as: string | undefined,
) {
  const { send } = yield* TestServer
  const platform = (method: string, path: string, json: object) => must(send, method, `/api/v0${path}`, { json, as })
  const { projectId } = yield* platform("POST", "/projects", { name: mark, orgId: tenant.orgId })
  const linked = { subdomain: mark, hostOwner: mark, hostRepo: mark, defaultBranch: mark }
  yield* platform("PATCH", `/projects/${projectId}`, linked)
  const run = { ref: `refs/heads/${mark}`, actor: mark, workflow: mark, run_id: String(mark.length) }
  const repository = { repository: `${mark}/${mark}`, repository_owner: mark, repository_id: mark.replace(/\D/g, "") }
  const token = yield* provider.sign({ ...run, ...repository })
  yield* must(send, "POST", "/api/v0/register-deployment", { json: {}, as: token })
  const { id } = yield* platform("POST", `/orgs/${tenant.orgId}/keys`, { name: mark })
  yield* storeDocs(tenant, projectId!, mark, as)

  const endpoint = yield* tenant.endpoint(`${nowhere}${mark}`, { description: mark })
  const job = { workflow: mark, input: { mark }, deployment_id: mark, idempotency_key: mark }
  const finished = yield* tenant.finished({ ...job, idempotency_key: `${mark}-finished` }, { mark })
  const [made] = yield* tenant.deliveries({ job_id: finished, webhook_endpoint_id: endpoint })
  const { delivery_id } = yield* tenant.until(made!.delivery_id, ({ attempts }) => attempts > 0)
  yield* tenant.call("webhooks/update", { id: endpoint, active: false })
  const { job_id } = yield* tenant.call("jobs/create", { ...job, callback_url: `${nowhere}${mark}` })
  const { schedule_id } = yield* tenant.call("schedules/create", { workflow: mark, cron: "0 4 1 1 *", input: { mark } })
  return { projectId, id, webhook_endpoint_id: endpoint, delivery_id, job_id, schedule_id } as Ids
})

/** A tenant with keys of every kind and two of every resource: others name the ids of one, and of the other never. */
const makeParty = Effect.fnUntraced(function* (mark: string, provider: OidcProvider, as: string | undefined) {
  const { send } = yield* TestServer
  const tenant = yield* makeTenant(as)
  const keys = `/api/v0/orgs/${tenant.orgId}/keys`
  const { orgId: spareOrg } = yield* must(send, "POST", "/api/v0/orgs", { json: { name: mark }, as })
  const named = yield* makeMarked(tenant, `${mark}1`, provider, as)
  const unnamed = yield* makeMarked(tenant, `${mark}2`, provider, as)
  const json = { name: mark, projectId: named["projectId"] }
  const project = yield* must(send, "POST", "/api/v0/keys", { json, as })
  const deleted = yield* must(send, "POST", keys, { json: { name: mark }, as })
  yield* must(send, "DELETE", `${keys}/${deleted["id"]}`, { as })
  const expiresAt = new Date(Date.now() + 30_000).toISOString()
  const expired = yield* must(send, "POST", keys, { json: { name: mark, expiresAt }, as })
  /** Everything that the tenant has, without what changes only with time. */
  const snapshot = Effect.gen(function* () {
    const mine = { as: tenant.key }
    return {
      docs: (yield* must(send, "GET", `/api/v0/projects/${named["projectId"]}/docs`, mine))["docsZipUrl"],
      projects: yield* must(send, "GET", `/api/v0/projects?orgId=${tenant.orgId}`, mine),
      keys: (yield* must(send, "GET", keys, mine))["keys"],
      endpoints: yield* tenant.call("webhooks/list"),
      jobs: yield* tenant.call("jobs/list", { limit: 100 }),
      schedules: yield* tenant.call("schedules/list"),
      deliveries: yield* tenant.call("webhooks/deliveries/list", { limit: 100 }),
    }
  }).pipe(Effect.map((all) => JSON.stringify(all, (name, value: unknown) => (name === "lastUsedAt" ? null : value))))

  return {
    ids: { ...named, orgId: tenant.orgId, key: tenant.key } as Ids,
    /** The ids for deletions, so that other requests still find their resources. */
    spare: { ...unnamed, orgId: tenant.orgId } as Ids,
    spareOrg: spareOrg!,
    orgKey: tenant.key,
    projectKey: project["key"]!,
    deleted: deleted["key"]!,
    expired: expired["key"]!,
    /** Texts that no answer to another tenant may have. */
    marks: [mark, ...Object.values(unnamed)],
    snapshot,
  }
})

/** Two tenants, and valid and invalid tokens of the CI. */
export const makeWorld = Effect.fnUntraced(function* (provider: OidcProvider, as: string | undefined) {
  const own = yield* makeParty("own-7319-", provider, as)
  const theirs = yield* makeParty("theirs-8846-", provider, as)
  // One key of each tenant expires in this time.
  yield* (yield* TestServer).advance("1 minute")
  const good = yield* provider.sign({
    repository: "own-7319-1/own-7319-1",
    repository_owner: "own-7319-1",
    repository_id: "73191",
  })
  return {
    own,
    theirs,
    ci: {
      good,
      unsigned: yield* provider.sign({}, { alg: "none" }, () => new Uint8Array()),
      badlySigned: good.slice(0, -8) + (good.endsWith("AAAAAAAA") ? "BBBBBBBB" : "AAAAAAAA"),
      ended: yield* provider.sign({ exp: 1_700_000_000 }),
      elsewhere: yield* provider.sign({ aud: "https://elsewhere.example" }),
    },
    /** Replaces the placeholders of a text by ids. */
    fill: (text: string, { method, path }: { readonly method: string; readonly path: string }) => {
      const isDeletion = method === "DELETE" || path.endsWith("/delete")
      const spare = path === "/api/v0/orgs/{orgId}" ? { ...own.spare, orgId: own.spareOrg } : own.spare
      const ids = isDeletion ? spare : own.ids
      // In the webhook interface, `id` means the id of an endpoint.
      const nameOf = (name: string) => (name === "id" && path.startsWith("/v1/") ? "webhook_endpoint_id" : name)
      return text
        .replace(/@own:(\w+)@/g, (_, name: string) => ids[nameOf(name)] ?? gone)
        .replace("@theirs:key@", theirs.deleted)
        .replace(/@theirs:(\w+)@/g, (_, name: string) => theirs.ids[nameOf(name)] ?? gone)
        .replace(/@gone:\w+@/g, gone)
    },
  }
})
export type World = Effect.Success<ReturnType<typeof makeWorld>>
