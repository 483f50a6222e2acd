import { NodeHttpClient } from "@effect/platform-node"
import { assert, describe } from "@effect/vitest"
import { Context, Effect, Layer, Redacted } from "effect"
import { TestClock } from "effect/testing"
import { createPublicKey } from "node:crypto"
import { type CiProvider, CiTokenVerifier } from "#src/domain/deployments/CiRun.ts"
import { presetOf } from "#src/domain/deployments/providers/knownProviders.ts"
import { Unauthorized, Unavailable } from "#src/domain/Errors.ts"
import * as Oidc from "#src/infrastructure/oidc/CiTokenVerifier.ts"
import { ciClaims, type CiName, ciNames } from "../../support/ciTokens.ts"
import { it } from "../../support/it.ts"
import {
  type Behaviour,
  ecKey,
  encodeToken,
  es256,
  hs256,
  makeOidcProvider,
  type OidcProvider,
  rs256,
  rsaKey,
  type Signer,
} from "../../support/oidc.ts"
import { startOfTest } from "../../support/oidcWorld.ts"

/** Promise (Credentials): Of 135 forged tokens over five CI providers, none is accepted. */

const now = startOfTest / 1000
const issuerPath: Partial<Record<CiName, string>> = {
  bitbucket: "/2.0/workspaces/acme/pipelines-config/identity/oidc",
  circleci: "/org/c9035eb6-6eb2-4c85-8a81-d9ed6a1d1d1e",
}
const audienceOf = (name: CiName) =>
  name === "circleci" ? "c9035eb6-6eb2-4c85-8a81-d9ed6a1d1d1e" : "https://gatehouse.example"

interface Trusted extends CiProvider {
  readonly name: CiName
  readonly server: OidcProvider
}

/** Five providers, each with its own keys, and a verifier that trusts them. */
const makeWorld = Effect.gen(function* () {
  yield* TestClock.setTime(startOfTest)
  const trusted = yield* Effect.forEach(ciNames, (name) =>
    Effect.map(makeOidcProvider(audienceOf(name)), (server): Trusted => {
      server.publish(rsaKey(`${name}-key`), ecKey(`${name}-ec`))
      const issuer = `${server.issuer}${issuerPath[name] ?? ""}`
      const { pinFault, read } = presetOf(name)
      return {
        name,
        server,
        provider: name,
        issuer,
        audiences: [audienceOf(name)],
        algorithms: ["RS256"],
        jwks: undefined,
        read: read(issuer),
        pinFault,
      }
    }),
  )
  const tokens = Context.get(
    yield* Layer.build(Layer.provide(Oidc.layer(trusted), NodeHttpClient.layerUndici)),
    CiTokenVerifier,
  )
  const find = (name: CiName) => trusted.find((one) => one.name === name)!
  return { trusted, find, verify: (token: string) => tokens.verify(Redacted.make(token)) }
})
type World = Effect.Success<typeof makeWorld>

const claimsOf = ({ find }: World, name: CiName) => {
  const { audiences, issuer } = find(name)
  return ciClaims[name](issuer, audiences[0]!, now) as Record<string, unknown>
}
const sign = (
  name: CiName,
  claims: Record<string, unknown>,
  header: object = {},
  signer: Signer = rs256(rsaKey(`${name}-key`)),
) => encodeToken({ typ: "JWT", alg: "RS256", kid: `${name}-key`, ...header }, claims, signer)

type Forge = (world: World, name: CiName, other: CiName) => string
/** Attacks on each provider; `other` is another trusted provider. */
const forgeries: Readonly<Record<string, Forge>> = {
  "signed by another provider, with its kid": (world, name, other) =>
    sign(name, claimsOf(world, name), { kid: `${other}-key` }, rs256(rsaKey(`${other}-key`))),
  "signed by another provider, with this provider's kid": (world, name, other) =>
    sign(name, claimsOf(world, name), {}, rs256(rsaKey(`${other}-key`))),
  "another provider's issuer in a token that this provider signed": (world, name, other) =>
    sign(name, { ...claimsOf(world, name), iss: world.find(other).issuer }),
  "another provider's issuer and kid, signed by this provider": (world, name, other) =>
    sign(name, { ...claimsOf(world, other) }, { kid: `${other}-key` }),
  "two issuers": (world, name, other) =>
    sign(name, { ...claimsOf(world, name), iss: [world.find(name).issuer, world.find(other).issuer] }),
  "an untrusted issuer": (world, name) => sign(name, { ...claimsOf(world, name), iss: "https://token.example" }),
  "an issuer with another slash": (world, name) =>
    sign(name, { ...claimsOf(world, name), iss: `${world.find(name).issuer}/` }),
  "an issuer in another case": (world, name) =>
    sign(name, { ...claimsOf(world, name), iss: world.find(name).issuer.toUpperCase() }),
  "no issuer": (world, name) => sign(name, { ...claimsOf(world, name), iss: undefined }),
  "another audience": (world, name) => sign(name, { ...claimsOf(world, name), aud: "https://elsewhere.example" }),
  "no audience": (world, name) => sign(name, { ...claimsOf(world, name), aud: undefined }),
  "no expiry": (world, name) => sign(name, { ...claimsOf(world, name), exp: undefined }),
  expired: (world, name) => sign(name, { ...claimsOf(world, name), exp: now - 31 }),
  "issued in the future": (world, name) => sign(name, { ...claimsOf(world, name), iat: now + 60 }),
  "not valid yet": (world, name) => sign(name, { ...claimsOf(world, name), nbf: now + 60 }),
  unsigned: (world, name) => sign(name, claimsOf(world, name), { alg: "none" }, () => new Uint8Array(1)),
  "HMAC with the public key": (world, name) => {
    const pem = createPublicKey(rsaKey(`${name}-key`).privateKey).export({ type: "spki", format: "pem" })
    return sign(name, claimsOf(world, name), { alg: "HS256" }, hs256(pem.toString()))
  },
  "an algorithm that the entry does not allow": (world, name) =>
    sign(name, claimsOf(world, name), { alg: "ES256", kid: `${name}-ec` }, es256(ecKey(`${name}-ec`))),
  "a key of the attacker, named by address": (world, name) =>
    sign(name, claimsOf(world, name), { jku: "https://evil.example/jwks" }, rs256(rsaKey("evil"))),
  "a key that is not published": (world, name) =>
    sign(name, claimsOf(world, name), { kid: "evil" }, rs256(rsaKey("evil"))),
}

const circle = "oidc.circleci.com"
/** Claims that each provider must refuse. */
const claims: ReadonlyArray<readonly [CiName, Record<string, unknown>]> = [
  ["github", { event_name: "pull_request_target" }],
  ["github", { repository: "stranger/octo-repo" }],
  ["github", { repository_id: "74 OR 1=1" }],
  ["github", { repository_owner: "octo-org/octo-repo" }],
  ["gitlab", { project_path: "stranger/my-project" }],
  ["gitlab", { namespace_path: "stranger" }],
  ["gitlab", { project_id: ["20"] }],
  ["gitlab", { ref: "main\nrefs/heads/main" }],
  ["bitbucket", { repositoryUuid: "*" }],
  ["bitbucket", { branchName: undefined }],
  ["circleci", { [`${circle}/ssh-rerun`]: true }],
  ["circleci", { [`${circle}/vcs-origin`]: "octo/widgets/.." }],
  ["circleci", { [`${circle}/project-id`]: undefined }],
  ["buildkite", { pipeline_id: undefined }],
  ["buildkite", { organization_slug: "acme inc" }],
]

const attacks = [
  ...Object.entries(forgeries).flatMap(([what, forge]) =>
    ciNames.map((name, at) => {
      const other = ciNames[(at + 1) % ciNames.length]!
      return { what: `${name}: ${what}`, forge: (world: World) => forge(world, name, other) }
    }),
  ),
  // The claims of one provider in a token of another: the same fields with another meaning.
  ...ciNames.flatMap((name) =>
    ciNames
      .filter((other) => other !== name)
      .map((other) => ({
        what: `${name}: the claims of ${other}`,
        forge: (world: World) => {
          const { aud, iss } = claimsOf(world, name)
          return sign(name, { ...claimsOf(world, other), iss, aud })
        },
      })),
  ),
  ...claims.map(([name, overrides]) => ({
    what: `${name}: ${JSON.stringify(overrides)}`,
    forge: (world: World) => sign(name, { ...claimsOf(world, name), ...overrides }),
  })),
]

describe("tokens of five providers", () => {
  it.effect("are accepted, each for its own provider and issuer", function* () {
    const world = yield* makeWorld
    for (const name of ciNames) {
      const run = yield* world.verify(sign(name, claimsOf(world, name)))
      assert.deepStrictEqual([run.provider, run.issuer], [name, world.find(name).issuer])
      assert.isNull(run.previewReason)
    }
  })

  it.effect(`of ${attacks.length} attacks, none is accepted, and no answer repeats a token`, function* () {
    const world = yield* makeWorld
    assert.isAtLeast(attacks.length, 60)
    const accepted: Array<string> = []
    for (const { forge, what } of attacks) {
      const token = forge(world)
      const result = yield* Effect.result(world.verify(token))
      if (result._tag === "Success") accepted.push(what)
      else {
        assert.instanceOf(result.failure, Unauthorized, what)
        for (const part of token.split(".")) if (part.length > 3) assert.notInclude(result.failure.error, part)
      }
    }
    assert.deepStrictEqual(accepted, [])
  })

  it.effect("the audience of an entry is valid for that entry only", function* () {
    const world = yield* makeWorld
    const token = sign("gitlab", { ...claimsOf(world, "gitlab"), aud: audienceOf("circleci") })
    assert.instanceOf(yield* Effect.flip(world.verify(token)), Unauthorized)
  })
})

describe("discovery", () => {
  const faults: ReadonlyArray<readonly [string, string, Behaviour, object?]> = [
    ["down", "no response: UND_ERR_SOCKET", "down"],
    ["an error", "openid-configuration answers with status 500", "error"],
    ["a redirect", "openid-configuration answers with status 302", "redirect"],
    ["too large", "more than 262144 bytes", "oversized"],
    ["no JSON", "is no JSON with issuer and jwks_uri", "garbage"],
    [
      "another issuer's",
      "is of the issuer https://elsewhere.example",
      "normal",
      { issuer: "https://elsewhere.example" },
    ],
    ["without keys", "is no JSON with issuer and jwks_uri", "normal", { jwks_uri: undefined }],
    ["keys at another host without TLS", "must be an https URL", "normal", { jwks_uri: "http://127.0.0.2:9/jwks" }],
    ["keys in a file", "must be an https URL", "normal", { jwks_uri: "file:///etc/passwd" }],
  ]
  it.effect("an issuer without a document has its keys where GitHub has them", function* () {
    const world = yield* makeWorld
    const { server } = world.find("gitlab")
    server.discover("missing")
    server.behave("missing")
    const token = sign("gitlab", claimsOf(world, "gitlab"))
    const refused = yield* Effect.flip(world.verify(token))
    assert.include(refused.error, "/.well-known/jwks answers with status 404")
    server.behave("normal")
    yield* TestClock.adjust("5 seconds")
    yield* world.verify(token)
  })

  it.effect.each(faults)("is unavailable, and says why: %s", function* ([, reason, behaviour, document]) {
    const world = yield* makeWorld
    const { server } = world.find("gitlab")
    server.discover(behaviour, document)
    const token = sign("gitlab", claimsOf(world, "gitlab"))
    const refused = yield* Effect.flip(world.verify(token))
    assert.instanceOf(refused, Unavailable)
    assert.include(refused.error, reason)
    assert.lengthOf(server.requests, 1)
    server.discover("normal")
    yield* TestClock.adjust("5 seconds")
    yield* world.verify(token)
  })

  it.effect("an entry may allow other algorithms, with keys of their kind", function* () {
    yield* TestClock.setTime(startOfTest)
    const server = yield* makeOidcProvider()
    server.publish(rsaKey("rsa"), ecKey("ec"))
    const { audience, issuer } = server
    const { pinFault, read } = presetOf("gitlab")
    const provider = {
      provider: "gitlab",
      issuer,
      audiences: [audience],
      jwks: undefined,
      read: read(issuer),
      pinFault,
    }
    const layer = Oidc.layer([{ ...provider, algorithms: ["ES256"] }])
    const { verify } = Context.get(
      yield* Layer.build(Layer.provide(layer, NodeHttpClient.layerUndici)),
      CiTokenVerifier,
    )
    const claims = ciClaims.gitlab(issuer, audience, now)
    const token = encodeToken({ alg: "ES256", kid: "ec" }, claims, es256(ecKey("ec")))
    assert.strictEqual((yield* verify(Redacted.make(token))).repositoryId, "20")
    const rsa = encodeToken({ alg: "RS256", kid: "rsa" }, claims, rs256(rsaKey("rsa")))
    assert.match((yield* Effect.flip(verify(Redacted.make(rsa)))).error, /signed with ES256/)
  })
})
