import { expect } from "@effect/vitest"
import { layer } from "../../support/it.ts"
import { adminToken, guarded, TestServer } from "../../support/server.ts"
import { must } from "../operations.ts"
import { makeTenant } from "../tenants.ts"
import { faultOfWebhookError, makeThings, nobody, webhookBody, webhookEntries } from "./webhookOperations.ts"

const url = "https://localhost:9/"

for (const mode of ["guarded", "open"] as const) {
  layer(TestServer.layer(mode === "guarded" ? guarded : {}), { excludeTestServices: true })(
    `the administrator with x-org-id, in ${mode} mode`,
    (it) => {
      const as = mode === "guarded" ? adminToken : undefined

      it.effect("acts for that org in every operation, and an unknown org is a 404", function* () {
        const { send } = yield* TestServer
        for (const [name, { method, path }] of webhookEntries) {
          // Creates a new tenant each time, because some operations delete its resources.
          const tenant = yield* makeTenant(as)
          const things = yield* makeThings(tenant, url)
          const json = webhookBody(name, things)
          const own = yield* send(method, path, { json, as, headers: { "x-org-id": tenant.orgId } })
          // A sweep ends before it could be canceled.
          const accepted = name === "cancelResend" || name === "cancelJobSweep" ? [404] : [200, 409]
          expect(accepted, `${path}: ${own.text}`).toContain(own.status)
          const unknown = yield* send(method, path, { json, as, headers: { "x-org-id": nobody } })
          expect([unknown.status, faultOfWebhookError(unknown)], path).toEqual([404, undefined])
        }
      })

      it.effect("is refused without it, and never leaves the org that it names", function* () {
        const { send } = yield* TestServer
        const [tenant, other] = [yield* makeTenant(as), yield* makeTenant(as)]
        const endpoint = yield* tenant.endpoint(url)
        const get = (headers: Record<string, string>) =>
          send("POST", "/v1/webhooks/get", { json: { id: endpoint }, as, headers })
        expect((yield* get({ "x-org-id": tenant.orgId })).status).toBe(200)
        expect((yield* get({ "x-org-id": other.orgId })).status).toBe(404)
        for (const headers of [{}, { "x-org-id": "" }]) {
          const refused = yield* get(headers)
          expect([refused.status, refused.text]).toEqual([401, expect.stringContaining("x-org-id")])
        }
        const key = { "x-api-key": other.key, "x-org-id": tenant.orgId }
        const withKey = yield* send("POST", "/v1/webhooks/get", { json: { id: endpoint }, headers: key })
        expect(withKey.status).toBe(404)
      })

      it.effect("is the actor in the audit log, and its idempotency keys belong to the org", function* () {
        const { send } = yield* TestServer
        const [tenant, other] = [yield* makeTenant(as), yield* makeTenant(as)]
        const create = (orgId: string) =>
          must(send, "POST", "/v1/webhooks/create", {
            json: { url, signing_secret: "secret" },
            as,
            headers: { "x-org-id": orgId, "idempotency-key": "once" },
          })
        const first = yield* create(tenant.orgId)
        expect(yield* create(tenant.orgId)).toEqual(first)
        expect(yield* create(other.orgId)).not.toEqual(first)
        const log = yield* must(send, "GET", `/api/v0/orgs/${tenant.orgId}/audit`, { as })
        const actor = mode === "guarded" ? "administrator" : "anonymous"
        expect(log["entries"]).toMatchObject([
          { action: "webhook_endpoint.create", actor },
          { action: "key.create" },
          {},
        ])
      })

      if (mode === "open") {
        it.effect("a web page from elsewhere cannot act for an org", function* () {
          const { send } = yield* TestServer
          const tenant = yield* makeTenant()
          const headers = { "x-org-id": tenant.orgId, origin: "https://evil.example" }
          expect((yield* send("POST", "/v1/webhooks/list", { json: {}, headers })).status).toBe(401)
        })
      } else {
        it.effect("a wrong token with x-org-id is refused", function* () {
          const { send } = yield* TestServer
          const tenant = yield* makeTenant(as)
          const headers = { "x-org-id": tenant.orgId }
          for (const wrong of [undefined, adminToken.slice(1), `${tenant.key}x`]) {
            expect((yield* send("POST", "/v1/webhooks/list", { json: {}, as: wrong, headers })).status).toBe(401)
          }
        })

        it.effect("a key as a bearer reaches its own org, with any x-org-id", function* () {
          const { send } = yield* TestServer
          const [tenant, other] = [yield* makeTenant(as), yield* makeTenant(as)]
          const [own] = [yield* tenant.endpoint("https://localhost:9/"), yield* other.endpoint("https://localhost:9/")]
          const headers = { "x-org-id": other.orgId }
          const { status, text } = yield* send("POST", "/v1/webhooks/list", { json: {}, as: tenant.key, headers })
          expect(status).toBe(200)
          expect(text.match(/"webhook_endpoint_id":"[^"]+"/g)).toEqual([`"webhook_endpoint_id":"${own}"`])
        })
      }
    },
  )
}
