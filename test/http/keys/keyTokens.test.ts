import { expect } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { createLocalJWKSet, decodeJwt, decodeProtectedHeader, jwtVerify } from "jose"
import { makeGateway } from "../../../packages/gateway/src/index.ts"
import { it } from "../../support/it.ts"
import { adminToken, guarded, onPostgres, TestServer } from "../../support/server.ts"
import { must } from "../operations.ts"

/**
 * Promise (Settings of keys): The key that signs tokens is published before it signs, signs at every replica from the
 * same time on, and stays until its last token ends.
 */

const as = adminToken

/** A replica, and requests about tokens. */
const makeReplica = Effect.fnUntraced(function* (environment: Readonly<Record<string, string>>) {
  const { advance, send, url } = Context.get(yield* Layer.build(TestServer.layer(environment)), TestServer)
  const keySet = Effect.map(
    send("GET", "/.well-known/jwks.json"),
    ({ json }) => json as { keys: Array<{ kid: string }> },
  )
  const ask = (json: object) => send("POST", "/api/v0/keys/token", { json })
  return {
    advance,
    ask,
    keySet,
    send,
    url,
    exchange: (json: object) =>
      Effect.map(ask(json), ({ json: answer, status, text }) => {
        expect(status, text).toBe(200)
        return answer as { readonly token: string; readonly expiresAt: string }
      }),
    kids: Effect.map(keySet, ({ keys }) => keys.map(({ kid }) => kid)),
  }
})

const makeKey = Effect.fnUntraced(function* (send: Parameters<typeof must>[0], settings: object = {}) {
  const { orgId } = yield* must(send, "POST", "/api/v0/orgs", { json: { name: "o" }, as })
  const made = yield* must(send, "POST", `/api/v0/orgs/${orgId}/keys`, { json: { name: "k", ...settings }, as })
  return { orgId: orgId!, key: made["key"]!, id: made["id"]! }
})

it.live(
  "a key is exchanged for a token that jose verifies; its life and permissions are at most those of the key",
  function* () {
    const environment = { ...(yield* onPostgres(guarded)), BASE_URL: "https://gatehouse.example.com" }
    const { ask, exchange, keySet, kids, send } = yield* makeReplica(environment)
    expect(yield* kids).toEqual([])
    const soon = new Date(Date.now() + 120_000).toISOString()
    const { id, key, orgId } = yield* makeKey(send, { permissions: ["files.*", "a"], expiresAt: soon })
    const { expiresAt, token } = yield* exchange({ key, expiresInSeconds: 60 })
    const verified = yield* Effect.promise(async () =>
      jwtVerify(token, createLocalJWKSet((await Effect.runPromise(keySet)) as never), {
        issuer: "https://gatehouse.example.com",
        algorithms: ["EdDSA"],
      }),
    )
    const expected = { sub: id, org: orgId, project: "", permissions: ["files.*", "a"] }
    expect(verified.payload).toMatchObject({ ...expected, jti: expect.any(String) })
    expect(verified.payload.exp! - verified.payload.iat!).toBe(60)
    expect(Date.parse(expiresAt) / 1000).toBe(verified.payload.exp)
    const small = yield* exchange({ key, permissions: ["files.read"], expiresInSeconds: 3_600 })
    expect(decodeJwt(small.token)).toMatchObject({ permissions: ["files.read"] })
    // With the key at the latest.
    expect(decodeJwt(small.token).exp).toBe(Math.floor(Date.parse(soon) / 1000))
    expect((yield* ask({ key, permissions: ["b"] })).status).toBe(403)
    expect((yield* ask({ key: `${key}0` })).status).toBe(401)
    for (const expiresInSeconds of [59, 3_601, 1.5, "60"]) {
      expect((yield* ask({ key, expiresInSeconds })).status).toBe(400)
    }
  },
)

it.live(
  "the key that signs is rotated: the next one is published before, and the old one stays until its tokens end",
  function* () {
    const environment = yield* onPostgres(guarded)
    const [one, other] = [yield* makeReplica(environment), yield* makeReplica(environment)]
    const { key } = yield* makeKey(one.send)
    const kidOf = (replica: typeof one) =>
      Effect.map(replica.exchange({ key }), ({ token }) => decodeProtectedHeader(token).kid!)
    const both = yield* Effect.all([kidOf(one), kidOf(other)], { concurrency: 2 })
    const [first] = both
    expect(both).toEqual([first, first])
    expect(yield* one.kids).toEqual([first])
    const later = (time: "31 days" | "10 minutes" | "61 minutes" | "3 hours") =>
      Effect.all([one.advance(time), other.advance(time)])
    yield* later("31 days")
    // The next key is published, and does not sign.
    expect([yield* kidOf(one), yield* kidOf(other)]).toEqual([first, first])
    const published = yield* other.kids
    expect(published).toHaveLength(2)
    yield* later("10 minutes")
    expect([yield* kidOf(one), yield* kidOf(other)]).toEqual([first, first])
    yield* later("61 minutes")
    const second = published[1]!
    expect([yield* kidOf(one), yield* kidOf(other)]).toEqual([second, second])
    expect(yield* one.kids).toEqual([first, second])
    yield* later("31 days")
    yield* later("3 hours")
    yield* kidOf(one)
    expect((yield* one.kids).slice(0, 2)).toEqual([second, expect.any(String)])
  },
)

it.live("a replica that has shown no key shows the first one as soon as another one has made it", function* () {
  const environment = yield* onPostgres(guarded)
  const [one, other] = [yield* makeReplica(environment), yield* makeReplica(environment)]
  expect(yield* other.kids).toEqual([])
  const { token } = yield* one.exchange({ key: (yield* makeKey(one.send)).key })
  expect(yield* other.kids).toEqual([decodeProtectedHeader(token).kid])
})

it.live("the gateway package verifies a token without a call, and refuses what is not of its issuer", function* () {
  const { exchange, send, url } = yield* makeReplica(yield* onPostgres(guarded))
  const stranger = yield* makeReplica(yield* onPostgres(guarded))
  const { id, key, orgId } = yield* makeKey(send, { permissions: ["files.*"] })
  const { token } = yield* exchange({ key })
  const issuer = decodeJwt(token).iss!
  const asked: Array<string> = []
  const counting = ((address: URL, init: RequestInit) => {
    asked.push(address.pathname)
    return globalThis.fetch(address, init)
  }) as typeof globalThis.fetch
  const gateway = makeGateway({ url, tokens: { issuer }, fetch: counting, timeoutMillis: 30_000 })
  const check = (text: string, permissions?: ReadonlyArray<string>, at = gateway) =>
    Effect.promise(() => at.check({ authorization: `Bearer ${text}` }, { permissions }))
  const owner = { keyId: id, orgId, projectId: "" }
  for (const permissions of [undefined, ["files.read"], ["files.a.b"]]) {
    expect(yield* check(token, permissions)).toEqual({ owner })
  }
  expect((yield* check(token, ["models.a"])).refusal).toMatchObject({ status: 403, body: { code: "forbidden" } })
  expect(asked).toEqual(["/.well-known/jwks.json"])
  const [header, payload, signature] = token.split(".") as [string, string, string]
  const encode = (part: object) => Buffer.from(JSON.stringify(part)).toString("base64url")
  const claims = decodeJwt(token)
  const forged = [
    `${header}.${encode({ ...claims, org: "other" })}.${signature}`,
    `${encode({ alg: "none", kid: "x" })}.${payload}.`,
    `${encode({ ...decodeProtectedHeader(token), alg: "HS256" })}.${payload}.${signature}`,
    `${encode({ alg: "EdDSA", kid: "unknown" })}.${payload}.${signature}`,
    `${header}.${encode({ ...claims, exp: 1 })}.${signature}`,
    ...["a.b.c", "a.b.", `${encode({ alg: "EdDSA", kid: "x" })}.bnVsbA.${signature}`, `${header}.${payload}.a`],
  ]
  for (const text of forged) expect((yield* check(text)).refusal?.status, text).toBe(401)
  // Another environment has other keys, and another address.
  const foreign = yield* makeKey(stranger.send)
  const other = yield* stranger.exchange({ key: foreign.key })
  expect((yield* check(other.token)).refusal?.status).toBe(401)
  const wrong = makeGateway({ url, tokens: { issuer: "https://other.example.com" }, timeoutMillis: 30_000 })
  expect((yield* check(token, undefined, wrong)).refusal?.status).toBe(401)
  // Unknown ids of keys read the keys at most once in 30 seconds; keys are validated as before.
  expect(asked.filter((path) => path.endsWith("jwks.json"))).toHaveLength(1)
  expect(yield* check(key)).toEqual({ owner })
  const down = makeGateway({ url: "http://127.0.0.1:9", tokens: { issuer } })
  expect((yield* check(token, undefined, down)).refusal?.status).toBe(503)
})
