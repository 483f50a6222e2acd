import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { layer } from "../../support/it.ts"
import { adminToken, embedded, guarded, onPostgres, TestServer } from "../../support/server.ts"
import { must } from "../operations.ts"
import { makeTenant } from "../tenants.ts"
import { openPortal, portalLink, signIn } from "./signedIn.ts"

/**
 * Promise (Signing in): Behind TLS only the cookie with the `__Host-` prefix counts. Whether there is TLS is what the
 * nearest trusted proxy wrote, in any case.
 */

const status = Effect.fnUntraced(function* (method: string, path: string, headers: Record<string, string>) {
  const { send } = yield* TestServer
  return (yield* send(method, path, { headers, ...(method === "GET" ? {} : { json: {} }) })).status
})

for (const [database, environment] of Object.entries({
  embedded: { ...guarded, ...embedded },
  PostgreSQL: onPostgres(guarded),
})) {
  layer(TestServer.layer<never, never>(environment as never), { excludeTestServices: true })(
    `sessions on ${database}`,
    (it) => {
      it.effect(
        "the administrator's token and a key can sign in, and scripts and other sites cannot use the cookie",
        function* () {
          const { send, logs, spans } = yield* TestServer
          const tenant = yield* makeTenant(adminToken)
          const admin = yield* signIn(adminToken)
          expect(admin.answer.headers["set-cookie"]).toEqual([
            expect.stringMatching(/^gatehouse_session=[\w.]{60,}; Max-Age=43200; Path=\/; HttpOnly; SameSite=Strict$/),
          ])
          expect(admin.answer.headers["cache-control"]).toBe("no-store")
          expect(admin.me).toMatchObject({ principal: "administrator", mode: "guarded", orgId: null })
          const listed = yield* must(send, "GET", "/api/v0/orgs", { headers: { cookie: admin.cookie } })
          expect(listed["orgs"]).not.toEqual([])
          const key = yield* signIn(tenant.key)
          expect(key.me).toMatchObject({ principal: "orgKey", orgId: tenant.orgId })
          yield* must(send, "POST", "/v1/webhooks/list", { json: {}, headers: key.headers })
          const named = { ...admin.headers, "x-org-id": tenant.orgId }
          yield* must(send, "POST", "/v1/webhooks/list", { json: {}, headers: named })
          expect(yield* status("POST", "/v1/webhooks/list", admin.headers)).toBe(401)
          for (const { cookie } of [admin, key]) {
            expect(logs() + spans()).not.toContain(cookie.split("=")[1])
          }
        },
      )

      it.effect("nobody signs in without a credential, with a wrong one or with only a session", function* () {
        const { send } = yield* TestServer
        const { headers } = yield* signIn(adminToken)
        for (const request of [{}, { as: "wrong-0123456789abcdef" }, { headers }]) {
          const answer = yield* send("POST", "/api/v0/sessions", request)
          expect([answer.status, answer.headers["set-cookie"]]).toEqual([401, undefined])
        }
        expect(yield* status("GET", "/api/v0/sessions/current", {})).toBe(401)
      })

      it.effect("a change requires the token that another site cannot read", function* () {
        const { send } = yield* TestServer
        const { cookie, headers } = yield* signIn(adminToken)
        const other = yield* signIn(adminToken)
        const create = (headers: Record<string, string>) =>
          Effect.map(send("POST", "/api/v0/orgs", { json: { name: "o" }, headers }), ({ status }) => status)
        expect(yield* create({ cookie })).toBe(401)
        expect(yield* create({ cookie, "x-csrf-token": "" })).toBe(401)
        expect(yield* create({ cookie, "x-csrf-token": other.headers["x-csrf-token"] })).toBe(401)
        expect(yield* create(headers)).toBe(200)
      })

      it.effect("signing out ends only that session", function* () {
        const { send } = yield* TestServer
        const [one, two] = [yield* signIn(adminToken), yield* signIn(adminToken)]
        const out = yield* send("DELETE", "/api/v0/sessions/current", { headers: one.headers })
        expect([out.status, out.headers["set-cookie"]]).toEqual([200, [expect.stringContaining("Max-Age=0")]])
        expect(yield* status("GET", "/api/v0/sessions/current", one.headers)).toBe(401)
        expect(yield* status("GET", "/api/v0/sessions/current", two.headers)).toBe(200)
      })

      it.effect("a session ends with its key, a portal session with the key of its link", function* () {
        const { send } = yield* TestServer
        const tenant = yield* makeTenant(adminToken)
        const key = yield* signIn(tenant.key)
        const link = yield* portalLink(tenant.headers)
        const portal = yield* openPortal(yield* portalLink(key.headers))
        for (const { headers } of [key, portal]) expect(yield* status("POST", "/v1/webhooks/list", headers)).toBe(200)
        yield* must(send, "DELETE", `/api/v0/orgs/${tenant.orgId}/keys/${tenant.keyId}`, { as: adminToken })
        for (const { headers } of [key, portal]) expect(yield* status("POST", "/v1/webhooks/list", headers)).toBe(401)
        expect((yield* send("POST", "/api/v0/sessions/portal", { json: { token: link } })).status).toBe(401)
      })

      it.effect("portal links end with their makers, are listed and revoked, and the audit log has them", function* () {
        const { send } = yield* TestServer
        const tenant = yield* makeTenant(adminToken)
        const { orgId } = tenant
        const admin = { authorization: `Bearer ${adminToken}`, "x-org-id": orgId }
        const make = (headers: Record<string, string>, json: object = {}) =>
          must(send, "POST", "/v1/portal/link", { json, headers })
        const open = (token: string | undefined) =>
          Effect.map(send("POST", "/api/v0/sessions/portal", { json: { token } }), ({ status }) => status)
        const states = Effect.gen(function* () {
          const { links } = yield* must(send, "POST", "/v1/portal/links/list", { json: {}, headers: admin })
          const all = links as unknown as ReadonlyArray<{ link_id: string; state: string; made_by: string }>
          return Object.fromEntries(all.map(({ link_id, made_by, state }) => [link_id, `${state} ${made_by}`]))
        })
        const session = yield* signIn(tenant.key)
        const ofSession = yield* make(session.headers, { expires_in_seconds: 604_800 })
        expect(ofSession["expires_at"]).toBe(
          (yield* must(send, "GET", "/api/v0/sessions/current", { headers: session.headers }))["expiresAt"],
        )
        const portalOfSession = yield* openPortal((yield* make(session.headers))["token"]!)
        const [ofKey, ofAdmin] = [yield* make(tenant.headers), yield* make(admin, { keys: { external_id: "c" } })]
        const portal = yield* openPortal(ofAdmin["token"]!)
        const key = `key:${tenant.keyId}`
        expect(yield* states).toMatchObject({
          [ofSession["link_id"]!]: `unopened ${key}`,
          [ofKey["link_id"]!]: `unopened ${key}`,
          [ofAdmin["link_id"]!]: "open administrator",
        })
        // The maker signs out.
        yield* must(send, "DELETE", "/api/v0/sessions/current", { headers: session.headers })
        expect(yield* status("POST", "/v1/webhooks/list", portalOfSession.headers)).toBe(401)
        expect(yield* open(ofSession["token"])).toBe(401)
        // What a portal does names who made its link.
        yield* must(send, "POST", `/api/v0/orgs/${orgId}/keys`, { json: { name: "k" }, headers: portal.headers })
        yield* must(send, "POST", "/v1/portal/links/revoke", {
          json: { link_id: ofAdmin["link_id"] },
          headers: tenant.headers,
        })
        expect(yield* status("POST", "/v1/webhooks/list", portal.headers)).toBe(401)
        expect((yield* states)[ofAdmin["link_id"]!]).toBeUndefined()
        const again = yield* send("POST", "/v1/portal/links/revoke", {
          json: { link_id: ofAdmin["link_id"] },
          headers: tenant.headers,
        })
        expect([again.status, again.json]).toMatchObject([404, { message: "There is no such portal link." }])
        yield* must(send, "DELETE", `/api/v0/orgs/${orgId}/keys/${tenant.keyId}`, { as: adminToken })
        expect(yield* open(ofKey["token"])).toBe(401)
        expect((yield* states)[ofKey["link_id"]!]).toBe(`ended ${key}`)
        const { entries } = yield* must(send, "GET", `/api/v0/orgs/${orgId}/audit?limit=100`, { as: adminToken })
        const log = (entries as unknown as ReadonlyArray<Record<string, unknown>>).map(
          ({ action, actor, details, target }) => ({ action, actor, target, ...(details as object) }),
        )
        const opener = `portal:${ofAdmin["link_id"]}`
        for (const entry of [
          { action: "session.create", actor: key },
          { action: "session.end", actor: key },
          { action: "portal_link.create", actor: key, target: ofKey["link_id"] },
          { action: "portal_link.create", actor: "administrator", target: ofAdmin["link_id"] },
          { action: "portal_link.open", actor: opener, target: ofAdmin["link_id"], madeBy: "administrator" },
          { action: "key.create", actor: opener, madeBy: "administrator" },
          { action: "portal_link.revoke", actor: key, target: ofAdmin["link_id"] },
        ])
          expect(log).toContainEqual(expect.objectContaining(entry))
      })

      it.effect("a portal link is opened once", function* () {
        const { send } = yield* TestServer
        const tenant = yield* makeTenant(adminToken)
        const token = yield* portalLink({ authorization: `Bearer ${adminToken}`, "x-org-id": tenant.orgId })
        const { me } = yield* openPortal(token)
        expect(me).toMatchObject({ principal: "portal", orgId: tenant.orgId })
        for (const used of [token, "x", `${tenant.orgId}.${"0".repeat(64)}`]) {
          const again = yield* send("POST", "/api/v0/sessions/portal", { json: { token: used } })
          expect([again.status, again.headers["set-cookie"]]).toEqual([401, undefined])
        }
        // The token of a portal link is no session.
        const cookie = `gatehouse_session=${yield* portalLink(tenant.headers)}`
        expect(yield* status("GET", "/api/v0/sessions/current", { cookie })).toBe(401)
      })

      it.effect("behind TLS the cookie is Secure and bound to the host", function* () {
        const { send } = yield* TestServer
        const headers = { host: "gatehouse.example" }
        const { headers: sent } = yield* send("POST", "/api/v0/sessions", { as: adminToken, headers })
        expect(sent["set-cookie"]).toEqual([expect.stringMatching(/^__Host-gatehouse_session=.*; Secure; /)])
        const cookie = sent["set-cookie"]![0]!.split(";", 1)[0]!
        expect(yield* status("GET", "/api/v0/sessions/current", { ...headers, cookie })).toBe(200)
        // Seen failing: a neighbour of the domain can set the name without the prefix, and signed its visitors in as
        // itself.
        const planted = cookie.replace("__Host-", "")
        const foreign = `${cookie.slice(0, -1)}${cookie.endsWith("0") ? "1" : "0"}`
        expect(yield* status("GET", "/api/v0/sessions/current", { ...headers, cookie: planted })).toBe(401)
        expect(yield* status("GET", "/api/v0/sessions/current", { ...headers, cookie: `${planted}; ${foreign}` })).toBe(
          401,
        )
        expect(yield* status("GET", "/api/v0/sessions/current", { ...headers, cookie: `${planted}x; ${cookie}` })).toBe(
          200,
        )
      })

      it.effect("sessions end after 12 hours", function* () {
        const { advance } = yield* TestServer
        const { headers } = yield* signIn(adminToken)
        yield* advance("11 hours")
        expect(yield* status("GET", "/api/v0/sessions/current", headers)).toBe(200)
        yield* advance("1 hour")
        expect(yield* status("GET", "/api/v0/sessions/current", headers)).toBe(401)
      })
    },
  )
}

layer(TestServer.layer(), { excludeTestServices: true })("sessions in open mode", (it) => {
  it.effect("nobody needs one, and an ended session locks nobody out", function* () {
    const { send } = yield* TestServer
    const cookie = `gatehouse_session=.${"0".repeat(64)}`
    const me = yield* must(send, "GET", "/api/v0/sessions/current", { headers: { cookie } })
    expect(me).toMatchObject({ principal: "anonymous", mode: "open", orgId: null, csrfToken: null })
    expect(me["operations"]).toContain("orgs.create")
    expect((yield* send("POST", "/api/v0/sessions")).status).toBe(401)
  })
})
