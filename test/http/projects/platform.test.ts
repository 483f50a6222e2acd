import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { layer } from "../../support/it.ts"
import { adminToken, embedded, guarded, onPostgres, TestServer } from "../../support/server.ts"
import type { Send } from "../../support/wire.ts"
import { must } from "../operations.ts"

type Fields = Readonly<Record<string, string>>

/** Sends as the administrator. */
const administrator = Effect.map(TestServer, ({ send }) => {
  const call =
    (method: string): ((path: string, json?: object) => Effect.Effect<Fields, Error>) =>
    (path, json) =>
      must(send, method, `/api/v0${path}`, { as: adminToken, ...(json === undefined ? {} : { json }) })
  return { get: call("GET"), post: call("POST"), patch: call("PATCH"), remove: call("DELETE"), send }
})

/** All items of a list, page by page, and the sizes of the pages. */
const everything = Effect.fnUntraced(function* (send: Send, path: string, field: string, limit: number) {
  const items: Array<Fields> = []
  const sizes: Array<number> = []
  let cursor: string | null = ""
  while (cursor !== null) {
    const query: string = `limit=${limit}${cursor === "" ? "" : `&cursor=${cursor}`}`
    const page: Fields = yield* must(send, "GET", `${path}${path.includes("?") ? "&" : "?"}${query}`, {
      as: adminToken,
    })
    const found = page[field] as unknown as ReadonlyArray<Fields>
    items.push(...found)
    sizes.push(found.length)
    cursor = page["nextCursor"] as string | null
  }
  return { items, sizes }
})

const invalid = Effect.fnUntraced(function* (send: Send, key: unknown, as: string | undefined = adminToken) {
  const answer = yield* send("POST", "/api/v0/keys/validate", { json: { key }, as })
  expect(answer.status, String(key)).toBe(401)
  return answer.text
})

const servers = {
  "the embedded database": TestServer.layer({ ...guarded, ...embedded }),
  PostgreSQL: TestServer.layer(onPostgres(guarded)),
}

for (const [database, server] of Object.entries(servers)) {
  layer(server, { excludeTestServices: true })(`the platform interface on ${database}`, (it) => {
    it.effect("a key is created, shown once, validated, listed without its secret, and deleted", function* () {
      const { get, post, remove, send } = yield* administrator
      const { orgId } = yield* post("/orgs", { name: "Acme" })
      const { projectId } = yield* post("/projects", { name: "docs", orgId })
      const made = yield* post("/keys", { name: "ci", projectId })
      expect(made["name"]).toBe("ci")
      expect(made["key"]).toMatch(/^svc_[0-9A-Za-z]{42}$/)
      expect(made["prefix"]).toBe(made["key"]!.slice(0, 12))
      expect(yield* post("/keys/validate", { key: made["key"] })).toEqual({ keyId: made["id"], orgId, projectId })

      const ofOrg = yield* post(`/orgs/${orgId}/keys`, { name: "gateway" })
      expect(yield* post("/keys/validate", { key: ofOrg["key"] })).toEqual({
        keyId: ofOrg["id"],
        orgId,
        projectId: "",
      })

      const list = yield* get(`/orgs/${orgId}/keys`)
      expect(list["keys"]).toMatchObject([
        { id: made["id"], name: "ci", prefix: made["prefix"], projectId, expiresAt: null },
        { id: ofOrg["id"], name: "gateway", projectId: null, expiresAt: null },
      ])
      expect(JSON.stringify(list)).not.toContain(made["key"]!.slice(12))

      expect(yield* remove(`/orgs/${orgId}/keys/${made["id"]}`)).toEqual({ deleted: true })
      yield* invalid(send, made["key"])
      const again = yield* send("DELETE", `/api/v0/orgs/${orgId}/keys/${made["id"]}`, { as: adminToken })
      expect([again.status, again.json]).toEqual([404, { error: "The org has no such key.", code: "not_found" }])
      expect((yield* get(`/orgs/${orgId}/keys`))["keys"]).toHaveLength(1)
    })

    it.effect("every invalid key gets the same answer, for any reason", function* () {
      const { post, remove, send } = yield* administrator
      const { advance } = yield* TestServer
      const { orgId } = yield* post("/orgs", { name: "Acme" })
      const { key, id } = yield* post(`/orgs/${orgId}/keys`, { name: "deleted" })
      yield* remove(`/orgs/${orgId}/keys/${id}`)
      const expiresAt = new Date(Date.now() + 600_000).toISOString()
      const expired = yield* post(`/orgs/${orgId}/keys`, { name: "expired", expiresAt })
      const listed = yield* must(send, "GET", `/api/v0/orgs/${orgId}/keys`, { as: expired["key"] })
      expect(listed["keys"]).toMatchObject([{ expiresAt }])
      yield* post("/keys/validate", { key: expired["key"] })
      yield* advance("15 minutes")
      const answers = new Set<string>()
      const unknown = ["x", "svc_", `svc_${"0".repeat(42)}`, ` ${key}`, key!.toLowerCase(), key!.replace("svc_", "sk_")]
      for (const bad of [key, expired["key"], ...unknown, "svc_\u{1f4da}", "a".repeat(4_000)]) {
        answers.add(yield* invalid(send, bad))
      }
      expect([...answers]).toEqual(['{"error":"The key is not valid.","code":"unauthorized"}'])
    })

    it.effect("keys cannot be created for missing resources, or deleted through another org", function* () {
      const { post, send } = yield* administrator
      const { orgId } = yield* post("/orgs", { name: "A" })
      const other = yield* post("/orgs", { name: "B" })
      const { id, key } = yield* post(`/orgs/${orgId}/keys`, { name: "k" })
      const status = (method: string, path: string, json?: object) =>
        Effect.map(send(method, `/api/v0${path}`, { as: adminToken, json }), (answer) => answer.status)
      expect(yield* status("POST", "/keys", { name: "k", projectId: "nobody" })).toBe(404)
      expect(yield* status("POST", "/orgs/nobody/keys", { name: "k" })).toBe(404)
      expect(yield* status("POST", "/projects", { name: "k", orgId: "nobody" })).toBe(404)
      expect(yield* status("GET", "/orgs/nobody/keys")).toBe(404)
      expect(yield* status("GET", "/projects?orgId=nobody")).toBe(404)
      expect(yield* status("DELETE", `/orgs/${other["orgId"]}/keys/${id}`)).toBe(404)
      yield* post("/keys/validate", { key })
    })

    it.effect("lists return each item once, in order, at any page size", function* () {
      const { post, send } = yield* administrator
      const { orgId } = yield* post("/orgs", { name: "Pages" })
      const made: Array<Fields> = []
      for (let n = 0; n < 7; n++) made.push(yield* post("/projects", { name: `p${n}`, orgId }))
      const keys: Array<Fields> = []
      for (let n = 0; n < 7; n++) keys.push(yield* post(`/orgs/${orgId}/keys`, { name: `k${n}` }))
      for (const limit of [1, 3, 7, 8, 100]) {
        const sizes = [...Array<number>(Math.ceil(7 / limit) - 1).fill(limit), 7 % limit || Math.min(limit, 7)]
        const projects = yield* everything(send, `/api/v0/projects?orgId=${orgId}`, "projects", limit)
        expect(projects.items).toEqual(made)
        expect(projects.sizes).toEqual(sizes)
        const listed = yield* everything(send, `/api/v0/orgs/${orgId}/keys`, "keys", limit)
        expect(listed.items.map(({ id }) => id)).toEqual(keys.map(({ id }) => id))
      }
      const orgs = yield* everything(send, "/api/v0/orgs", "orgs", 2)
      expect(new Set(orgs.items.map(({ orgId }) => orgId)).size).toBe(orgs.items.length)
      expect(orgs.items.at(-1)).toMatchObject({ orgId, name: "Pages" })
      // A list without a limit has fifty.
      for (let n = 7; n < 51; n++) yield* post("/projects", { name: `p${n}`, orgId })
      const { projects, nextCursor } = yield* must(send, "GET", `/api/v0/projects?orgId=${orgId}`, { as: adminToken })
      expect([projects!.length, nextCursor]).toEqual([50, (projects as unknown as Array<Fields>)[49]!["projectId"]])
      const empty = yield* post("/orgs", { name: "Empty" })
      expect(yield* everything(send, `/api/v0/projects?orgId=${empty["orgId"]}`, "projects", 5)).toEqual({
        items: [],
        sizes: [0],
      })
    })

    it.effect("a project is changed field by field: a missing field stays, null clears", function* () {
      const { get, patch, post, send } = yield* administrator
      const { orgId } = yield* post("/orgs", { name: "o" })
      const created = yield* post("/projects", { name: "docs", orgId })
      const path = `/projects/${created["projectId"]}`
      const named = yield* patch(path, { name: "handbook" })
      expect(named).toEqual({ ...created, name: "handbook", updatedAt: named["updatedAt"] })
      expect(named["updatedAt"]! >= created["updatedAt"]!).toBe(true)
      const link = { hostOwner: "Octo-Org", hostRepo: "docs.site" }
      const full = yield* patch(path, { defaultBranch: "main", subdomain: "handbook", ...link })
      expect(full).toMatchObject({ name: "handbook", defaultBranch: "main", subdomain: "handbook", ...link })
      expect(yield* get(path)).toEqual(full)
      const emptied = yield* patch(path, { defaultBranch: null, hostOwner: null, hostRepo: null })
      expect(emptied).toMatchObject({ defaultBranch: null, hostOwner: null, hostRepo: null, subdomain: "handbook" })

      yield* patch(path, link)
      const other = `/projects/${(yield* post("/projects", { name: "other", orgId }))["projectId"]}`
      const refused: ReadonlyArray<readonly [object, number]> = [
        [{ subdomain: "handbook" }, 409],
        [{ hostOwner: "octo-org", hostRepo: "DOCS.SITE" }, 409],
        [{ name: "changed", subdomain: "handbook" }, 409],
        [{}, 400],
        [{ unknown: 1 }, 400],
        [{ hostOwner: "octo-org" }, 400],
        [{ hostOwner: "octo-org", hostRepo: null }, 400],
        [{ hostOwner: "a/b", hostRepo: "c" }, 400],
        [{ subdomain: "-a" }, 400],
        [{ subdomain: "a".repeat(64) }, 400],
        [{ defaultBranch: "" }, 400],
      ]
      for (const [json, status] of refused) {
        const answer = yield* send("PATCH", `/api/v0${other}`, { json, as: adminToken })
        expect(answer.status, JSON.stringify(json)).toBe(status)
      }
      expect(yield* get(other)).toMatchObject({ name: "other", subdomain: null, hostOwner: null })
    })

    it.effect(
      "without a credential 600 bad keys a minute are allowed; requests with a credential have no limit",
      function* () {
        const { post, send } = yield* administrator
        const { advance } = yield* TestServer
        const { orgId } = yield* post("/orgs", { name: "Acme" })
        const { key } = yield* post(`/orgs/${orgId}/keys`, { name: "k" })
        const ask = (value: unknown, as?: string) => send("POST", "/api/v0/keys/validate", { json: { key: value }, as })
        const statuses = yield* Effect.forEach(Array(600).fill("bad"), (bad) => ask(bad), { concurrency: 20 })
        expect(new Set(statuses.map(({ status }) => status))).toEqual(new Set([401]))
        const limited = yield* ask("bad")
        expect([limited.status, Object.keys(limited.json as object)]).toEqual([429, ["error", "code"]])
        expect(limited.json).toMatchObject({ code: "too_many_requests" })
        expect(Number(limited.headers["retry-after"])).toBeGreaterThan(0)
        expect(Number(limited.headers["retry-after"])).toBeLessThanOrEqual(60)
        // The address of the connection counts, because there is no proxy here.
        const forged = { "x-forwarded-for": "203.0.113.9" }
        const behind = yield* send("POST", "/api/v0/keys/validate", { json: { key: "bad" }, headers: forged })
        expect(behind.status).toBe(429)
        expect((yield* ask("bad", adminToken)).status).toBe(401)
        expect((yield* ask("bad", key)).status).toBe(401)
        yield* advance("61 seconds")
        expect((yield* ask("bad")).status).toBe(401)
        expect((yield* ask(key)).status).toBe(200)
      },
    )
  })
}
