import { expect } from "@effect/vitest"
import { readFileSync, writeFileSync } from "node:fs"
import { Context, Effect } from "effect"
import { HttpApi, OpenApi } from "effect/http-api"
import { Api } from "#src/http/api/Api.ts"
import { PeopleWho } from "#src/http/api/access.ts"
import { makeIdentityProvider, signInWith, signInWithClaims } from "../../support/identityProvider.ts"
import { it } from "../../support/it.ts"
import { adminToken, onPostgres, TestServer } from "../../support/server.ts"
import { must } from "../operations.ts"
import { makeTenant } from "../tenants.ts"
import { all, type Listed, makeWorld, requestOf } from "./world.ts"

/**
 * Promise (Tenants apart): Each operation admits exactly the roles of the table in Roles; a person of one org reads
 * and changes nothing of another.
 */

/**
 * Promise (Audit log): The audit log names the person who made a change; the export has every entry, and OTLP gets
 * each after its commit.
 */

const file = new URL("../../../docs/roles.md", import.meta.url)
const columns = ["administrator", "operator", "viewer", "owner", "developer", "viewer of the org"] as const
type Column = (typeof columns)[number]

/** The columns of the roles that may call each operation, by the definition. */
const defined = new Map<string, ReadonlyArray<Column>>()
HttpApi.reflect(Api, {
  onGroup: () => {},
  onEndpoint: ({ endpoint, group }) => {
    const { ofAll, ofOrg } = Context.get(endpoint.annotations, PeopleWho)
    const ofOrgs = ofOrg.map((role) => (role === "viewer" ? "viewer of the org" : role) as Column)
    defined.set(`${group.identifier}.${endpoint.identifier}`, [...(ofAll as ReadonlyArray<Column>), ...ofOrgs])
  },
})

const row = ({ id, method, path }: Listed) => {
  const cells = columns.map((column) => (defined.get(id)!.includes(column) ? "yes" : ""))
  return `| \`${method} ${path}\` | ${cells.join(" | ")} |`
}

/** Probes and public keys are for everybody, and have no place in the table. */
const listed = all.filter(({ path }) => /^\/(api|v1)\//.test(path))

it("docs/roles.md has the roles of every operation (UPDATE_ROLES=1 writes it)", () => {
  const [before] = readFileSync(file, "utf8").split("\n| operation")
  const table = [
    `| operation | ${columns.join(" | ")} |`,
    `| --- | ${columns.map(() => "---").join(" | ")} |`,
    ...listed.map(row),
  ]
  const text = `${before}\n${table.join("\n")}\n`
  if (process.env["UPDATE_ROLES"] === "1") writeFileSync(file, text)
  expect(readFileSync(file, "utf8")).toBe(text)
})

it("the OpenAPI document says the roles of every operation", () => {
  const { paths } = OpenApi.fromApi(Api) as unknown as {
    readonly paths: Readonly<Record<string, Readonly<Record<string, { readonly description: string }>>>>
  }
  for (const { id, method, path } of listed) {
    const { description } = paths[path]![method.toLowerCase()]!
    const named = /\*\*Roles of people\.\*\* (.*)\.$/.exec(description)?.[1]?.replace("of the org: ", "") ?? ""
    const roles = defined.get(id)!.map((column) => (column === "viewer of the org" ? "viewer" : column))
    expect(named.split(/[,;] /), `${method} ${path}`).toEqual(roles.length === 0 ? ["none"] : roles)
  }
})

/** The table of the documentation, by method and path. */
const documented = () =>
  new Map(
    [...readFileSync(file, "utf8").matchAll(/^\| `([A-Z]+ \/\S+)` \|(.*)\|$/gm)].map(([, operation, cells]) => [
      operation!,
      columns.filter((_, n) => cells!.split("|")[n]!.trim() === "yes"),
    ]),
  )

/** The claims of each role. */
const groupOf = (column: Column) => ({ groups: [column] })
const unknownId = "01KAHBMKZ3D2X7S5QN8W4V6R9T"
/** Operations whose credential is in the request; what they are sent here is none. */
const withOwnCredential = ["keys.validate", "keys.token", "keys.authorize", "sessions.openPortal"]
/** Operations that no session reaches: a CI run and GitHub call them. */
const ofMachines = ["deployments.register", "secretScanning.github"]

/** An org, and a server on its database whose people have each role. */
const withRoles = <A, E>(test: (world: Effect.Success<typeof makeRoles>) => Effect.Effect<A, E, TestServer>) =>
  Effect.gen(function* () {
    const world = yield* makeRoles
    return yield* Effect.provide(test(world), TestServer.layer(world.environment))
  }).pipe(Effect.scoped)

const makeRoles = Effect.gen(function* () {
  const provider = yield* makeIdentityProvider
  const database = yield* onPostgres()
  const { orgId } = yield* Effect.provide(
    makeTenant(adminToken),
    TestServer.layer({ ADMIN_TOKEN: adminToken, ...database }),
  )
  const roles = {
    groups: {
      administrator: "administrator",
      operator: "operator",
      viewer: "viewer",
      ...{ owner: `owner:${orgId}`, developer: `developer:${orgId}`, "viewer of the org": `viewer:${orgId}` },
    },
  }
  const environment = { ...signInWith(provider.issuer, roles), ...database }
  const enter = Effect.fnUntraced(function* (column: Column) {
    const { headers, me } = yield* signInWithClaims(provider, groupOf(column))
    return { me: me!, headers: { ...headers, "x-org-id": orgId } as Readonly<Record<string, string>> }
  })
  return { orgId, environment, enter }
})

it.live("the table holds on the wire: every operation, by every role", () =>
  withRoles(({ enter, orgId }) =>
    Effect.gen(function* () {
      const { send, url } = yield* TestServer
      const table = documented()
      expect([...table.keys()]).toEqual(listed.map(({ method, path }) => `${method} ${path}`))
      let refused = 0
      for (const column of columns) {
        const isOfAll = columns.indexOf(column) < 3
        for (const { id, method, path } of all) {
          // Nothing that the requests name exists, so that what is allowed deletes nothing.
          const org = isOfAll && method !== "GET" ? unknownId : orgId
          const at = path.replace("{orgId}", org).replace(/\{\w+\}/g, unknownId)
          const { headers, me } = yield* enter(column)
          const isAllowed = (table.get(`${method} ${path}`) ?? columns).includes(column)
          const name = `${id} by ${column}`
          expect(me.operations.includes(id), name).toBe(isAllowed)
          if (ofMachines.includes(id)) continue
          if (id === "live.follow") {
            // Its answer has no end.
            const answer = yield* Effect.promise((signal) => globalThis.fetch(`${url}${at}`, { headers, signal }))
            expect(answer.status, name).toBe(200)
            yield* Effect.promise(() => answer.body!.cancel())
            continue
          }
          const { status, text } = yield* send(method, at, { headers, ...(method === "GET" ? {} : { json: {} }) })
          const found = `${name}: ${status} ${text.slice(0, 200)}`
          if (isAllowed) {
            expect(text, found).not.toContain("Your role")
            if (!withOwnCredential.includes(id)) expect([401, 403], found).not.toContain(status)
          } else {
            expect([status, text.includes("Your role")], found).toEqual([403, true])
            refused++
          }
        }
      }
      expect(refused).toBeGreaterThan(150)
    }),
  ),
)

it.live("a person of one org reads nothing of another, and changes nothing", () =>
  withRoles(({ enter }) =>
    Effect.gen(function* () {
      const { send } = yield* TestServer
      const { ids, tenant } = yield* makeWorld
      const secrets = Object.values(ids)
      const snapshot = Effect.forEach(["webhooks/list", "schedules/list", "events/list"], (path) =>
        Effect.map(tenant.call(path, {}), (answer) => JSON.stringify(answer)),
      )
      const before = yield* snapshot
      for (const column of ["owner", "developer", "viewer of the org"] as const) {
        const { headers } = yield* enter(column)
        for (const operation of all) {
          if (["live.follow", "sessions.remove", "keys.validate"].includes(operation.id)) continue
          const { path, ...request } = requestOf(operation, ids)
          const { "x-org-id": _, ...own } = headers
          for (const more of [{}, { "x-org-id": tenant.orgId }]) {
            const { text } = yield* send(operation.method, path, { ...request, headers: { ...own, ...more } })
            const answered = text.replace(/"job_id":"\w+","success":false/g, "")
            for (const secret of secrets) expect(answered, `${operation.id} by ${column}`).not.toContain(secret)
          }
        }
      }
      expect(yield* snapshot).toEqual(before)
    }),
  ),
)

it.live("the audit log names the person, filters by person and time, and is exported line by line", () =>
  withRoles(({ enter, orgId }) =>
    Effect.gen(function* () {
      const { send } = yield* TestServer
      const { headers } = yield* enter("owner")
      const create = (name: string) => must(send, "POST", "/api/v0/projects", { json: { name, orgId }, headers })
      yield* create("docs")
      yield* must(send, "POST", "/v1/webhooks/create", {
        json: { url: "https://localhost:9/", signing_secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" },
        headers,
      }).pipe(Effect.ignore)
      const path = `/api/v0/orgs/${orgId}/audit`
      const list = (query: string) =>
        Effect.map(
          must(send, "GET", `${path}${query}`, { headers }),
          ({ entries }) => entries as unknown as ReadonlyArray<Readonly<Record<string, string>>>,
        )
      const [newest, ...older] = yield* list("")
      const person = { subject: "248289761001", name: null, email: null }
      expect(older.at(-1)).toMatchObject({ action: "org.create", actor: "administrator", person: null })
      const own = yield* list("?person=248289761001")
      expect(own.length).toBeGreaterThan(0)
      for (const entry of own) expect(entry).toMatchObject({ actor: "person:248289761001", person })
      expect(own[0]).toEqual(newest)
      expect(yield* list("?person=nobody")).toEqual([])
      expect(yield* list(`?since=${newest!["at"]}`)).toContainEqual(newest)
      expect(yield* list(`?until=${newest!["at"]}`)).not.toContainEqual(newest)
      expect((yield* send("GET", `${path}?since=yesterday`, { headers })).status).toBe(400)
      const { headers: sent, status, text } = yield* send("GET", `${path}/export?person=248289761001`, { headers })
      expect([status, sent["content-type"]]).toEqual([200, "application/x-ndjson"])
      expect(
        text
          .trimEnd()
          .split("\n")
          .map((line) => JSON.parse(line) as unknown),
      ).toEqual(own)
      const foreign = yield* send("GET", `/api/v0/orgs/${unknownId}/audit/export`, { headers })
      expect([foreign.status, foreign.json]).toEqual([404, { error: expect.any(String), code: "not_found" }])
      // All of it is more than a page of the list, and than one of the export.
      for (let n = 0; n < 120; n++)
        yield* must(send, "POST", "/api/v0/projects", { json: { name: `p${n}`, orgId }, as: adminToken })
      const all = yield* send("GET", `${path}/export`, { headers })
      expect(all.text.trimEnd().split("\n").length).toBe(own.length + older.length + 1 - own.length + 120)
    }),
  ),
)
