import { expect } from "@effect/vitest"
import { Effect } from "effect"
import type { IncomingHttpHeaders } from "node:http"
import { fromRandomBytes } from "#src/domain/keys/ApiKey.ts"
import { layer } from "../../support/it.ts"
import { adminToken, guarded, onPostgres, TestServer } from "../../support/server.ts"
import type { Send, WireRequest } from "../../support/wire.ts"
import { bodyOf, faultOfError, must, type OperationName, operations, pathOf } from "../operations.ts"

/**
 * Promise (Nothing secret in logs): No span has a query, of a request to the service or of one that it sends. Every
 * response has `nosniff`.
 */

/** A credential of every kind, and resources to use them on. */
const world = Effect.fnUntraced(function* (send: Send, as: string | undefined) {
  const create = (path: string, json: object) => must(send, "POST", `/api/v0${path}`, { json, as })
  // The first project makes the default org, for projects without an org.
  yield* create("/projects", { name: "default" })
  const org = yield* create("/orgs", { name: "A" })
  const otherOrg = yield* create("/orgs", { name: "B" })
  const project = yield* create("/projects", { name: "a", orgId: org["orgId"] })
  const orgKey = yield* create(`/orgs/${org["orgId"]}/keys`, { name: "a" })
  const otherKey = yield* create(`/orgs/${otherOrg["orgId"]}/keys`, { name: "b" })
  const projectKey = yield* create("/keys", { name: "a", projectId: project["projectId"] })
  const deleted = yield* create(`/orgs/${org["orgId"]}/keys`, { name: "deleted" })
  yield* must(send, "DELETE", `/api/v0/orgs/${org["orgId"]}/keys/${deleted["id"]}`, { as })
  const expiresAt = new Date(Date.now() + 60_000).toISOString()
  const expired = yield* create(`/orgs/${org["orgId"]}/keys`, { name: "expired", expiresAt })
  return {
    ids: { orgId: org["orgId"]!, projectId: project["projectId"]!, key: orgKey["key"]! },
    keys: {
      org: orgKey["key"]!,
      other: otherKey["key"]!,
      project: projectKey["key"]!,
      deleted: deleted["key"]!,
      expired: expired["key"]!,
    },
  }
})
type World = Effect.Success<ReturnType<typeof world>>

const bearer = (token: string): WireRequest => ({ headers: { authorization: `Bearer ${token}` } })
const apiKey = (token: string): WireRequest => ({ headers: { "x-api-key": token } })
const mistyped = (key: string) => key.slice(0, -1) + (key.endsWith("0") ? "1" : "0")

const neverMade = fromRandomBytes(Uint8Array.from({ length: 48 }, (_, i) => i))!

/** The credentials that a request can have. */
const callers = {
  "no credential": () => ({}),
  "a wrong bearer token": () => bearer("wrong-0123456789abcdef"),
  "the administrator's token, one character less": () => bearer(adminToken.slice(0, -1)),
  "a mistyped key": ({ keys }) => bearer(mistyped(keys.org)),
  "a well-formed key that does not exist": () => bearer(neverMade),
  "an Authorization that is not Bearer": ({ keys }) => ({ headers: { authorization: `Basic ${keys.org}` } }),
  "an Authorization without a token": () => ({ headers: { authorization: "Bearer " } }),
  "an Authorization of two tokens": ({ keys }) => ({ headers: { authorization: `Bearer ${keys.org} ${keys.org}` } }),
  "an empty Authorization": () => ({ headers: { authorization: "" } }),
  "a wrong x-api-key": () => apiKey("wrong"),
  "an empty x-api-key": () => apiKey(""),
  "the administrator's token as x-api-key": () => apiKey(adminToken),
  "a deleted key": ({ keys }) => bearer(keys.deleted),
  "an expired key": ({ keys }) => bearer(keys.expired),
  "two credentials that differ": ({ keys }) => ({
    headers: { authorization: `Bearer ${keys.org}`, "x-api-key": keys.project },
  }),
  "the administrator": () => bearer(adminToken),
  "the administrator, in lower case": () => ({ headers: { authorization: `bearer ${adminToken}` } }),
  "an org key, of the org": ({ keys }) => bearer(keys.org),
  "an org key, of the org, as x-api-key": ({ keys }) => apiKey(keys.org),
  "an org key, of the org, in both headers": ({ keys }) => ({
    headers: { authorization: `Bearer ${keys.org}`, "x-api-key": keys.org },
  }),
  "an org key, of another org": ({ keys }) => bearer(keys.other),
  "a project key, of the project": ({ keys }) => bearer(keys.project),
} satisfies Record<string, (world: World) => WireRequest>
type CallerName = keyof typeof callers

type Kind = "administrator" | "org" | "other" | "project" | "anonymous" | "refused"
const kindOf = (caller: CallerName): Kind => {
  if (caller.startsWith("the administrator") && !/less|x-api-key/.test(caller)) return "administrator"
  if (caller.startsWith("an org key, of the org")) return "org"
  if (caller === "an org key, of another org") return "other"
  if (caller.startsWith("a project key")) return "project"
  return caller === "no credential" ? "anonymous" : "refused"
}

type Row = Readonly<Record<"administrator" | "org" | "other" | "project", number>>
const management: Row = { administrator: 200, org: 200, other: 404, project: 403 }
const administrators: Row = { administrator: 200, org: 403, other: 403, project: 403 }
const own: Row = { administrator: 200, org: 200, other: 200, project: 403 }

/** Contract 2, in guarded mode: the valid credentials that have access. */
const table: Record<OperationName, Row> = {
  createProjectKey: management,
  createOrgKey: administrators,
  listKeys: management,
  deleteKey: management,
  rotateKey: management,
  updateKey: management,
  getKey: management,
  keyUsage: management,
  orgUsage: management,
  listAudit: management,
  validateKey: { administrator: 200, org: 200, other: 200, project: 200 },
  createOrg: administrators,
  listOrgs: own,
  getOrg: management,
  updateOrg: administrators,
  createProject: own,
  listProjects: own,
  getProject: management,
  updateProject: management,
  listDeployments: management,
  register: { administrator: 401, org: 401, other: 401, project: 401 },
}

const expected = (mode: "guarded" | "open", operation: OperationName, caller: CallerName) => {
  const kind = kindOf(caller)
  if (operation === "register") return 401
  // Open mode has no administrator, so that token is invalid there.
  if (kind === "refused" || (kind === "administrator" && mode === "open")) return 401
  if (mode === "open") return 200
  if (kind === "anonymous") return operation === "validateKey" ? 200 : 401
  return table[operation][kind]
}

const nextToken = "next-administrator-of-the-tests-0123456789"

// Seen failing when the two were one token with a comma in it.
layer(TestServer.layer({ ADMIN_TOKEN: `${adminToken}, ${nextToken}` }), { excludeTestServices: true })(
  "several administrator tokens",
  (it) => {
    it.effect("are all valid, in the router and before it, and no other text is", function* () {
      const { logs, routed, send, spans } = yield* TestServer
      const listed = (as: string) => Effect.map(send("GET", "/api/v0/orgs", { as }), ({ status }) => status)
      for (const as of [adminToken, nextToken]) expect(yield* listed(as)).toBe(200)
      const asKey = yield* send("GET", "/api/v0/orgs", { headers: { "x-api-key": adminToken } })
      expect([asKey.status, asKey.text]).toEqual([401, expect.stringContaining("The administrator's token is sent as")])
      const both = `${adminToken},${nextToken}`
      const wrong = [both, both.replace(",", ", "), nextToken.slice(0, -1), `${nextToken}0`, `x${nextToken.slice(1)}`]
      for (const as of wrong) expect(yield* listed(as), as).toBe(401)
      expect((yield* send("GET", "/api/v0/orgs")).status).toBe(401)

      const { orgId } = yield* must(send, "POST", "/api/v0/orgs", { json: { name: "Acme" }, as: adminToken })
      const { key } = yield* must(send, "POST", `/api/v0/orgs/${orgId}/keys`, { json: { name: "k" }, as: nextToken })
      const { projectId } = yield* must(send, "POST", "/api/v0/projects", {
        json: { name: "docs", orgId },
        as: adminToken,
      })
      const made = yield* must(send, "POST", "/api/v0/keys", { json: { name: "k", projectId }, as: adminToken })
      const byProject = yield* send("GET", `/api/v0/orgs/${orgId}/keys`, { as: made["key"]! })
      expect(byProject.text).toContain("send a key of its org, or the administrator's token")
      const routedBefore = routed()
      for (const as of [adminToken, nextToken]) {
        yield* must(send, "POST", "/api/v0/keys/validate", { json: { key }, as })
      }
      expect(routed()).toBe(routedBefore)
      for (const token of [adminToken, nextToken]) expect(logs() + spans()).not.toContain(token)
      // Seen failing: url.query and url.full had it.
      yield* send("GET", "/api/v0/projects?limit=1&cursor=a-name-of-a-tenant", { as: nextToken })
      expect(spans()).toContain("/api/v0/projects")
      expect(logs() + spans()).not.toContain("a-name-of-a-tenant")
    })
  },
)

for (const mode of ["guarded", "open"] as const) {
  layer(TestServer.layer(onPostgres(mode === "guarded" ? guarded : {})), { excludeTestServices: true })(
    `${mode} mode`,
    (it) => {
      const as = mode === "guarded" ? adminToken : undefined
      let made: World | undefined
      /** Created once; the clock then passes the expiry of one key. */
      const shared = Effect.gen(function* () {
        const { send, advance } = yield* TestServer
        if (made === undefined) {
          made = yield* world(send, as)
          yield* advance("2 minutes")
        }
        return made
      })

      for (const name of Object.keys(operations) as Array<OperationName>) {
        const operation = operations[name]
        it.effect(`${operation.method} ${operation.path}`, function* () {
          const { send } = yield* TestServer
          const there = yield* shared
          const statuses: Record<string, number> = {}
          for (const caller of Object.keys(callers) as Array<CallerName>) {
            // Each deletion needs a new key.
            const key = yield* must(send, "POST", `/api/v0/orgs/${there.ids.orgId}/keys`, { json: { name: "k" }, as })
            const json = bodyOf(name, there.ids)
            const answer = yield* send(operation.method, pathOf(operation, { ...there.ids, id: key["id"]! }), {
              ...callers[caller](there),
              ...(json === undefined ? {} : { json }),
            })
            statuses[caller] = answer.status
            if (answer.status !== 200) expect(faultOfError(answer), caller).toBeUndefined()
          }
          const wanted = Object.keys(callers).map((caller) => [caller, expected(mode, name, caller as CallerName)])
          expect(statuses).toEqual(Object.fromEntries(wanted))
        })
      }

      if (mode === "open") {
        it.effect("no credential is needed, and the health of the service checks none", function* () {
          const { send } = yield* TestServer
          for (const path of ["/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"]) {
            expect((yield* send("GET", path)).status, path).toBe(200)
          }
        })
        return
      }

      it.effect("an org key reaches its own org only, under any name of another", function* () {
        const { send } = yield* TestServer
        const { ids, keys } = yield* shared
        const mine = yield* must(send, "GET", "/api/v0/orgs", { as: keys.other })
        expect(mine["orgs"]).toHaveLength(1)
        const projects = yield* must(send, "GET", "/api/v0/projects", { as: keys.other })
        expect(JSON.stringify(projects)).not.toContain(ids.orgId)
        const json = { name: "stolen", orgId: ids.orgId }
        expect((yield* send("POST", "/api/v0/projects", { json, as: keys.other })).status).toBe(403)
        const nowhere = { name: "stolen", orgId: "01KAHBMKZ3D2X7S5QN8W4V6R9T" }
        expect((yield* send("POST", "/api/v0/projects", { json: nowhere, as: keys.other })).status).toBe(403)
        const created = yield* must(send, "POST", "/api/v0/projects", { json: { name: "own" }, as: keys.org })
        expect(created["orgId"]).toBe(ids.orgId)
      })

      it.effect("another tenant's resource and a missing one get the same bytes", function* () {
        const { send } = yield* TestServer
        const { ids, keys } = yield* shared
        const foreignKey = yield* must(send, "POST", `/api/v0/orgs/${ids.orgId}/keys`, { json: { name: "k" }, as })
        const [ownOrg] = (yield* must(send, "GET", "/api/v0/orgs", { as: keys.other }))["orgs"] as unknown as [
          { orgId: string },
        ]
        const nobody = "01KAHBMKZ3D2X7S5QN8W4V6R9T"
        const cases: ReadonlyArray<readonly [string, (id: string) => string, string, ((id: string) => object)?]> = [
          ["POST", () => "/api/v0/keys", ids.projectId, (projectId) => ({ name: "k", projectId })],
          ["GET", (id) => `/api/v0/orgs/${id}/keys`, ids.orgId],
          ["DELETE", (id) => `/api/v0/orgs/${id}/keys/${foreignKey["id"]}`, ids.orgId],
          ["DELETE", (id) => `/api/v0/orgs/${ownOrg.orgId}/keys/${id}`, foreignKey["id"]!],
          ["POST", (id) => `/api/v0/orgs/${id}/keys/${foreignKey["id"]}/rotate`, ids.orgId, () => ({})],
          ["POST", (id) => `/api/v0/orgs/${ownOrg.orgId}/keys/${id}/rotate`, foreignKey["id"]!, () => ({})],
          ["GET", (id) => `/api/v0/orgs/${id}/audit`, ids.orgId],
          ["GET", (id) => `/api/v0/orgs/${id}`, ids.orgId],
          ["GET", (id) => `/api/v0/projects?orgId=${id}`, ids.orgId],
          ["GET", (id) => `/api/v0/projects/${id}`, ids.projectId],
          ["PATCH", (id) => `/api/v0/projects/${id}`, ids.projectId, () => ({ name: "taken over" })],
          ["GET", (id) => `/api/v0/projects/${id}/deployments`, ids.projectId],
        ]
        const bare = (headers: IncomingHttpHeaders) => ({ ...headers, "x-request-id": "", date: "" })
        for (const [method, path, id, body] of cases) {
          const ask = (id: string) =>
            send(method, path(id), { as: keys.other, ...(body === undefined ? {} : { json: body(id) }) })
          const foreign = yield* ask(id)
          const missing = yield* ask(nobody)
          expect(foreign.status, `${method} ${path(id)}`).toBe(404)
          expect(missing.status).toBe(404)
          expect(foreign.text).toBe(missing.text)
          expect(bare(foreign.headers)).toEqual(bare(missing.headers))
        }
        expect((yield* must(send, "GET", `/api/v0/projects/${ids.projectId}`, { as }))["name"]).toBe("docs")
        yield* must(send, "POST", "/api/v0/keys/validate", { json: { key: foreignKey["key"] } })
      })
    },
  )
}

// Seen failing: nothing limited guesses of the administrator's token, and no line of the log told of them.
layer(TestServer.layer({ ...guarded, METRICS_TOKEN: "metrics-token-of-the-tests-0123456789", TRUST_PROXY: "1" }), {
  excludeTestServices: true,
})("guesses of the administrator's token", (it) => {
  /**
   * Promise (Credentials): Of credentials that are no keys, a network may send 600 wrong ones in a minute; then
   * further ones are a 429, at each door by itself, and the log says so once a minute. The right one always passes, as
   * do keys and other networks.
   */
  it.effect(
    "are a 429 after 600 in a minute from a network, at each door by itself; the right one always passes",
    function* () {
      const { logs, send } = yield* TestServer
      const from = (address: string, as: string, path = "/api/v0/orgs", method = "GET") =>
        send(method, path, { as, headers: { "x-forwarded-for": address }, ...(method === "GET" ? {} : { json: {} }) })
      const near = "2001:db8:1:2::1"
      const { orgId } = yield* must(send, "POST", "/api/v0/orgs", { json: { name: "Acme" }, as: adminToken })
      const made = yield* must(send, "POST", `/api/v0/orgs/${orgId}/keys`, { json: { name: "k" }, as: adminToken })
      const metricsToken = "metrics-token-of-the-tests-0123456789"
      const doors = [
        [
          ["/api/v0/orgs", "GET"],
          ["/v1/jobs/list", "POST"],
          ["/api/v0/keys/validate", "POST"],
        ],
        [["/api/v0/sessions", "POST"]],
        [["/metrics", "GET"]],
      ] as const
      for (const [n, door] of doors.entries()) {
        const [[path, method]] = door
        const others = doors.slice(n + 1).flat()
        for (const [other, how] of others) expect((yield* from(near, "guess", other, how)).status).toBe(401)
        yield* Effect.forEach(
          Array.from({ length: 600 }, (_, each) => each),
          (each) => from(`2001:db8:1:2::${each}`, `guess-${each}`, ...door[each % door.length]!),
          { concurrency: 20 },
        )
        for (const [where, how] of door) {
          const { headers, json, status } = yield* from(near, "guess", where, how)
          expect([status, (json as { code: string }).code], where).toEqual([429, "too_many_requests"])
          expect(Number(headers["retry-after"]), where).toBeGreaterThan(0)
          expect((yield* from(near, adminToken, where, how)).status, where).not.toBe(429)
        }
        expect((yield* from("2001:db8:1:3::1", "guess", path, method)).status).toBe(401)
      }
      expect((yield* from(near, metricsToken, "/metrics")).status).toBe(200)
      expect((yield* from(near, made["key"]!, `/api/v0/orgs/${orgId}/keys`)).status).toBe(200)
      expect((yield* from("2001:db8:1:3::1", adminToken)).status).toBe(200)
      const lines = logs()
        .split("\n")
        .filter((line) => line.includes("neither a key nor the administrator's token"))
      expect(lines).toHaveLength(1)
      expect(lines[0]).toContain("2001:db8:1:2::/64")
      expect(logs()).not.toContain("guess-1")
    },
  )
})
