import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { layer } from "../../support/it.ts"
import { must } from "../operations.ts"
import { makeTenant, type Tenant } from "../tenants.ts"
import { adminToken, guarded, TestServer } from "../../support/server.ts"
import { signIn } from "./signedIn.ts"

/**
 * Promise (Portal): A holder in a portal sees and changes only keys with their own external id, gives them no more
 * than the link allows, and never has more than `max_keys`, however many ask at once.
 */

/** Promise (Portal): A key that was made in a portal is no credential of Gatehouse, also after a rotation. */

/** Promise (Portal) */

interface Answer {
  readonly status: number
  readonly text: string
  readonly json: unknown
}
const errorOf = ({ json, status }: Answer) => [
  status,
  (json as { readonly error?: string; message?: string }).error ?? (json as { message?: string }).message,
]

/** A link of a tenant, and the session that it becomes in a frame. */
const portalOf = Effect.fnUntraced(function* (tenant: Tenant, link: object) {
  const { send } = yield* TestServer
  const { token } = yield* must(send, "POST", "/v1/portal/link", { json: link, headers: tenant.headers })
  const opened = yield* send("POST", "/api/v0/sessions/portal", { json: { token, inFrame: true } })
  expect(opened.status, opened.text).toBe(200)
  const me = opened.json as { readonly token: string; readonly operations: ReadonlyArray<string> }
  const call = (method: string, path: string, json?: object, headers: object = {}) =>
    send(method, path, {
      ...(json === undefined ? {} : { json }),
      headers: { authorization: `Bearer ${me.token}`, ...headers },
    })
  return { opened, me, call }
})

const world = Effect.gen(function* () {
  const { send } = yield* TestServer
  const tenant = yield* makeTenant(adminToken)
  const { orgId } = tenant
  const { projectId } = yield* must(send, "POST", "/api/v0/projects", { json: { name: "p", orgId }, as: adminToken })
  const keys = `/api/v0/orgs/${orgId}/keys`
  const makeKey = (json: object) => must(send, "POST", keys, { json, as: adminToken })
  return { tenant, orgId, projectId: projectId as string, keys, makeKey, send }
})

layer(TestServer.layer(guarded), { excludeTestServices: true })("keys in a portal", (it) => {
  it.effect(
    "a holder makes, renames, rotates and deletes keys within what the link allows, and sees their use",
    function* () {
      const { keys, projectId, send, tenant } = yield* world
      const allowed = { external_id: "customer_42", project_id: projectId, permissions: ["files.*", "users.read"] }
      const { call, me } = yield* portalOf(tenant, { keys: allowed })
      expect(me).toMatchObject({
        principal: "portal",
        keys: { externalId: "customer_42", projectId, permissions: allowed.permissions, maxKeys: 5 },
      })
      const make = (more: object) => call("POST", "/api/v0/keys", { name: "k", projectId, ...more })
      const refused = [
        [yield* make({ permissions: ["users.write"] }), "Your keys may not have the permission users.write."],
        [yield* make({ permissions: ["*"] }), "Your keys may not have the permission *."],
        [yield* make({ permissions: ["users.*"] }), "Your keys may not have the permission users.*."],
        [
          yield* call("POST", keys, { name: "k" }),
          `Your portal makes keys of one project: send projectId ${projectId} to /api/v0/keys.`,
        ],
      ] as const
      for (const [answer, error] of refused) expect(errorOf(answer)).toEqual([403, error])
      const others: Record<string, unknown> = {
        credits: { remaining: 5 },
        rateLimit: { limit: 5, window: 60 },
        externalId: "customer_7",
        metadata: {},
        roles: ["r"],
        enabled: true,
        allowedIps: null,
      }
      for (const [name, value] of Object.entries(others)) {
        expect(errorOf(yield* make({ [name]: value })), name).toEqual([
          403,
          expect.stringContaining(`and not ${name}.`),
        ])
      }
      const made = (yield* make({ permissions: ["files.read"] })).json as { id: string; key: string }
      const whole = (yield* make({ name: "whole" })).json as { id: string }
      const at = `${keys}/${made.id}`
      for (const [name, value] of Object.entries({ ...others, permissions: ["files.write"], expiresAt: null })) {
        const answers = [
          yield* call("PATCH", at, { [name]: value }),
          yield* call("POST", `${at}/rotate`, { [name]: value }),
        ]
        for (const answer of answers) {
          expect(errorOf(answer), name).toEqual([403, expect.stringContaining(`and not ${name}.`)])
        }
      }
      yield* must(send, "PATCH", at, { json: { metadata: { plan: "secret" } }, as: adminToken })
      expect((yield* call("PATCH", at, { name: "renamed" })).json).toMatchObject({ name: "renamed", metadata: null })
      expect((yield* call("GET", at)).json).toMatchObject({ permissions: ["files.read"], metadata: null, projectId })
      const list = (yield* call("GET", keys)).json as { keys: ReadonlyArray<{ id: string; permissions: unknown }> }
      expect(list.keys.map(({ id, permissions }) => [id, permissions])).toEqual([
        [made.id, ["files.read"]],
        [whole.id, allowed.permissions],
      ])
      expect((yield* call("GET", `${at}/usage`)).json).toMatchObject({ usage: expect.any(Array) })
      const rotated = (yield* call("POST", `${at}/rotate`, { overlapSeconds: 0 })).json as { key: string; id: string }
      const used = { json: { key: rotated.key, permissions: ["files.read"] }, as: tenant.key }
      expect(yield* must(send, "POST", "/api/v0/keys/validate", used)).toMatchObject({ keyId: rotated.id, projectId })
      expect((yield* call("DELETE", `${keys}/${rotated.id}`)).json).toEqual({ deleted: true })
      expect((yield* send("POST", "/api/v0/keys/validate", used)).status).toBe(401)
    },
  )

  it.effect(
    "a holder neither sees nor changes a key of another holder or org, and not whether there is one",
    function* () {
      const { keys, makeKey, orgId, tenant } = yield* world
      const stranger = yield* makeTenant(adminToken)
      const { call } = yield* portalOf(tenant, { keys: { external_id: "customer_42" } })
      const own = (yield* makeKey({ name: "own", externalId: "customer_42" })) as { id: string }
      const others = [
        `${keys}/${(yield* makeKey({ name: "other", externalId: "customer_7" }))["id"] as string}`,
        `${keys}/${(yield* makeKey({ name: "nobody's" }))["id"] as string}`,
        `/api/v0/orgs/${stranger.orgId}/keys/${stranger.keyId}`,
        `/api/v0/orgs/${orgId}/keys/${stranger.keyId}`,
      ]
      const acts = [
        ["GET", "", undefined],
        ["GET", "/usage", undefined],
        ["PATCH", "", { name: "mine" }],
        ["DELETE", "", undefined],
        ["POST", "/rotate", {}],
      ] as const
      for (const [method, path, json] of acts) {
        const missing = yield* call(method, `${keys}/01KAHBMKZ3D2X7S5QN8W4V6R9T${path}`, json)
        expect(missing.status).toBe(404)
        for (const other of others.filter((other) => other.startsWith(keys))) {
          const answer = yield* call(method, other + path, json)
          expect([answer.status, answer.text], `${method} ${path}`).toEqual([404, missing.text])
        }
        expect((yield* call(method, others[2]! + path, json)).status).toBe(404)
      }
      const listed = (yield* call("GET", keys)).json as { keys: ReadonlyArray<{ id: string }> }
      expect(listed.keys.map(({ id }) => id)).toEqual([own.id])
      expect((yield* call("GET", `${keys}?externalId=customer_7`)).json).toEqual({ keys: [], nextCursor: null })
      expect((yield* call("GET", `/api/v0/orgs/${stranger.orgId}/keys`)).status).toBe(404)
      expect((yield* call("POST", `/api/v0/orgs/${stranger.orgId}/keys`, { name: "k" })).status).toBe(404)
      expect((yield* call("GET", `/api/v0/orgs/${orgId}/usage`)).status).toBe(403)
    },
  )

  it.effect("a holder has at most max_keys, and as many that were rotated, however many ask at once", function* () {
    const { keys, tenant } = yield* world
    const { call } = yield* portalOf(tenant, { keys: { external_id: "customer_42", max_keys: 3 } })
    const make = call("POST", keys, { name: "k" })
    const statuses = (yield* Effect.all(
      Array.from({ length: 20 }, () => make),
      { concurrency: "unbounded" },
    )).map(({ status }) => status)
    expect(statuses.filter((status) => status === 200)).toHaveLength(3)
    expect(statuses.filter((status) => status === 409)).toHaveLength(17)
    const all = ((yield* call("GET", keys)).json as { keys: ReadonlyArray<{ id: string }> }).keys
    expect(all).toHaveLength(3)
    for (const { id } of all) expect((yield* call("POST", `${keys}/${id}/rotate`, {})).status).toBe(200)
    expect(errorOf(yield* make)).toEqual([409, expect.stringMatching(/^You have as many keys as you may: 3, .+\.$/)])
    const live = ((yield* call("GET", keys)).json as { keys: ReadonlyArray<{ id: string; replacedBy: unknown }> }).keys
    expect(live).toHaveLength(6)
    const newest = live.find(({ replacedBy }) => replacedBy === null)!
    expect((yield* call("POST", `${keys}/${newest.id}/rotate`, {})).status).toBe(409)
    // A deleted one makes room.
    expect((yield* call("DELETE", `${keys}/${newest.id}`)).status).toBe(200)
    expect((yield* make).status).toBe(200)
  })

  // Seen failing: who rotates a key decided what its replacement is.
  it.effect("a rotation by somebody else does not change what a key is for", function* () {
    const { keys, makeKey, send, tenant } = yield* world
    const { call } = yield* portalOf(tenant, { keys: { external_id: "customer_42", permissions: ["*"] } })
    const rotated = (answer: Answer) => (answer.json as { readonly key: string }).key
    const held = (yield* call("POST", keys, { name: "k" })).json as { readonly id: string }
    const ofHolder = rotated(yield* send("POST", `${keys}/${held.id}/rotate`, { json: {}, as: adminToken }))
    expect(errorOf(yield* send("GET", keys, { as: ofHolder }))).toEqual([401, expect.stringContaining("in a portal")])
    const own = yield* makeKey({ name: "own", externalId: "customer_42" })
    const ofOrg = rotated(yield* call("POST", `${keys}/${own["id"]}/rotate`, {}))
    expect((yield* send("GET", keys, { as: ofOrg })).status).toBe(200)
  })

  it.effect("a key of a holder is no credential of Gatehouse, also after a rotation", function* () {
    const { keys, orgId, send, tenant } = yield* world
    const { call } = yield* portalOf(tenant, { keys: { external_id: "customer_42", permissions: ["*"] } })
    const made = (yield* call("POST", keys, { name: "k" })).json as { id: string; key: string }
    const rotated = (yield* call("POST", `${keys}/${made.id}/rotate`, {})).json as { key: string }
    for (const { key } of [made, rotated]) {
      const requests = [
        ["POST", "/v1/webhooks/list", {}],
        ["POST", "/v1/jobs/list", {}],
        ["POST", "/v1/portal/link", { keys: { external_id: "customer_7" } }],
        ["GET", `/api/v0/orgs/${orgId}`, undefined],
        ["GET", keys, undefined],
        ["POST", "/api/v0/sessions", undefined],
        ["POST", "/api/v0/keys/validate", { key }],
      ] as const
      for (const [method, path, json] of requests) {
        const answer = yield* send(method, path, { as: key, ...(json === undefined ? {} : { json }) })
        expect(errorOf(answer), path).toEqual([401, expect.stringContaining("made in a portal")])
      }
      expect((yield* send("POST", "/api/v0/keys/validate", { json: { key } })).status).toBe(200)
    }
  })

  it.effect(
    "only who manages the keys of an org lets a portal have some, and a portal has only what its link says",
    function* () {
      const { keys, orgId, projectId, send, tenant } = yield* world
      const stranger = yield* world
      const projectKey = yield* must(send, "POST", "/api/v0/keys", { json: { name: "k", projectId }, as: adminToken })
      const link = (json: object, as: string = tenant.key) => send("POST", "/v1/portal/link", { json, as })
      const asked = { keys: { external_id: "c" } }
      expect(errorOf(yield* link(asked, projectKey["key"] as string))).toEqual([403, expect.any(String)])
      expect((yield* link({}, projectKey["key"] as string)).status).toBe(200)
      expect(errorOf(yield* link({ webhooks: false }))).toEqual([400, expect.stringContaining("webhooks is false")])
      const foreign = { keys: { external_id: "c", project_id: stranger.projectId } }
      expect((yield* link(foreign)).status).toBe(404)
      expect((yield* link({ keys: { external_id: "c", max_keys: 101 } })).status).toBe(400)
      expect((yield* link({ keys: { external_id: "c", credits: 1 } })).status).toBe(400)

      const webhooksAlone = yield* portalOf(tenant, {})
      expect((yield* webhooksAlone.call("POST", "/v1/webhooks/list", {})).status).toBe(200)
      expect(errorOf(yield* webhooksAlone.call("GET", keys))).toEqual([403, expect.stringContaining("its link allows")])
      expect((yield* webhooksAlone.call("POST", keys, { name: "k" })).status).toBe(403)
      expect(webhooksAlone.me).toMatchObject({ keys: null })
      expect(webhooksAlone.me.operations.filter((id) => id.startsWith("keys."))).toEqual([
        "keys.validate",
        "keys.token",
      ])

      const keysAlone = yield* portalOf(tenant, { ...asked, webhooks: false })
      expect((yield* keysAlone.call("GET", keys)).status).toBe(200)
      expect((yield* keysAlone.call("POST", "/v1/webhooks/list", {})).status).toBe(403)
      expect((yield* keysAlone.call("GET", `/api/v0/live?orgId=${orgId}`)).status).toBe(403)
      expect(keysAlone.me.operations).not.toContain("webhooks.list")
      expect(keysAlone.me.operations).not.toContain("live.follow")
    },
  )

  it.effect(
    "a session in a frame is a bearer token, without a cookie, and ends with the key that made its link",
    function* () {
      const { makeKey, send, tenant } = yield* world
      const made = (yield* makeKey({ name: "backend" })) as { id: string; key: string }
      const { call, me, opened } = yield* portalOf({ ...tenant, headers: { "x-api-key": made.key } } as Tenant, {})
      expect(opened.json).toMatchObject({ csrfToken: null })
      expect((opened as unknown as { headers: object }).headers).not.toHaveProperty("set-cookie")
      expect((yield* call("GET", "/api/v0/sessions/current")).json).toMatchObject({
        principal: "portal",
        csrfToken: null,
      })
      // A change needs no token of its own, because the header is never sent by itself.
      expect((yield* call("POST", "/v1/webhooks/list", {})).status).toBe(200)
      // Sessions of the console are cookies alone.
      const { cookie } = yield* signIn(made.key)
      const stolen = { headers: { authorization: `Bearer ${cookie.split("=")[1]}` } }
      expect((yield* send("GET", "/api/v0/sessions/current", stolen)).status).toBe(401)
      yield* must(send, "DELETE", `/api/v0/orgs/${tenant.orgId}/keys/${made.id}`, { as: adminToken })
      const ended = [yield* call("GET", "/api/v0/sessions/current"), yield* call("POST", "/v1/webhooks/list", {})]
      for (const answer of ended) expect(errorOf(answer)).toEqual([401, "The session has ended: sign in again."])
      expect((yield* send("GET", "/api/v0/sessions/current", { as: `${me.token.slice(0, -1)}x` })).status).toBe(401)
    },
  )
})
