import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { layer } from "../../support/it.ts"
import { adminToken, embedded, guarded, onPostgres, TestServer } from "../../support/server.ts"
import { until } from "../../support/wait.ts"
import { must } from "../operations.ts"

const as = adminToken

/** An org, and requests about its keys. */
const makeOrg = Effect.gen(function* () {
  const { send } = yield* TestServer
  const { orgId } = yield* must(send, "POST", "/api/v0/orgs", { json: { name: "o" }, as })
  const path = `/api/v0/orgs/${orgId}/keys`
  const validate = (key: string, use: object = {}) =>
    Effect.map(send("POST", "/api/v0/keys/validate", { json: { key, ...use }, as }), ({ headers, json, status }) => ({
      status,
      ...(json as { code?: string; error?: string; credits?: number | null }),
      retryAfter: headers["retry-after"],
    }))
  const get = <A>(url: string) => Effect.map(send("GET", url, { as }), ({ json }) => json as A)
  return {
    get,
    orgId,
    path,
    validate,
    send,
    create: (settings: object) => must(send, "POST", path, { json: { name: "k", ...settings }, as }),
    update: (id: string, change: object) => send("PATCH", `${path}/${id}`, { json: change, as }),
    statuses: (key: string, times: number) =>
      Effect.map(Effect.replicateEffect(validate(key), times), (all) => all.map(({ status }) => status)),
  }
})

for (const [name, environment] of [
  ["embedded", { ...guarded, ...embedded }],
  ["postgres", onPostgres(guarded)],
] as const) {
  layer(TestServer.layer(environment), { excludeTestServices: true })(`keys of a gateway, ${name}`, (it) => {
    it.effect("permissions: a 403 names the first missing permission, and takes no credits", function* () {
      const { create, validate } = yield* makeOrg
      const { key } = yield* create({ permissions: ["models.*", "files.read"], credits: { remaining: 2 } })
      const refused = yield* validate(key!, { permissions: ["models.a", "files.write", "x"] })
      expect(refused).toMatchObject({ status: 403, code: "forbidden" })
      expect(refused.error).toContain("files.write")
      expect(yield* validate(key!, { permissions: ["models.a", "files.read"], details: true })).toMatchObject({
        status: 200,
        credits: 1,
      })
    })

    it.effect(
      "prefixes: new keys have the prefix of their project, else of their org; old keys stay valid",
      function* () {
        const { create, orgId, path, send, validate } = yield* makeOrg
        const { id, key } = yield* create({})
        const { projectId } = yield* must(send, "POST", "/api/v0/projects", { json: { name: "p", orgId }, as })
        const change = (what: string, keyPrefix: string | null) =>
          must(send, "PATCH", `/api/v0/${what}`, { json: { keyPrefix }, as })
        const ofProject = Effect.map(
          must(send, "POST", "/api/v0/keys", { json: { name: "k", projectId }, as }),
          (made) => made["key"]!,
        )
        const rotate = must(send, "POST", `${path}/${id}/rotate`, { json: {}, as })
        expect(yield* change(`orgs/${orgId}`, "acme_live")).toMatchObject({ keyPrefix: "acme_live" })
        const keys = [(yield* create({}))["key"]!, yield* ofProject]
        expect(yield* change(`projects/${projectId}`, "acme_docs")).toMatchObject({ keyPrefix: "acme_docs" })
        keys.push(yield* ofProject)
        const rotated = yield* rotate
        expect(rotated["prefix"]).toBe(rotated["key"]!.slice(0, 18))
        keys.push(rotated["key"]!, (yield* create({}))["key"]!)
        const live = /^acme_live_[0-9A-Za-z]{42}$/
        const shapes = [live, live, /^acme_docs_[0-9A-Za-z]{42}$/, live, live]
        for (const [n, shape] of shapes.entries()) expect(keys[n]).toMatch(shape)
        // Valid, from the database and from memory; and as credentials, also in x-api-key.
        for (const made of [...keys, ...keys, key!]) expect((yield* validate(made)).status).toBe(200)
        expect((yield* send("GET", path, { as: keys[0]! })).status).toBe(200)
        expect((yield* send("GET", path, { headers: { "x-api-key": keys[0]! } })).status).toBe(200)
        const mistyped = keys[0]!.replace("acme", "acne")
        for (const other of [mistyped, `${keys[0]}0`, keys[0]!.slice(0, -1)]) {
          expect((yield* validate(other)).status).toBe(401)
        }
        yield* change(`projects/${projectId}`, null)
        expect(yield* change(`orgs/${orgId}`, null)).toMatchObject({ keyPrefix: null })
        expect(yield* ofProject).toMatch(/^svc_/)
        const refused = yield* send("PATCH", `/api/v0/projects/${projectId}`, { json: { keyPrefix: "A" }, as })
        expect([refused.status, (refused.json as { error: string }).error]).toEqual([
          400,
          expect.stringMatching(/^keyPrefix .*3 to 24 lower-case letters/),
        ])
      },
    )

    it.effect("roles: a change counts for every key with the role at once, from memory too", function* () {
      const { create, get, orgId, path, send, update, validate } = yield* makeOrg
      const roles = `/api/v0/orgs/${orgId}/roles`
      const put = (name: string, ...permissions: ReadonlyArray<string>) =>
        must(send, "PUT", `${roles}/${name}`, { json: { permissions }, as })
      expect(yield* put("reader", "files.read", "files.read")).toEqual({
        name: "reader",
        permissions: ["files.read"],
      })
      const keys = [yield* create({ roles: ["reader"] }), yield* create({ roles: ["reader"], permissions: ["a"] })]
      const rotated = yield* must(send, "POST", `${path}/${keys[1]!["id"]}/rotate`, { json: {}, as })
      const statuses = (permission: string) =>
        Effect.forEach([...keys, rotated, ...keys], ({ key }) =>
          Effect.map(validate(key!, { permissions: [permission] }), ({ status }) => status),
        )
      const all = (status: number) => Array.from({ length: 5 }, () => status)
      expect(yield* statuses("files.read")).toEqual(all(200))
      yield* put("reader", "files.list")
      expect(yield* statuses("files.read")).toEqual(all(403))
      expect(yield* statuses("files.list")).toEqual(all(200))
      expect(yield* validate(keys[1]!["key"]!, { details: true })).toMatchObject({ permissions: ["a", "files.list"] })
      expect(yield* get(`${path}/${keys[1]!["id"]}`)).toMatchObject({ permissions: ["a"], roles: ["reader"] })
      expect(yield* get(roles)).toEqual({ roles: [{ name: "reader", permissions: ["files.list"] }] })
      // A role that does not exist is named, wherever a key gets it.
      const { projectId } = yield* must(send, "POST", "/api/v0/projects", { json: { name: "p", orgId }, as })
      const asked = { name: "k", roles: ["reader", "none"] }
      for (const answer of [
        yield* send("POST", path, { json: asked, as }),
        yield* send("POST", "/api/v0/keys", { json: { ...asked, projectId }, as }),
        yield* update(rotated["id"]!, { roles: ["none"] }),
        yield* send("POST", `${path}/${rotated["id"]}/rotate`, { json: { roles: ["none"] }, as }),
      ]) {
        const { error } = answer.json as { readonly error: string }
        expect([answer.status, error]).toEqual([400, "roles: the org has no role none. Put it first."])
      }
      const twenty = Array.from({ length: 21 }, (_, n) => `r${n}`)
      for (const bad of [twenty, ["a b"], [""], "reader"]) {
        expect((yield* update(rotated["id"]!, { roles: bad })).status).toBe(400)
      }
      // What is deleted grants nothing, and again what it grants when it is back.
      yield* must(send, "DELETE", `${roles}/reader`, { as })
      expect((yield* send("DELETE", `${roles}/reader`, { as })).status).toBe(404)
      expect(yield* statuses("files.list")).toEqual(all(403))
      yield* put("reader", "files.list")
      expect(yield* statuses("files.list")).toEqual(all(200))
      yield* update(rotated["id"]!, { roles: null })
      expect((yield* validate(rotated["key"]!, { permissions: ["files.list"] })).status).toBe(403)
    })

    /**
     * Promise (Settings of keys): A key with `allowedIps` is a 403 outside of them and without an address, from memory
     * too; a change counts at once.
     */
    it.effect("allowed addresses: outside of them, and without an address, is a 403, from memory too", function* () {
      const { create, get, path, update, validate } = yield* makeOrg
      const allowedIps = ["203.0.113.0/24", "2001:db8::/32", "198.51.100.7"]
      const { id, key } = yield* create({ allowedIps, permissions: ["a"], credits: { remaining: 1_000 } })
      const statuses = Effect.forEach(
        ["203.0.113.9:50123", "::ffff:203.0.113.9", "[2001:db8:1::2]:443", "198.51.100.7"].flatMap((ip) => [ip, ip]),
        (clientIp) => Effect.map(validate(key!, { clientIp }), ({ status }) => status),
      )
      expect(yield* statuses).toEqual(Array.from({ length: 8 }, () => 200))
      const refused = { status: 403, code: "ip_not_allowed" }
      for (const clientIp of ["203.0.114.1", "2001:db9::", "198.51.100.8", "::203.0.113.9"]) {
        expect(yield* validate(key!, { clientIp, permissions: ["b"] }), clientIp).toMatchObject(refused)
      }
      expect((yield* validate(key!)).error).toContain("clientIp")
      for (const clientIp of ["", "x", "unknown", "1.2.3", "1.2.3.4/32", "203.0.113.9, 203.0.113.9"]) {
        const { error } = yield* validate(key!, { clientIp })
        expect(error, clientIp).toContain("send the client's in clientIp")
      }
      for (const clientIp of [1, null]) {
        expect(yield* validate(key!, { clientIp }), `${clientIp}`).toMatchObject({ status: 400 })
      }
      // Refusals take nothing.
      const last = yield* validate(key!, { clientIp: "203.0.113.1", details: true })
      expect(last).toMatchObject({ status: 200, credits: 991 })
      expect((yield* update(id!, { allowedIps: ["10.0.0.1"] })).json).toMatchObject({ allowedIps: ["10.0.0.1"] })
      expect(yield* validate(key!, { clientIp: "203.0.113.1" })).toMatchObject(refused)
      expect((yield* validate(key!, { clientIp: "10.0.0.1" })).status).toBe(200)
      yield* update(id!, { allowedIps: null })
      expect((yield* validate(key!)).status).toBe(200)
      expect(yield* get(`${path}/${id}`)).toMatchObject({ id, allowedIps: null, permissions: ["a"] })
      const many = Array.from({ length: 101 }, () => "10.0.0.1")
      for (const bad of [
        [],
        ["10.0.0.1/8"],
        ["10.0.0.0/33"],
        ["::/129"],
        ["01.2.3.4"],
        ["a.example"],
        many,
        "1.2.3.4",
      ]) {
        expect((yield* update(id!, { allowedIps: bad })).status, JSON.stringify(bad)).toBe(400)
      }
    })

    it.effect("credits: are taken by cost until they are exhausted, and cost 0 always passes", function* () {
      const { create, get, path, validate } = yield* makeOrg
      const { key } = yield* create({ credits: { remaining: 1_500 } })
      let left = 1_500
      for (const cost of [1, 1, 500, 1, 0, 900, 1, 90]) {
        left -= cost
        expect(yield* validate(key!, { cost, details: true })).toMatchObject({ status: 200, credits: left })
      }
      expect(yield* validate(key!, { cost: 7 })).toMatchObject({ status: 429, code: "credits_exhausted" })
      expect((yield* validate(key!, { cost: 7 })).retryAfter).toBeUndefined()
      expect((yield* validate(key!, { cost: 6 })).status).toBe(200)
      expect((yield* validate(key!)).status).toBe(429)
      expect((yield* validate(key!, { cost: 0 })).status).toBe(200)
      const { keys } = yield* get<{ keys: ReadonlyArray<{ credits: object }> }>(path)
      expect(keys[0]!.credits).toEqual({ remaining: 0 })
      const { key: daily } = yield* create({ credits: { remaining: 0, refill: { amount: 5, every: "day" } } })
      const { code, retryAfter } = yield* validate(daily!)
      expect(code).toBe("credits_exhausted")
      expect(Number(retryAfter)).toBeGreaterThan(0)
      expect(Number(retryAfter)).toBeLessThanOrEqual(86_400)
    })

    it.effect(
      "a cost that no wait makes possible is refused without Retry-After, also after another refusal",
      function* () {
        const { create, validate } = yield* makeOrg
        const rateLimit = { limit: 5, window: 60 }
        const { key: limited } = yield* create({ rateLimit })
        const tooLarge = { status: 429, code: "too_many_requests", retryAfter: undefined }
        expect(yield* validate(limited!, { cost: 6 })).toMatchObject(tooLarge)
        expect((yield* validate(limited!, { cost: 6 })).error).toContain("larger than the rate limit")
        expect((yield* validate(limited!, { cost: 5 })).status).toBe(200)
        expect(Number((yield* validate(limited!)).retryAfter)).toBeGreaterThan(0)
        expect(yield* validate(limited!, { cost: 6 })).toMatchObject(tooLarge)

        const credits = { remaining: 3, refill: { amount: 5, every: "day" } }
        const exhausted = { status: 429, code: "credits_exhausted" }
        const { key: refilled } = yield* create({ credits })
        const never = yield* validate(refilled!, { cost: 6 })
        expect(never).toMatchObject({ ...exhausted, retryAfter: undefined })
        expect(never.error).toContain("Waiting does not help")
        expect(Number((yield* validate(refilled!, { cost: 4 })).retryAfter)).toBeGreaterThan(0)
        expect((yield* validate(refilled!, { cost: 3 })).status).toBe(200)
      },
    )

    it.effect("rate limits: are exact to the unit, small and large", function* () {
      const { create, statuses, validate } = yield* makeOrg
      for (const limit of [3, 99, 100, 1_200]) {
        const { key } = yield* create({ rateLimit: { limit, window: 86_400 } })
        const all = yield* statuses(key!, limit + 5)
        expect(all.filter((status) => status === 200).length, `${limit}`).toBe(limit)
        expect(all.slice(limit)).toEqual([429, 429, 429, 429, 429])
        const refused = yield* validate(key!)
        expect(refused).toMatchObject({ status: 429, code: "too_many_requests" })
        expect(Number(refused.retryAfter)).toBeGreaterThan(0)
      }
    })

    it.effect("changes apply at once: disabled, enabled, limits, permissions", function* () {
      const { create, update, validate } = yield* makeOrg
      const { id, key } = yield* create({ credits: { remaining: 5_000 } })
      expect((yield* validate(key!)).status).toBe(200)
      expect(yield* update(id!, { enabled: false })).toMatchObject({ status: 200, json: { id, enabled: false } })
      expect(yield* validate(key!)).toMatchObject({ status: 401, error: "The key is not valid." })
      yield* update(id!, { enabled: true, credits: { remaining: 1 } })
      expect([(yield* validate(key!)).status, (yield* validate(key!)).status]).toEqual([200, 429])
      yield* update(id!, { credits: null, permissions: ["a"] })
      expect((yield* validate(key!, { permissions: ["a"] })).status).toBe(200)
      yield* update(id!, { permissions: null })
      expect((yield* validate(key!, { permissions: ["a"] })).status).toBe(403)
      // Seen failing: the refill was gone, and nothing added credits.
      const refill = { amount: 9, every: "day" }
      const credits = (change: object) =>
        Effect.map(update(id!, { credits: change }), ({ json }) => (json as { credits: unknown }).credits)
      expect((yield* update(id!, { credits: { add: 5 } })).status).toBe(409)
      expect(yield* credits({ remaining: 5, refill })).toEqual({ remaining: 5, refill })
      expect(yield* credits({ remaining: 7 })).toEqual({ remaining: 7, refill })
      yield* Effect.forEach([1, 2, 3, 4, 5], () => update(id!, { credits: { add: 2 } }), { concurrency: "unbounded" })
      expect(yield* credits({ add: -1 })).toEqual({ remaining: 16, refill })
      expect(yield* credits({ add: -100 })).toEqual({ remaining: 0, refill })
      expect(yield* credits({ add: 3, refill: null })).toEqual({ remaining: 3 })
      yield* update(id!, { credits: null })
      const both = { credits: { remaining: 1, add: 1 } }
      for (const bad of [both, { credits: { add: 0.5 } }]) expect((yield* update(id!, bad)).status).toBe(400)
      for (const bad of [{}, { credits: {} }, { permissions: ["a..b"] }, { metadata: { text: "x".repeat(4_096) } }]) {
        expect((yield* update(id!, bad)).status, JSON.stringify(bad)).toBe(400)
      }
      expect((yield* update(id!, { expiresAt: "2001-01-01T00:00:00Z" })).status).toBe(400)
      expect((yield* update("7ZZZZZZZZZZZZZZZZZZZZZZZZZ", { name: "x" })).status).toBe(404)
    })

    it.effect("a rotation shares the credits between both keys", function* () {
      const { create, get, path, send, statuses } = yield* makeOrg
      const { id, key } = yield* create({ credits: { remaining: 150 }, permissions: ["a"], externalId: "c" })
      const next = yield* must(send, "POST", `${path}/${id}/rotate`, { json: { externalId: "d" }, as })
      const all = [...(yield* statuses(key!, 80)), ...(yield* statuses(next["key"]!, 80))]
      expect(all.filter((status) => status === 200).length).toBe(150)
      const ofHolder = (externalId: string) =>
        Effect.map(get<{ keys: ReadonlyArray<{ id: string }> }>(`${path}?externalId=${externalId}`), ({ keys }) =>
          keys.map((one) => one.id),
        )
      expect([yield* ofHolder("c"), yield* ofHolder("d"), yield* ofHolder("e")]).toEqual([[id], [next["id"]], []])
    })

    it.effect("usage: counts each outcome of a key and of its org, with empty intervals", function* () {
      const { create, get, orgId, path, send, validate } = yield* makeOrg
      const { id, key } = yield* create({ credits: { remaining: 10 } })
      for (const use of [{}, { cost: 4 }, { cost: 9 }, { permissions: ["a"] }]) yield* validate(key!, use)
      const usageAt = (url: string) =>
        Effect.map(get<{ usage: ReadonlyArray<{ at: string; valid: number }> }>(url), ({ usage }) => usage)
      const counts = { valid: 2, forbidden: 1, limited: 1, cost: 5 }
      const usage = yield* until("usage is written", usageAt(`${path}/${id}/usage`), (all) =>
        all.some(({ valid }) => valid > 0),
      )
      expect(usage.length).toBe(24)
      // The hour may have ended meanwhile.
      expect(usage.slice(-2)).toContainEqual(expect.objectContaining(counts))
      expect(usage[0]).toMatchObject({ valid: 0, forbidden: 0, limited: 0, cost: 0 })
      const days = yield* usageAt(
        `/api/v0/orgs/${orgId}/usage?every=day&from=${new Date().getUTCFullYear()}-01-01T00:00:00Z`,
      )
      expect(days.slice(-2)).toContainEqual(expect.objectContaining(counts))
      const from = "2026-01-01T00:00:00Z"
      for (const query of [
        `from=${from}&to=${from}`,
        `from=${from}&to=2026-02-11T16:00:01Z`,
        "every=minute",
        "from=x",
      ]) {
        const answer = yield* send("GET", `${path}/${id}/usage?${query}`, { as })
        expect(answer.status, query).toBe(400)
      }
      const most = yield* usageAt(`${path}/${id}/usage?from=${from}&to=2026-02-11T16:00:00Z`)
      expect(most.length).toBe(1_000)
      expect(most[0]!.at).toBe("2026-01-01T00:00:00.000Z")
    })
  })
}
