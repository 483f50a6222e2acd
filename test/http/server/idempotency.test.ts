import { expect } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { layer } from "../../support/it.ts"
import { adminToken, embedded, guarded, onPostgres, TestServer } from "../../support/server.ts"
import type { WireAnswer, WireRequest } from "../../support/wire.ts"
import { within } from "../../support/wait.ts"
import { faultOfError, must } from "../operations.ts"
import { disguises, dump } from "./secrets.ts"
import { makeTenant } from "../tenants.ts"
import { faultOfWebhookError } from "../webhooks/webhookOperations.ts"

const as = adminToken
const keyed = (key: string, request: WireRequest = {}): WireRequest => ({
  ...request,
  headers: { ...request.headers, "idempotency-key": key },
})
const faultOf = (path: string, answer: WireAnswer) =>
  path.startsWith("/v1/") ? faultOfWebhookError(answer) : faultOfError(answer)

/** Every operation that creates something: its path, a body, another body, and its table. */
const creating = Effect.gen(function* () {
  const { send } = yield* TestServer
  const { orgId, keyId, key } = yield* makeTenant(as)
  const { projectId } = yield* must(send, "POST", "/api/v0/projects", { json: { name: "p", orgId }, as })
  const administrator: WireRequest = { as }
  const tenant: WireRequest = { headers: { "x-api-key": key } }
  const keys = `/api/v0/orgs/${orgId}/keys`
  const endpoint = { url: "https://receiver.example/", signing_secret: "s3cret-of-an-endpoint" }
  return [
    ["/api/v0/orgs", administrator, { name: "a" }, { name: "b" }, "orgs"],
    ["/api/v0/projects", administrator, { name: "a", orgId }, { name: "b", orgId }, "projects"],
    ["/api/v0/keys", administrator, { name: "a", projectId }, { name: "b", projectId }, "api_keys"],
    [keys, administrator, { name: "a" }, { name: "a", expiresAt: "2100-01-01T00:00:00Z" }, "api_keys"],
    [
      `${keys}/import`,
      administrator,
      { keys: [{ hash: "1".repeat(64), algorithm: "sha256", name: "a" }] },
      { keys: [{ hash: "2".repeat(64), algorithm: "sha256", name: "a" }] },
      "api_keys",
    ],
    [`${keys}/${keyId}/rotate`, administrator, {}, { overlapSeconds: 5 }, "api_keys"],
    ["/v1/webhooks/create", tenant, endpoint, { ...endpoint, active: false }, "webhook_endpoints"],
    ["/v1/jobs/create", tenant, { workflow: "a" }, { workflow: "a", input: null }, "jobs"],
    ["/v1/jobs/create-batch", tenant, { jobs: [{ workflow: "a" }] }, { jobs: [{ workflow: "b" }] }, "jobs"],
    [
      "/v1/schedules/create",
      tenant,
      { workflow: "a", cron: "0 4 * * *" },
      { workflow: "a", cron: "1 4 * * *" },
      "job_schedules",
    ],
    ["/v1/events/publish", tenant, { type: "a.b", data: 1 }, { type: "a.b", data: 2 }, "events"],
    [
      "/v1/events/publish-batch",
      tenant,
      { events: [{ type: "a.b", data: 1 }] },
      { events: [{ type: "a.b", data: 2 }] },
      "events",
    ],
  ] as const
})

const servers = {
  "the embedded database": TestServer.layer({ ...guarded, ...embedded }),
  PostgreSQL: TestServer.layer(onPostgres(guarded)),
}

for (const [database, server] of Object.entries(servers)) {
  layer(server, { excludeTestServices: true })(`Idempotency-Key on ${database}`, (it) => {
    it.effect("a repeated request creates nothing more, and gets the first answer byte for byte", function* () {
      const { send, sql } = yield* TestServer
      for (const [path, caller, json, other, table] of yield* creating) {
        const count = Effect.map(sql<{ n: number }>`SELECT count(*)::int AS n FROM ${sql(table)}`, ([row]) => row!.n)
        const audited = Effect.map(sql<{ n: number }>`SELECT count(*)::int AS n FROM audit_log`, ([row]) => row!.n)
        const ask = (key: string, json: object) => send("POST", path, keyed(key, { ...caller, json }))
        const before = yield* count
        const first = yield* ask("one", json)
        expect([first.status, first.headers["idempotency-replayed"]], `${path} ${first.text}`).toEqual([200, undefined])
        const entries = yield* audited
        for (let n = 0; n < 2; n++) {
          const again = yield* ask("one", json)
          expect([again.status, again.text, again.headers["idempotency-replayed"]]).toEqual([200, first.text, "true"])
          for (const name of ["content-type", "content-length", "cache-control"]) {
            expect(again.headers[name], name).toBe(first.headers[name])
          }
        }
        expect([yield* count, yield* audited], path).toEqual([before + 1, entries])

        const reused = yield* ask("one", other)
        expect([reused.status, faultOf(path, reused)], path).toEqual([422, undefined])
        expect(reused.json).toMatchObject({ code: "idempotency_key_reused" })
        expect(yield* count, path).toBe(before + 1)
        if (!path.endsWith("/rotate")) {
          expect((yield* ask("two", json)).text, path).not.toBe(first.text)
          expect((yield* send("POST", path, { ...caller, json })).text, path).not.toBe(first.text)
          // A hash that is imported again exists.
          expect(yield* count, path).toBe(before + (path.endsWith("/import") ? 1 : 3))
        }
      }
    })

    it.effect("an answer is kept for a day", function* () {
      const { send, advance } = yield* TestServer
      const ask = send("POST", "/api/v0/orgs", keyed("day", { json: { name: "o" }, as }))
      const first = yield* ask
      yield* advance("23 hours")
      expect((yield* ask).text).toBe(first.text)
      yield* advance("61 minutes")
      const later = yield* ask
      expect([later.status, later.headers["idempotency-replayed"]]).toEqual([200, undefined])
      expect(later.text).not.toBe(first.text)
    })

    it.effect("a failure is not kept: the same key can be used again", function* () {
      const { send } = yield* TestServer
      const tenant = yield* makeTenant(as)
      const failing: ReadonlyArray<readonly [string, WireRequest, number]> = [
        ["/api/v0/orgs", { json: { name: "" }, as }, 400],
        ["/api/v0/orgs", { body: "{", headers: { "content-type": "application/json" }, as }, 400],
        ["/api/v0/orgs", { body: "{}", headers: { "content-type": "text/plain" }, as }, 415],
        ["/api/v0/orgs", { json: { name: "x".repeat(1024 * 1024) }, as }, 413],
        ["/api/v0/orgs", { json: { name: "o" } }, 401],
        ["/api/v0/orgs", { json: { name: "o" }, as: tenant.key }, 403],
        ["/api/v0/projects", { json: { name: "p", orgId: "nobody" }, as }, 404],
        ["/v1/webhooks/create", { json: { url: "x", signing_secret: "s" }, headers: tenant.headers }, 400],
      ]
      for (const [path, request, status] of failing) {
        for (let n = 0; n < 2; n++) {
          const answer = yield* send("POST", path, keyed("fails", request))
          expect([answer.status, faultOf(path, answer)], `${path} ${answer.text}`).toEqual([status, undefined])
        }
      }
      for (const [path, json] of [
        ["/api/v0/orgs", { name: "o" }],
        ["/api/v0/projects", { name: "p", orgId: tenant.orgId }],
      ] as const) {
        const made = yield* send("POST", path, keyed("fails", { json, as }))
        expect([made.status, made.headers["idempotency-replayed"]]).toEqual([200, undefined])
      }
    })

    it.effect("a key belongs to its principal and its operation", function* () {
      const { send } = yield* TestServer
      const [tenant, other] = [yield* makeTenant(as), yield* makeTenant(as)]
      const { key } = yield* must(send, "POST", `/api/v0/orgs/${tenant.orgId}/keys`, { json: { name: "k" }, as })
      const made = new Set<string>()
      for (const headers of [tenant.headers, other.headers, { "x-api-key": key! }]) {
        const request = { json: { name: "same" }, headers }
        made.add((yield* send("POST", "/api/v0/projects", keyed("shared", request))).text)
        const job = { json: { workflow: "same" }, headers }
        made.add((yield* send("POST", "/v1/jobs/create", keyed("shared", job))).text)
      }
      const byAdministrator = { json: { name: "same" }, as }
      made.add((yield* send("POST", "/api/v0/projects", keyed("shared", byAdministrator))).text)
      expect(made.size).toBe(7)
      // The same key in the other header is the same principal.
      const request = keyed("shared", { json: { name: "same" }, as: key })
      const again = yield* send("POST", "/api/v0/projects", request)
      expect([again.headers["idempotency-replayed"], made.has(again.text)]).toEqual(["true", true])
    })

    it.effect("a job's own idempotency_key works beside it, for all keys of the org", function* () {
      const tenant = yield* makeTenant(as)
      const create = (key: string) => tenant.ask("jobs/create", { workflow: "w", idempotency_key: "job" }, keyed(key))
      const [first, again, other] = [yield* create("a"), yield* create("a"), yield* create("b")]
      expect(again.headers["idempotency-replayed"]).toBe("true")
      expect(other.headers["idempotency-replayed"]).toBeUndefined()
      expect(again.text).toBe(first.text)
      expect(other.json).toMatchObject({ job_id: (first.json as { job_id: string }).job_id, created: false })
    })

    it.effect("the header has 1 to 255 visible ASCII characters, else a 400 with the reason", function* () {
      const { send } = yield* TestServer
      const tenant = yield* makeTenant(as)
      const ask = (key: string | Array<string>) =>
        send("POST", "/api/v0/orgs", { json: { name: "o" }, as, headers: { "idempotency-key": key } })
      for (const key of ["!", "~".repeat(255), '"8e03978e-40d5"', "a,b;c=1"]) {
        expect((yield* ask(key)).status, key).toBe(200)
      }
      for (const key of ["", " ", "a b", "\xe4", "x".repeat(256), ["a", "b"]]) {
        const answer = yield* ask(key)
        expect([answer.status, faultOfError(answer)], String(key)).toEqual([400, undefined])
        expect(answer.text).toContain("Idempotency-Key must be 1 to 255 visible ASCII characters.")
        const ofTenant = yield* send("POST", "/v1/jobs/create", {
          json: { workflow: "w" },
          headers: { ...tenant.headers, "idempotency-key": key },
        })
        expect([ofTenant.status, faultOfWebhookError(ofTenant)], String(key)).toEqual([400, undefined])
      }
      // An operation that creates nothing ignores the header.
      const list = { as, headers: { "idempotency-key": "a b" } }
      expect((yield* send("GET", "/api/v0/orgs", list)).status).toBe(200)
    })

    it.effect("no secret of a kept answer or request can be read in a table, a log line or a span", function* () {
      const { send, sql, logs, spans } = yield* TestServer
      const tenant = yield* makeTenant(as)
      const keys = `/api/v0/orgs/${tenant.orgId}/keys`
      const made = yield* must(send, "POST", keys, keyed("secret", { json: { name: "k" }, as }))
      yield* must(send, "POST", keys, keyed("secret", { json: { name: "k" }, as }))
      const rotated = yield* must(send, "POST", `${keys}/${made["id"]}/rotate`, keyed("secret", { json: {}, as }))
      const signing_secret = "signing-secret-0123456789"
      const endpoint = { url: "https://receiver.example/", signing_secret }
      yield* must(send, "POST", "/v1/webhooks/create", keyed("secret", { json: endpoint, headers: tenant.headers }))
      const kept = yield* sql<{ record: string }>`SELECT record FROM idempotency_keys WHERE key = 'secret'`
      expect(kept).toHaveLength(3)
      for (const { record } of kept) expect(record).toMatch(/^v1\.[0-9a-f]{8}\.[A-Za-z0-9_-]{40,}$/)
      const { text } = yield* dump(sql)
      expect(text).toContain(made["prefix"])
      for (const [place, content] of Object.entries({ text, logs: logs(), spans: spans() })) {
        for (const secret of [made["key"]!, rotated["key"]!, signing_secret].flatMap(disguises)) {
          expect(content.includes(secret), place).toBe(false)
        }
      }
    })

    it.effect("a waiting claim gets a job that was created with a key", function* () {
      const tenant = yield* makeTenant(as)
      const waiting = yield* Effect.forkChild(tenant.call("jobs/claim", { wait_seconds: 30 }))
      yield* Effect.sleep("100 millis")
      const made = yield* tenant.ask("jobs/create", { workflow: "w" }, keyed("waited"))
      const { jobs } = yield* within("the claim to end", Fiber.join(waiting))
      expect(jobs).toMatchObject([{ job_id: (made.json as { job_id: string }).job_id }])
    })

    it.effect("the audit log has each change with its request, for its own org only", function* () {
      const { send } = yield* TestServer
      const tenant = yield* makeTenant(as)
      yield* tenant.ask(
        "webhooks/create",
        { url: "https://receiver.example/", signing_secret: "s" },
        {
          headers: { "x-request-id": "of-the-endpoint" },
        },
      )
      const { entries, nextCursor } = yield* must(send, "GET", `/api/v0/orgs/${tenant.orgId}/audit`, {
        as: tenant.key,
      })
      expect(nextCursor).toBeNull()
      const requestId = expect.stringMatching(/^[0-9a-f-]{36}$/)
      expect(entries).toMatchObject([
        { action: "webhook_endpoint.create", actor: `key:${tenant.keyId}`, requestId: "of-the-endpoint" },
        { action: "key.create", actor: "administrator", target: tenant.keyId, requestId },
        { action: "org.create", actor: "administrator", target: tenant.orgId, details: { name: "Acme" }, requestId },
      ])
    })
  })
}
