import { assert, describe } from "@effect/vitest"
import { DateTime, Effect } from "effect"
import { createPublicKey } from "node:crypto"
import { Unauthorized } from "#src/domain/Errors.ts"
import { it } from "../../support/it.ts"
import {
  ecKey,
  encodeToken,
  es256,
  githubClaims,
  hs256,
  makeOidcProvider,
  ps256,
  rs256,
  rs512,
  rsaKey,
} from "../../support/oidc.ts"
import { oidcWorld, type OidcWorld, startOfTest } from "../../support/oidcWorld.ts"

const now = startOfTest / 1000
/** Marks the text of an attacker: no answer may repeat it. */
const evil = "EVIL"
const key = rsaKey("key-1")
const stranger = rsaKey("stranger")
const pem = createPublicKey(key.privateKey).export({ type: "spki", format: "pem" }).toString()

/** Asserts that the token is refused with a matching sentence that repeats nothing of it. */
const refused = (world: OidcWorld, token: string, sentence: RegExp) =>
  Effect.gen(function* () {
    const error = yield* Effect.flip(world.verify(token))
    assert.instanceOf(error, Unauthorized)
    assert.match(error.error, sentence)
    assert.notInclude(error.error, evil)
    for (const part of token.split(".")) if (part.length > 3) assert.notInclude(error.error, part)
  })

type Forge = (world: OidcWorld) => Effect.Effect<string>
type Claims = Record<string, unknown>
const header =
  (extra: Claims, signer?: Parameters<OidcWorld["provider"]["sign"]>[2]): Forge =>
  ({ provider }) =>
    provider.sign({}, extra, signer)
const claims =
  (extra: Claims): Forge =>
  ({ provider }) =>
    provider.sign(extra)
const mangled =
  (change: (parts: [string, string, string]) => string): Forge =>
  ({ provider }) =>
    Effect.map(provider.sign(), (token) => change(token.split(".") as [string, string, string]))
/** Another last character that decodes to the same bytes, with its unused bits set. */
const respelled = (part: string) => {
  const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
  return part.slice(0, -1) + alphabet[alphabet.indexOf(part.at(-1)!) + 1]!
}
const goodHeader = { typ: "JWT", alg: "RS256", kid: "key-1" }
const goodClaims = (world: OidcWorld) => githubClaims(world.provider.issuer, world.provider.audience, now)

const attacks: ReadonlyArray<readonly [name: string, forge: Forge, sentence: RegExp]> = [
  ["alg none", header({ alg: "none" }, () => Buffer.alloc(0)), /no signature/],
  ["alg none with a signature", header({ alg: "none" }), /must be signed with RS256/],
  ["alg None", header({ alg: "None" }), /must be signed with RS256/],
  ["alg rs256", header({ alg: "rs256" }), /must be signed with RS256/],
  ["alg missing", header({ alg: undefined }), /must be signed with RS256/],
  ["alg as an array", header({ alg: ["RS256"] }), /must be signed with RS256/],
  ["HS256 under the public key's PEM", header({ alg: "HS256" }, hs256(pem)), /must be signed with RS256/],
  ["HS256 under the JWK", header({ alg: "HS256" }, hs256(JSON.stringify(key.jwk))), /must be signed with RS256/],
  ["HMAC under alg RS256", header({}, hs256(pem)), /signature is not the provider's/],
  ["RS512", header({ alg: "RS512" }, rs512(key)), /must be signed with RS256/],
  ["PS256", header({ alg: "PS256" }, ps256(key)), /must be signed with RS256/],
  ["ES256", header({ alg: "ES256", kid: "ec" }, es256(ecKey("ec"))), /must be signed with RS256/],
  ["RS512 signature under alg RS256", header({}, rs512(key)), /signature is not the provider's/],
  ["another's key under the provider's kid", header({}, rs256(stranger)), /signature is not the provider's/],
  ["embedded jwk", header({ jwk: stranger.jwk }, rs256(stranger)), /parameter "jwk"/],
  ["embedded jwk of the provider", header({ jwk: key.jwk }), /parameter "jwk"/],
  ["embedded x5c", header({ x5c: [evil] }), /parameter "x5c"/],
  ["crit", header({ crit: [evil], [evil]: 1 }), /parameter "crit"/],
  ["crit b64", header({ crit: ["b64"], b64: true }), /parameter "crit"/],
  ["b64 without crit", header({ b64: false }), /parameter "b64"/],
  ["typ at+jwt", header({ typ: "at+jwt" }), /"typ" must be JWT/],
  ["typ as a number", header({ typ: 1 }), /"typ" must be JWT/],
  ["kid missing", header({ kid: undefined }), /name its key/],
  ["kid empty", header({ kid: "" }), /name its key/],
  ["kid as an array", header({ kid: ["key-1"] }), /name its key/],
  ["kid as an object", header({ kid: { toString: "key-1" } }), /name its key/],
  ["a very long kid", header({ kid: "k".repeat(257) }), /name its key/],
  ["kid with a path", header({ kid: `../../../dev/null${evil}` }), /provider does not publish/],
  ["kid with SQL", header({ kid: `${evil}' UNION SELECT 'key` }), /provider does not publish/],
  ["kid __proto__", header({ kid: "__proto__" }), /provider does not publish/],
  ["kid constructor", header({ kid: "constructor" }), /provider does not publish/],
  ["kid in another case", header({ kid: "KEY-1" }), /provider does not publish/],
  ["iss with another slash", (w) => w.provider.sign({ iss: `${w.provider.issuer}/` }), /issuer \(iss\) must be/],
  ["iss in another case", (w) => w.provider.sign({ iss: w.provider.issuer.toUpperCase() }), /issuer \(iss\) must be/],
  ["iss with a path", (w) => w.provider.sign({ iss: `${w.provider.issuer}/${evil}` }), /issuer \(iss\) must be/],
  ["a prefix of iss", (w) => w.provider.sign({ iss: w.provider.issuer.slice(0, -1) }), /issuer \(iss\) must be/],
  ["iss as an array", (w) => w.provider.sign({ iss: [w.provider.issuer] }), /issuer \(iss\) must be/],
  ["iss missing", claims({ iss: undefined }), /claim "iss" is missing/],
  ["aud another's", claims({ aud: `https://${evil}.example` }), /audience \(aud\) must be https:\/\/gatehouse.example/],
  ["a prefix of aud", claims({ aud: "https://gatehouse.exampl" }), /audience \(aud\) must be/],
  ["aud missing", claims({ aud: undefined }), /claim "aud" is missing/],
  ["aud null", claims({ aud: null }), /audience \(aud\) must be/],
  ["aud as an array without ours", claims({ aud: ["https://a.example", evil] }), /audience \(aud\) must be/],
  ["aud as an array in an array", claims({ aud: [["https://gatehouse.example"]] }), /audience \(aud\) must be/],
  ["exp missing", claims({ exp: undefined }), /claim "exp" is missing/],
  ["exp as a string", claims({ exp: String(now + 300) }), /claim "exp" must be a number/],
  ["exp 30 s ago", claims({ exp: now - 30 }), /has expired/],
  ["nbf in 31 s", claims({ nbf: now + 31 }), /not valid yet/],
  ["nbf as a string", claims({ nbf: "0" }), /claim "nbf" must be a number/],
  ["iat in 31 s", claims({ iat: now + 31 }), /issued in the future/],
  ["iat as a string", claims({ iat: evil }), /claim "iat" must be a number/],
  // A time beyond every date is a fault where it becomes a date.
  ["exp of 1e308", claims({ exp: 1e308 }), /claim "exp" must be a time in seconds/],
  ["exp in milliseconds", claims({ exp: (now + 300) * 1000 }), /claim "exp" must be a time in seconds/],
  ["iat of -1e308", claims({ iat: -1e308 }), /claim "iat" must be a time in seconds/],
  ["iat of 1e308", claims({ iat: 1e308 }), /claim "iat" must be a time in seconds/],
  ["nbf of -1", claims({ nbf: -1 }), /claim "nbf" must be a time in seconds/],
  ["auth_time of 1e308", claims({ auth_time: 1e308 }), /claim "auth_time" must be a time in seconds/],
  ["updated_at as a text", claims({ updated_at: evil }), /claim "updated_at" must be a time in seconds/],
  [
    "exp of 1e999, which is infinite",
    (w) => {
      const endless = JSON.stringify({ ...goodClaims(w), exp: 0 }).replace('"exp":0', '"exp":1e999')
      return Effect.succeed(encodeToken(goodHeader, endless, rs256(key)))
    },
    /claim "exp" must be a time in seconds/,
  ],
  ["repository_id as a number", claims({ repository_id: 74 }), /claim "repository_id" must be a string/],
  ["repository_id without digits", claims({ repository_id: evil }), /claim "repository_id" must be .*digits/],
  ["run_id of 20 digits", claims({ run_id: "1".repeat(20) }), /claim "run_id" must be .*digits/],
  ["run_attempt 0", claims({ run_attempt: "0" }), /claim "run_attempt" must be .*digits/],
  ["repository missing", claims({ repository: undefined }), /claim "repository" is missing/],
  ["ref with a line break", claims({ ref: `refs/heads/a\n${evil}` }), /claim "ref" must be a git ref/],
  ["workflow with NUL", claims({ workflow: `a\0${evil}` }), /claim "workflow" must be text/],
  ["sha that is no hash", claims({ sha: evil }), /claim "sha" must be a commit/],
  ["signature stripped", mangled(([h, p]) => `${h}.${p}.`), /no signature/],
  ["signature truncated", mangled(([h, p, s]) => `${h}.${p}.${s.slice(0, 340)}`), /signature is not the provider's/],
  ["signature flipped", mangled(([h, p, s]) => `${h}.${p}.${s.startsWith("A") ? "B" : "A"}${s.slice(1)}`), /signature/],
  ["signature respelled", mangled(([h, p, s]) => `${h}.${p}.${respelled(s)}`), /must be base64url/],
  ["signature padded", mangled(([h, p, s]) => `${h}.${p}.${s}==`), /must be base64url/],
  [
    "payload of another",
    mangled(([h, , s]) => `${h}.${Buffer.from(`{"sub":"${evil}"}`).toString("base64url")}.${s}`),
    /signature/,
  ],
  ["two parts", mangled(([h, p]) => `${h}.${p}`), /three parts/],
  ["four parts", mangled((parts) => `${parts.join(".")}.AAAA`), /three parts/],
  ["five parts (JWE)", mangled((parts) => `${parts.join(".")}.AAAA.AAAA`), /encrypted/],
  ["empty", () => Effect.succeed(""), /three parts/],
  ["empty parts", () => Effect.succeed(".."), /no signature/],
  ["base64, not base64url", mangled(([h, p]) => `${h}.${p}.a+/a`), /must be base64url/],
  ["a line break at the end", mangled((parts) => `${parts.join(".")}\n`), /must be base64url/],
  ["unicode", mangled(([h, p]) => `${h}.${p}.ＡＡＡＡ`), /must be base64url/],
  ["over 16 KiB", claims({ padding: "x".repeat(16 * 1024) }), /longer than 16384/],
  ["header that is not JSON", () => Effect.succeed(encodeToken(evil, {}, rs256(key))), /header is not a JSON object/],
  ["header as an array", () => Effect.succeed(encodeToken("[]", {}, rs256(key))), /header is not a JSON object/],
  ["payload as an array", () => Effect.succeed(encodeToken(goodHeader, "[]", rs256(key))), /cannot be verified/],
  ["payload that is not JSON", () => Effect.succeed(encodeToken(goodHeader, evil, rs256(key))), /cannot be verified/],
  [
    "a header member twice",
    (w) => Effect.succeed(encodeToken(`{"alg":"RS256","kid":"key-1","alg":"none"}`, goodClaims(w), rs256(key))),
    /must be signed with RS256/,
  ],
  [
    "a claim twice",
    (w) => {
      const twice = JSON.stringify(goodClaims(w)).replace(/}$/, `,"aud":"${evil}"}`)
      return Effect.succeed(encodeToken(goodHeader, twice, rs256(key)))
    },
    /audience \(aud\) must be/,
  ],
]

describe("Oidc", () => {
  it.effect("accepts a push to main and returns its run", function* () {
    const { provider, verifySigned } = yield* oidcWorld()
    const verified = yield* verifySigned()
    const { issuedAt, issuer, owner, provider: name, repo, repositoryId, runId } = verified
    assert.deepStrictEqual(
      [name, issuer, owner, repo, repositoryId, runId],
      ["github", provider.issuer, "octo-org", "octo-repo", "74", "1658821493"],
    )
    assert.strictEqual(issuedAt && DateTime.toEpochMillis(issuedAt), startOfTest)
  })

  it.effect.each([
    ["exp 29 s ago", { exp: now - 29 }],
    ["nbf in 30 s", { nbf: now + 30 }],
    ["iat in 30 s", { iat: now + 30 }],
    ["no nbf, no iat", { nbf: undefined, iat: undefined }],
    ["aud as an array with ours", { aud: ["https://other.example", "https://gatehouse.example"] }],
    ["a sha-256 repository", { sha: "0".repeat(64) }],
    ["no environment, with a workflow named freely", { workflow: "Docs ✨ / deploy" }],
  ] as const)("accepts %s", ([, extra]) =>
    Effect.gen(function* () {
      const { verifySigned } = yield* oidcWorld()
      yield* verifySigned(extra)
    }),
  )

  it.effect("accepts each of several audiences, and a header without typ", function* () {
    const { verifySigned } = yield* oidcWorld({ audiences: ["https://a.example", "https://b.example"] })
    yield* verifySigned({ aud: "https://a.example" })
    yield* verifySigned({ aud: "https://b.example" }, { typ: undefined })
  })

  it.effect.each(attacks)("refuses %s", function* ([, forge, sentence]) {
    const world = yield* oidcWorld()
    yield* refused(world, yield* forge(world), sentence)
  })

  it.effect.each(["jku", "x5u"])("refuses %s without a request", function* (parameter) {
    const world = yield* oidcWorld()
    const attacker = yield* makeOidcProvider()
    attacker.publish(stranger)
    const link = { [parameter]: `${attacker.issuer}/.well-known/jwks` }
    const sentence = new RegExp(`parameter "${parameter}"`)
    yield* refused(world, yield* world.provider.sign({}, { ...link, kid: "stranger" }, rs256(stranger)), sentence)
    yield* refused(world, yield* world.provider.sign({}, link), sentence)
    assert.lengthOf(attacker.requests, 0)
    assert.lengthOf(world.provider.requests, 0)
  })

  it.effect("refuses a published key of fewer than 2,048 bits", function* () {
    const world = yield* oidcWorld()
    const weak = rsaKey("weak", 1024)
    world.provider.publish(weak)
    yield* refused(world, yield* world.provider.sign({}, { kid: "weak" }, rs256(weak)), /cannot be verified/)
  })
})
