import { expect } from "@effect/vitest"
import { Effect } from "effect"
import type { IncomingHttpHeaders, OutgoingHttpHeaders } from "node:http"
import { fromRandomBytes } from "#src/domain/keys/ApiKey.ts"
import { layer } from "../../support/it.ts"
import { adminToken, guarded, onPostgres, TestServer } from "../../support/server.ts"
import { must } from "../operations.ts"
import { makeTenant } from "../tenants.ts"
import { faultOfWebhookError, makeThings, nobody, webhookBody, webhookEntries } from "./webhookOperations.ts"

const neverMade = fromRandomBytes(Uint8Array.from({ length: 48 }, (_, i) => i))!

interface Keys {
  readonly org: string
  readonly project: string
  readonly other: string
  readonly deleted: string
  readonly expired: string
}

/** The credentials that must be refused. */
const refused: Record<string, (keys: Keys) => OutgoingHttpHeaders> = {
  nothing: () => ({}),
  "a mistyped key as a bearer token": ({ org }) => ({
    authorization: `Bearer ${org.slice(0, -1)}${org.endsWith("0") ? "1" : "0"}`,
  }),
  "a deleted key as a bearer token": ({ deleted }) => ({ authorization: `Bearer ${deleted}` }),
  "the administrator's token as a bearer": () => ({ authorization: `Bearer ${adminToken}` }),
  "the administrator's token": () => ({ "x-api-key": adminToken }),
  "an empty key": () => ({ "x-api-key": "" }),
  "a wrong key": () => ({ "x-api-key": "wrong" }),
  "a mistyped key": ({ org }) => ({ "x-api-key": org.slice(0, -1) + (org.endsWith("0") ? "1" : "0") }),
  "a well-formed key that does not exist": () => ({ "x-api-key": neverMade }),
  "a deleted key": ({ deleted }) => ({ "x-api-key": deleted }),
  "an expired key": ({ expired }) => ({ "x-api-key": expired }),
  "a key after Bearer": ({ org }) => ({ "x-api-key": `Bearer ${org}` }),
  "two keys": ({ org, other }) => ({ "x-api-key": [org, other] }),
  "a key, and a wrong bearer token": ({ org }) => ({ "x-api-key": org, authorization: "Bearer wrong" }),
  "a key, and another's as a bearer token": ({ org, other }) => ({
    "x-api-key": org,
    authorization: `Bearer ${other}`,
  }),
  "a key, and an invalid Authorization": ({ org }) => ({ "x-api-key": org, authorization: `Basic ${org}` }),
}

for (const mode of ["guarded", "open"] as const) {
  layer(TestServer.layer(onPostgres(mode === "guarded" ? guarded : {})), { excludeTestServices: true })(
    `${mode} mode`,
    (it) => {
      const as = mode === "guarded" ? adminToken : undefined
      const url = "https://localhost:9/"

      it.effect(
        "every operation requires a valid key, as x-api-key or bearer token, and reveals nothing without one",
        function* () {
          const { send, advance } = yield* TestServer
          const [tenant, stranger] = [yield* makeTenant(as), yield* makeTenant(as)]
          const keyOf = (path: string, json: object) =>
            Effect.map(must(send, "POST", `/api/v0${path}`, { json: { name: "k", ...json }, as }), ({ key }) => key!)
          const { projectId } = yield* must(send, "POST", "/api/v0/projects", {
            json: { name: "p", orgId: tenant.orgId },
            as,
          })
          const expiresAt = new Date(Date.now() + 60_000).toISOString()
          const gone = yield* makeTenant(as)
          const keys: Keys = {
            org: tenant.key,
            project: yield* keyOf("/keys", { projectId }),
            other: stranger.key,
            deleted: gone.key,
            expired: yield* keyOf(`/orgs/${tenant.orgId}/keys`, { expiresAt }),
          }
          yield* must(send, "POST", "/v1/webhooks/list", { headers: { "x-api-key": gone.key } })
          yield* must(send, "POST", "/v1/webhooks/list", { headers: { "x-api-key": keys.expired } })
          yield* must(send, "DELETE", `/api/v0/orgs/${gone.orgId}/keys/${gone.keyId}`, { as })
          yield* advance("2 minutes")

          const things = yield* makeThings(tenant, url)
          for (const [name, { method, path }] of webhookEntries) {
            for (const [caller, headers] of Object.entries(refused)) {
              const answer = yield* send(method, path, { json: webhookBody(name, things), headers: headers(keys) })
              expect([answer.status, faultOfWebhookError(answer)], `${path}, ${caller}`).toEqual([401, undefined])
              expect(answer.headers["www-authenticate"], `${path}, ${caller}`).toBe("Bearer")
            }
            // The key is checked before the body.
            for (const request of [{ body: "{" }, { json: {} }, { body: "x".repeat(1024 * 1024) }]) {
              expect((yield* send(method, path, request)).status, path).toBe(401)
            }
          }
          // Nothing was changed: the tenant still has everything, with either of its keys.
          for (const key of [keys.org, keys.project]) {
            for (const headers of [
              { "x-api-key": key },
              { authorization: `Bearer ${key}` },
              { "x-api-key": key, authorization: `Bearer ${key}` },
            ]) {
              const list = yield* must(send, "POST", "/v1/webhooks/list", { headers })
              expect(list["webhook_endpoints"]).toMatchObject([{ webhook_endpoint_id: things.endpoint }])
              const job = yield* must(send, "POST", "/v1/jobs/get", { json: { job_id: things.queued }, headers })
              expect(job["status"]).toBe("queued")
            }
          }
        },
      )

      it.effect("another tenant's resource and a missing one get the same bytes, and it is not touched", function* () {
        const [tenant, stranger] = [yield* makeTenant(as), yield* makeTenant(as)]
        const things = yield* makeThings(tenant, url)
        const none = Object.fromEntries(Object.keys(things).map((name) => [name, nobody]))
        const bare = (headers: IncomingHttpHeaders) => ({ ...headers, "x-request-id": "", date: "" })
        // A filter of failed jobs reaches nobody else's; a job that is named is found, or not.
        const body = (name: (typeof webhookEntries)[number][0], ids: Readonly<Record<string, string>>) =>
          name === "retryJob" ? { job_id: ids["queued"] } : webhookBody(name, ids)
        let compared = 0
        for (const [name, { path, errors }] of webhookEntries) {
          if (!errors.includes(404)) continue
          const foreign = yield* stranger.ask(path.slice(4), body(name, things))
          const missing = yield* stranger.ask(path.slice(4), body(name, none))
          expect([foreign.status, faultOfWebhookError(foreign)], path).toEqual([404, undefined])
          expect(foreign.text, path).toBe(missing.text)
          expect(bare(foreign.headers), path).toEqual(bare(missing.headers))
          compared++
        }
        expect(compared).toBe(27)

        const before = yield* tenant.delivery(things.delivery)
        expect(before.state).toBe("pending")
        expect(yield* tenant.call("jobs/get", { job_id: things.queued })).toMatchObject({ status: "queued" })
        expect(yield* tenant.call("jobs/get", { job_id: things.running })).toMatchObject({ status: "running" })
        const { webhook_endpoints } = yield* tenant.call("webhooks/list")
        expect(webhook_endpoints).toMatchObject([{ webhook_endpoint_id: things.endpoint, description: null }])
        expect((yield* tenant.call("schedules/list"))["schedules"]).toHaveLength(1)
      })

      it.effect("lists and claims never mix tenants, with any request", function* () {
        const [tenant, stranger] = [yield* makeTenant(as), yield* makeTenant(as)]
        const { endpoint, queued } = yield* makeThings(tenant, url)
        const lists: ReadonlyArray<readonly [string, object | undefined, object]> = [
          ["webhooks/list", undefined, { webhook_endpoints: [] }],
          ["schedules/list", undefined, { schedules: [] }],
          ["jobs/list", {}, { jobs: [], next_cursor: null }],
          ["jobs/list", { workflow: "queued", cursor: "7ZZZZZZZZZZZZZZZZZZZZZZZZZ" }, { jobs: [], next_cursor: null }],
          ["jobs/claim", { limit: 100 }, { jobs: [] }],
          ["webhooks/deliveries/list", {}, { deliveries: [], next_cursor: null }],
          ["webhooks/deliveries/list", { webhook_endpoint_id: endpoint }, { deliveries: [], next_cursor: null }],
          ["webhooks/deliveries/list", { job_id: queued, state: "pending" }, { deliveries: [], next_cursor: null }],
        ]
        for (const [path, json, empty] of lists) expect(yield* stranger.call(path, json), path).toEqual(empty)

        // The same idempotency key of another org is another key, and events stay in their org.
        const job = { workflow: "w", idempotency_key: "once" }
        const mine = yield* tenant.call("jobs/create", job)
        const theirs = yield* stranger.call("jobs/create", job)
        expect(mine["job_id"]).not.toBe(theirs["job_id"])
        yield* stranger.call("jobs/complete", { job_id: theirs["job_id"] })
        expect(yield* stranger.deliveries({})).toEqual([])
        expect(yield* tenant.deliveries({})).toHaveLength(1)
      })
    },
  )
}
