import { NodeHttpClient } from "@effect/platform-node"
import { expect } from "@effect/vitest"
import { DateTime, Effect, Layer, Redacted } from "effect"
import { FetchHttpClient, HttpClient } from "effect/http"
import { readFileSync } from "node:fs"
import * as Gatehouse from "#src/sdk/client.ts"
import { it, layer } from "../support/it.ts"
import { adminToken, guarded, onPostgres, TestServer } from "../support/server.ts"

/** A client of the server, with or without a credential. */
const client = (credential?: Gatehouse.ClientOptions["credential"]) =>
  Effect.flatMap(TestServer, ({ url }) => Gatehouse.make({ baseUrl: url, credential }))

/** Everything that a module imports, directly or through others, down to packages. */
const imports = (file: URL, seen = new Set<string>()): ReadonlySet<string> => {
  for (const [, from] of readFileSync(file, "utf8").matchAll(/\bfrom "([^"]+)"/g)) {
    const target = from!.startsWith(".") ? new URL(from!, file) : undefined
    if (seen.has(target?.pathname ?? from!)) continue
    seen.add(target?.pathname ?? from!)
    if (target !== undefined) imports(target, seen)
  }
  return seen
}

it("the client imports nothing of the server or of a platform", () => {
  const all = [...imports(new URL("../../src/sdk/client.ts", import.meta.url))]
  expect(all.some((from) => from.endsWith("/http/api/projectsApi.ts"))).toBe(true)
  expect(
    all.filter((from) => /^node:|platform-node|\/sql|\/infrastructure\/|\/handlers\/|Server\.ts$/.test(from)),
  ).toEqual([])
})

layer(Layer.merge(TestServer.layer(onPostgres(guarded)), NodeHttpClient.layerUndici), { excludeTestServices: true })(
  "the typed client",
  (it) => {
    it.effect("calls every operation, and times are decoded as times", function* () {
      const gatehouse = yield* client(Redacted.make(adminToken))
      const before = yield* DateTime.now
      const { orgId, createdAt } = yield* gatehouse.orgs.create({ payload: { name: "Acme" } })
      expect(DateTime.isGreaterThanOrEqualTo(DateTime.add(createdAt, { seconds: 1 }), before)).toBe(true)
      const project = yield* gatehouse.projects.create({ payload: { name: "docs", orgId } })
      const params = { projectId: project.projectId }
      expect(yield* gatehouse.projects.get({ params })).toEqual(project)
      const renamed = yield* gatehouse.projects.update({ params, payload: { name: "handbook", defaultBranch: null } })
      expect(renamed.name).toBe("handbook")

      const expiresAt = DateTime.add(before, { days: 1 })
      const { key, id } = yield* gatehouse.keys.createForProject({
        payload: { name: "ci", projectId: project.projectId, expiresAt },
      })
      yield* gatehouse.keys.createForOrg({ params: { orgId }, payload: { name: "gateway" } })
      expect(yield* gatehouse.keys.validate({ payload: { key } })).toEqual({
        keyId: id,
        orgId,
        projectId: project.projectId,
      })
      const page = yield* gatehouse.keys.list({ params: { orgId }, query: { limit: 1 } })
      expect(page.keys[0]).toMatchObject({ id, expiresAt: DateTime.makeUnsafe(DateTime.toEpochMillis(expiresAt)) })
      const rest = yield* gatehouse.keys.list({ params: { orgId }, query: { limit: 5, cursor: page.nextCursor! } })
      expect(rest.keys.map(({ name }) => name)).toEqual(["gateway"])
      expect(yield* gatehouse.keys.remove({ params: { orgId, id } })).toEqual({ deleted: true })

      expect((yield* gatehouse.orgs.list({ query: { limit: 100 } })).orgs.map((org) => org.orgId)).toContain(orgId)
      const listed = yield* gatehouse.projects.list({ query: { limit: 100, orgId } })
      expect(listed.projects).toEqual([renamed])
      expect(yield* gatehouse.deployments.list({ params, query: { limit: 10 } })).toEqual({
        deployments: [],
        nextCursor: null,
      })
      expect(yield* gatehouse.system.healthz()).toEqual({ ok: true })
      expect(yield* gatehouse.system.readyz()).toEqual({ ok: true, writable: true })
    })

    it.effect("fails with the errors of the operation, distinguished by their tags", function* () {
      const stranger = yield* client()
      const administrator = yield* client(adminToken)
      const { orgId } = yield* administrator.orgs.create({ payload: { name: "Acme" } })
      const { key } = yield* administrator.keys.createForOrg({ params: { orgId }, payload: { name: "k" } })
      const ofOrg = yield* client(key)
      const project = yield* ofOrg.projects.create({ payload: { name: "docs" } })
      expect(project.orgId).toBe(orgId)
      const other = yield* ofOrg.projects.create({ payload: { name: "other" } })
      yield* ofOrg.projects.update({ params: { projectId: other.projectId }, payload: { subdomain: "taken" } })
      const past = DateTime.makeUnsafe("2020-01-01T00:00:00Z")
      const [missing, anonymous, forbidden, conflict, invalid, wrongKey, noToken] = yield* Effect.all([
        Effect.flip(administrator.projects.get({ params: { projectId: "nobody" } })),
        Effect.flip(stranger.projects.create({ payload: { name: "docs" } })),
        Effect.flip(ofOrg.orgs.create({ payload: { name: "another" } })),
        Effect.flip(
          ofOrg.projects.update({ params: { projectId: project.projectId }, payload: { subdomain: "taken" } }),
        ),
        Effect.flip(administrator.keys.createForOrg({ params: { orgId }, payload: { name: "k", expiresAt: past } })),
        Effect.flip(stranger.keys.validate({ payload: { key: "svc_wrong" } })),
        Effect.flip(administrator.deployments.register({ headers: {}, payload: {} })),
      ])
      expect(missing).toMatchObject({ _tag: "NotFound", code: "not_found", error: "There is no such project." })
      expect(anonymous._tag).toBe("Unauthorized")
      expect(forbidden._tag).toBe("Forbidden")
      expect(conflict._tag).toBe("Conflict")
      expect(invalid).toMatchObject({ _tag: "InvalidRequest", error: "expiresAt must be a time in the future." })
      expect(wrongKey).toMatchObject({ _tag: "Unauthorized", error: "The key is not valid." })
      expect(noToken._tag).toBe("Unauthorized")
      const handled = administrator.projects
        .get({ params: { projectId: "nobody" } })
        .pipe(Effect.catchTag("NotFound", ({ error }) => Effect.succeed(error)))
      expect(yield* handled).toBe("There is no such project.")
    })

    it.effect("a 429 tells how long to wait", function* () {
      const { send } = yield* TestServer
      const json = { key: "bad" }
      const ask = send("POST", "/api/v0/keys/validate", { json })
      yield* Effect.replicateEffect(ask, 600, { concurrency: 20, discard: true })
      const limited = yield* Effect.flip((yield* client()).keys.validate({ payload: json }))
      expect(limited).toMatchObject({ _tag: "TooManyRequests", retryAfterSeconds: expect.any(Number) })
    })

    it.effect("an API key can use the webhook interface too", function* () {
      const administrator = yield* client(adminToken)
      const { orgId } = yield* administrator.orgs.create({ payload: { name: "Acme" } })
      const { key } = yield* administrator.keys.createForOrg({ params: { orgId }, payload: { name: "k" } })
      const tenant = yield* client(Redacted.make(key))
      const { job_id } = yield* tenant.jobs.create({ payload: { workflow: "w" } })
      expect((yield* tenant.jobs.list({ payload: { limit: 10 } })).jobs.map((job) => job.job_id)).toEqual([job_id])
      const missing = yield* Effect.flip(tenant.deliveries.get({ payload: { delivery_id: "nobody" } }))
      expect(missing).toMatchObject({ _tag: "NotFound", error: "There is no such delivery." })
      expect((yield* Effect.flip(administrator.jobs.list({ payload: { limit: 10 } })))._tag).toBe("Unauthorized")
    })

    it.effect("rotates keys, repeats creations with one key, and reads the audit log", function* () {
      const gatehouse = yield* client(Redacted.make(adminToken))
      const { orgId } = yield* gatehouse.orgs.create({ payload: { name: "Acme" } })
      const params = { orgId }
      const rateLimit = { limit: 1, window: 60 }
      const create = (name: string) =>
        gatehouse.keys.createForOrg({ params, payload: { name, rateLimit } }).pipe(Gatehouse.withIdempotencyKey("once"))
      const made = yield* create("gateway")
      expect(yield* create("gateway")).toEqual(made)
      expect(yield* Effect.flip(create("another"))).toMatchObject({
        _tag: "IdempotencyKeyReused",
        code: "idempotency_key_reused",
      })
      const rotated = yield* gatehouse.keys.rotate({ params: { orgId, id: made.id }, payload: { overlapSeconds: 0 } })
      const again = gatehouse.keys.rotate({ params: { orgId, id: made.id }, payload: {} })
      expect((yield* Effect.flip(again))._tag).toBe("Conflict")
      const { keys } = yield* gatehouse.keys.list({ params, query: { limit: 10 } })
      expect(keys).toMatchObject([
        { id: made.id, rateLimit },
        { id: rotated.id, rateLimit, expiresAt: null },
      ])
      const validate = gatehouse.keys.validate({ payload: { key: rotated.key } })
      yield* validate
      expect(yield* Effect.flip(validate)).toMatchObject({ _tag: "TooManyRequests", retryAfterSeconds: 60 })
      const { entries, nextCursor } = yield* gatehouse.audit.list({ params, query: { limit: 10 } })
      expect(entries.map(({ action }) => action)).toEqual(["key.rotate", "key.create", "org.create"])
      expect([entries[0]!.target, DateTime.isDateTime(entries[0]!.at), nextCursor]).toEqual([made.id, true, null])
    })

    it.effect("a request that does not match the definition is not sent", function* () {
      const gatehouse = yield* client(adminToken)
      expect((yield* Effect.flip(gatehouse.projects.create({ payload: { name: "" } })))._tag).toBe("SchemaError")
    })

    it.effect("an operation's own credential has priority over the client's", function* () {
      const seen: Array<string> = []
      const spy = HttpClient.make(({ headers, url }) => {
        seen.push(`${headers["authorization"]} ${url}`)
        return Effect.die("not sent")
      })
      const gatehouse = yield* Gatehouse.make({ baseUrl: "http://gatehouse/", credential: "of-the-client" }).pipe(
        Effect.provideService(HttpClient.HttpClient, spy),
      )
      const register = (headers: { authorization?: string }) =>
        Effect.exit(gatehouse.deployments.register({ headers, payload: {} }))
      yield* register({ authorization: "Bearer token" })
      yield* register({})
      const url = "http://gatehouse/api/v0/register-deployment"
      expect(seen).toEqual([`Bearer token ${url}`, `Bearer of-the-client ${url}`])
    })

    it.effect("works over fetch, as promises", function* () {
      const { url } = yield* TestServer
      const name = yield* Effect.promise(async () => {
        const gatehouse = await Effect.runPromise(
          Gatehouse.make({ baseUrl: new URL(url), credential: adminToken }).pipe(Effect.provide(FetchHttpClient.layer)),
        )
        const { orgId } = await Effect.runPromise(gatehouse.orgs.create({ payload: { name: "o" } }))
        return (await Effect.runPromise(gatehouse.projects.create({ payload: { name: "docs", orgId } }))).name
      })
      expect(name).toBe("docs")
    })
  },
)
