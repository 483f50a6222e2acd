/* oxlint-disable vitest/no-standalone-expect -- it.effect is a test */
import { expect, it, layer } from "@effect/vitest"
import { Effect } from "effect"
import express from "express"
import Fastify from "fastify"
import { Hono } from "hono"
import { once } from "node:events"
import type { AddressInfo } from "node:net"
import {
  type GatewayOptions,
  type Use,
  makeGateway,
  withExpress,
  withFastify,
  withFetch,
  withHono,
} from "../../packages/gateway/src/index.ts"
import { must } from "../http/operations.ts"
import { makeReceiver } from "../support/receiver.ts"
import { adminToken, guarded, TestServer } from "../support/server.ts"

/** A project with a key, and a gateway with its own credential. */
const world = Effect.fnUntraced(function* (options: Partial<GatewayOptions> = {}) {
  const { send, url } = yield* TestServer
  const as = adminToken
  const { orgId, projectId } = yield* must(send, "POST", "/api/v0/projects", { json: { name: "docs" }, as })
  const made = yield* must(send, "POST", "/api/v0/keys", { json: { name: "k", projectId }, as })
  const faults: Array<string> = []
  const gateway = makeGateway({ url, credential: adminToken, onFault: (fault) => void faults.push(fault), ...options })
  const remove = must(send, "DELETE", `/api/v0/orgs/${orgId}/keys/${made["id"]}`, { as })
  const check = (headers: Record<string, string>) => Effect.promise(() => gateway.check(headers))
  return { gateway, check, faults, remove, owner: { keyId: made["id"], orgId, projectId }, key: made["key"]! }
})

layer(TestServer.layer(guarded), { excludeTestServices: true })("gatehouse-gateway", (it) => {
  // Seen failing: fetch followed the redirect, with the key in its body.
  it.effect("follows no redirect with a credential and a key", () =>
    Effect.gen(function* () {
      const [elsewhere, redirecting] = [yield* makeReceiver(), yield* makeReceiver()]
      redirecting.behave({ status: 307, headers: { location: elsewhere.url } })
      const { check, faults, key } = yield* world({ url: redirecting.url })
      expect((yield* check({ "x-api-key": key })).refusal?.status).toBe(503)
      expect(faults).toEqual([
        expect.stringContaining(`it redirects to ${elsewhere.url}, and a redirect is not followed`),
      ])
      expect([redirecting.received.length, elsewhere.received.length]).toEqual([1, 0])
    }),
  )

  it.effect("passes a valid key in either header on with its owner, and refuses any other", () =>
    Effect.gen(function* () {
      const { check, faults, key, owner, remove } = yield* world()
      for (const headers of [
        { authorization: `Bearer ${key}` },
        { authorization: `bearer ${key}` },
        { "x-api-key": key },
      ]) {
        expect(yield* check(headers)).toEqual({ owner })
      }
      for (const headers of [
        {},
        { authorization: "Basic x" },
        { "x-api-key": "" },
        { "x-api-key": `${key}x` },
      ] as const) {
        const { refusal } = yield* check(headers as Record<string, string>)
        expect(refusal).toMatchObject({
          status: 401,
          headers: { "www-authenticate": "Bearer", "cache-control": "no-store" },
          body: { code: "unauthorized", error: expect.stringMatching(/\.$/) },
        })
      }
      yield* remove
      expect((yield* check({ "x-api-key": key })).refusal?.status).toBe(401)
      expect(faults).toEqual([])
    }),
  )

  it.effect("reads only the chosen header, with or without Bearer, and names it to a client without a key", () =>
    Effect.gen(function* () {
      const { check, key, owner } = yield* world({ keyHeader: "X-Service-Key" })
      for (const value of [key, `Bearer ${key}`]) expect(yield* check({ "x-service-key": value })).toEqual({ owner })
      for (const name of ["x-api-key", "authorization"]) {
        expect((yield* check({ [name]: `Bearer ${key}` })).refusal?.body).toEqual({
          error: "Send an API key: x-service-key: <key>.",
          code: "unauthorized",
        })
      }
      expect(() => makeGateway({ url: "http://127.0.0.1", keyHeader: "x service key" })).toThrow(TypeError)
    }),
  )

  it.effect("passes on that a key is above its rate limit, and when to retry", () =>
    Effect.gen(function* () {
      const { send } = yield* TestServer
      const { check, owner } = yield* world()
      const json = { name: "limited", projectId: owner.projectId, rateLimit: { limit: 1, window: 3600 } }
      const { key } = yield* must(send, "POST", "/api/v0/keys", { json, as: adminToken })
      expect((yield* check({ "x-api-key": key! })).owner).toBeDefined()
      const { refusal } = yield* check({ "x-api-key": key! })
      expect(refusal).toMatchObject({
        status: 429,
        headers: { "retry-after": expect.stringMatching(/^\d+$/) },
        body: { code: "too_many_requests" },
      })
    }),
  )

  it.effect("asks for permissions, and takes the cost of a use", () =>
    Effect.gen(function* () {
      const { send } = yield* TestServer
      let asked = 0
      const counted: typeof globalThis.fetch = (...args) => {
        asked++
        return globalThis.fetch(...args)
      }
      const { gateway, owner } = yield* world({ cacheSeconds: 60, fetch: counted })
      const settings = { permissions: ["models.*"], credits: { remaining: 100 } }
      const json = { name: "metered", projectId: owner.projectId, ...settings }
      const { key, id } = yield* must(send, "POST", "/api/v0/keys", { json, as: adminToken })
      const check = (use: Use) => Effect.promise(() => gateway.check({ "x-api-key": key! }, use))
      const models = ["models.large.use"]
      expect((yield* check({ permissions: models, cost: 60 })).owner).toMatchObject({ keyId: id })
      expect((yield* check({ permissions: ["files.read"] })).refusal).toMatchObject({
        status: 403,
        body: { code: "forbidden", error: expect.stringContaining("files.read") },
      })
      expect((yield* check({ cost: 60 })).refusal).toMatchObject({ status: 429, body: { code: "credits_exhausted" } })
      expect(asked).toBe(3)
      // Uses without a cost are kept, each with its permissions.
      for (const permissions of [models, models, undefined, undefined]) {
        expect((yield* check({ permissions })).owner).toBeDefined()
      }
      expect(asked).toBe(5)
      expect((yield* check({ permissions: ["files.read"] })).refusal?.status).toBe(403)
      const passed = yield* Effect.promise(() =>
        withFetch(gateway, { permissions: ["files.read"] })(
          new Request("http://gateway.example", { headers: { "x-api-key": key! } }),
        ),
      )
      expect(passed).toMatchObject({ status: 403 })
    }),
  )

  it.effect("a fault of the gateway itself is a 503 and a line for its log, and never a 401", () =>
    Effect.gen(function* () {
      const { url } = yield* TestServer
      for (const [options, fault] of [
        [{ credential: "wrong-credential" }, /status 401: The credential is not valid/],
        [{ url: "http://127.0.0.1:9" }, /cannot check a key/],
        [{ url: `${url}/nowhere` }, /status 404/],
      ] as const) {
        const { check, faults, key } = yield* world(options)
        expect((yield* check({ "x-api-key": key })).refusal).toMatchObject({
          status: 503,
          headers: { "retry-after": "1" },
          body: { code: "unavailable" },
        })
        expect(faults.join()).toMatch(fault)
        expect(faults.join()).not.toContain(key)
        expect(faults.join()).not.toContain("wrong-credential")
      }
    }),
  )

  it.effect("answers from memory only for the configured time", () =>
    Effect.gen(function* () {
      let asked = 0
      const counted: typeof globalThis.fetch = (...args) => {
        asked++
        return globalThis.fetch(...args)
      }
      const { check, key, owner, remove } = yield* world({ cacheSeconds: 60, fetch: counted })
      expect([yield* check({ "x-api-key": key }), yield* check({ "x-api-key": key })]).toEqual([{ owner }, { owner }])
      expect(asked).toBe(1)
      for (let time = 0; time < 2; time++) yield* check({ "x-api-key": "wrong" })
      expect(asked).toBe(3)
      const other = yield* world({ fetch: counted })
      yield* other.check({ "x-api-key": key })
      yield* other.check({ "x-api-key": key })
      expect(asked).toBe(5)
      yield* remove
      expect((yield* other.check({ "x-api-key": key })).refusal?.status).toBe(401)
      expect(() => makeGateway({ url: "http://127.0.0.1", cacheSeconds: 61 })).toThrow(RangeError)
    }),
  )

  it.effect("works with Express, Fastify, Hono and the Fetch standard", () =>
    Effect.gen(function* () {
      const { gateway, key, owner } = yield* world()
      const good = { "x-api-key": key }
      const expectBoth = async (get: (headers: Record<string, string>) => Promise<Response>) => {
        expect(await (await get(good)).json()).toEqual(owner)
        const refused = await get({})
        expect([refused.status, refused.headers.get("www-authenticate")]).toEqual([401, "Bearer"])
        expect(await refused.json()).toMatchObject({ code: "unauthorized" })
      }
      yield* Effect.promise(async () => {
        const onExpress = express()
        onExpress.get("/", withExpress(gateway), (request, response) => void response.json(request.gatehouse))
        const server = onExpress.listen(0, "127.0.0.1")
        await once(server, "listening")
        const { port } = server.address() as AddressInfo
        await expectBoth((headers) => globalThis.fetch(`http://127.0.0.1:${port}`, { headers }))
        server.close()

        const onFastify = Fastify()
        onFastify.addHook("onRequest", withFastify(gateway))
        onFastify.get("/", (request) => Promise.resolve(request.gatehouse))
        await expectBoth(async (headers) => {
          const answer = await onFastify.inject({ url: "/", headers })
          return new Response(answer.body, { status: answer.statusCode, headers: answer.headers as typeof headers })
        })
        await onFastify.close()

        const onHono = new Hono()
        onHono.use(withHono(gateway))
        onHono.get("/", (context) => context.json(context.get("gatehouse")))
        await expectBoth(async (headers) => onHono.request("/", { headers }))

        expect(await withFetch(gateway)(new Request("http://a", { headers: good }))).toEqual(owner)
        const answer = await withFetch(gateway)(new Request("http://a"))
        expect((answer as Response).status).toBe(401)
      })
    }),
  )
})

it("requires the address of the service", () => {
  expect(() => makeGateway({ url: "nowhere" })).toThrow(TypeError)
})
