import { Clock, Effect, type Scope } from "effect"
import { createHmac, generateKeyPairSync, type JsonWebKey, type KeyObject, sign } from "node:crypto"
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"

/** A signing key of a provider or an attacker, with its published public half. */
export interface SigningKey {
  readonly kid: string
  readonly privateKey: KeyObject
  readonly jwk: JsonWebKey & { readonly kid: string }
}

const made = new Map<string, SigningKey>()
const remember = (name: string, make: () => SigningKey): SigningKey => {
  const key = made.get(name) ?? make()
  made.set(name, key)
  return key
}
const pair = (
  kid: string,
  { privateKey, publicKey }: { privateKey: KeyObject; publicKey: KeyObject },
  alg: string,
) => ({
  kid,
  privateKey,
  jwk: { ...publicKey.export({ format: "jwk" }), kid, use: "sig", alg },
})

/** The RSA key of a `kid`, created once per test file, because creation is slow. */
export const rsaKey = (kid: string, modulusLength = 2048): SigningKey =>
  remember(`rsa ${modulusLength} ${kid}`, () => pair(kid, generateKeyPairSync("rsa", { modulusLength }), "RS256"))
/** The P-256 key of a `kid`. */
export const ecKey = (kid: string): SigningKey =>
  remember(`ec ${kid}`, () => pair(kid, generateKeyPairSync("ec", { namedCurve: "P-256" }), "ES256"))

export type Signer = (input: string) => Uint8Array
export const rs256 =
  (key: SigningKey): Signer =>
  (input) =>
    sign("sha256", Buffer.from(input), key.privateKey)
export const rs512 =
  (key: SigningKey): Signer =>
  (input) =>
    sign("sha512", Buffer.from(input), key.privateKey)
export const ps256 =
  (key: SigningKey): Signer =>
  (input) =>
    sign("sha256", Buffer.from(input), { key: key.privateKey, padding: 6, saltLength: 32 })
export const es256 =
  (key: SigningKey): Signer =>
  (input) =>
    sign("sha256", Buffer.from(input), { key: key.privateKey, dsaEncoding: "ieee-p1363" })
export const hs256 =
  (secret: string | Uint8Array): Signer =>
  (input) =>
    createHmac("sha256", secret).update(input).digest()

const base64url = (part: object | string) =>
  Buffer.from(typeof part === "string" ? part : JSON.stringify(part)).toString("base64url")

/** A compact JWT of any header and payload, as objects or as JSON text. */
export const encodeToken = (header: object | string, payload: object | string, signer: Signer): string => {
  const input = `${base64url(header)}.${base64url(payload)}`
  return `${input}.${Buffer.from(signer(input)).toString("base64url")}`
}

/** The claims of a push to main of octo-org/octo-repo, in the form of GitHub's documentation; times in seconds. */
export const githubClaims = (issuer: string, audience: string, now: number) => ({
  jti: "example-id",
  sub: "repo:octo-org/octo-repo:ref:refs/heads/main",
  aud: audience,
  ref: "refs/heads/main",
  sha: "6dcb09b5b57875f334f61aebed695e2e4193db5e",
  repository: "octo-org/octo-repo",
  repository_owner: "octo-org",
  repository_owner_id: "65",
  repository_id: "74",
  repository_visibility: "private",
  run_id: "1658821493",
  run_number: "10",
  run_attempt: "2",
  runner_environment: "github-hosted",
  actor: "octocat",
  actor_id: "12",
  workflow: "docs",
  workflow_ref: "octo-org/octo-repo/.github/workflows/docs.yml@refs/heads/main",
  head_ref: "",
  base_ref: "",
  event_name: "push",
  ref_type: "branch",
  job_workflow_ref: "octo-org/octo-repo/.github/workflows/docs.yml@refs/heads/main",
  iss: issuer,
  nbf: now - 300,
  iat: now,
  exp: now + 300,
})

/** How the provider answers a request for its keys. */
export type Behaviour =
  | "normal"
  | "down" // the connection is cut
  | "error" // 500
  | "missing" // 404
  | "slow" // no answer, until it behaves otherwise
  | "trickle" // an answer that never ends
  | "redirect" // to /elsewhere, where the true keys are
  | "oversized" // the true keys, and 300 KiB more
  | "garbage" // not JSON
  | "no-key-set" // JSON, but no JWK Set

export interface OidcProvider {
  readonly issuer: string
  /** The audience of tokens from `sign`. */
  readonly audience: string
  /** The requests so far, to any path. */
  readonly requests: ReadonlyArray<{ readonly path: string; readonly headers: IncomingHttpHeaders }>
  /** Resolves once `n` requests have arrived in total. */
  readonly received: (n: number) => Effect.Effect<void>
  readonly behave: (behaviour: Behaviour) => void
  /** Sets the answer to a request for the discovery document, with members that replace those of the document. */
  readonly discover: (behaviour: Behaviour, document?: object) => void
  /** Replaces the published set with SigningKeys, or with any other members. */
  readonly publish: (...keys: ReadonlyArray<SigningKey | JsonWebKey | string | null>) => void
  /**
   * The JWT of a push to main, with the time of Effect's clock. An override of `undefined` omits the claim or
   * parameter.
   */
  readonly sign: (
    claims?: Record<string, unknown>,
    header?: Record<string, unknown>,
    signer?: Signer,
  ) => Effect.Effect<string>
}

/** A stand-in for the token provider on a loopback port, which publishes the key "key-1" until the scope closes. */
export const makeOidcProvider = (
  audience = "https://gatehouse.example",
): Effect.Effect<OidcProvider, never, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(
      Effect.callback<ReturnType<typeof start>>((resume) => {
        const started = start(audience, () => resume(Effect.succeed(started)))
      }),
      ({ server }) =>
        Effect.callback<void>((resume) => {
          server.close(() => resume(Effect.void))
          server.closeAllConnections()
        }),
    ),
    ({ provider }) => provider(),
  )

const discoveryPath = "/.well-known/openid-configuration"

const start = (audience: string, listening: () => void) => {
  let behaviour: Behaviour = "normal"
  let discovery: Behaviour = "normal"
  let described: object = {}
  let published: ReadonlyArray<unknown> = [rsaKey("key-1").jwk]
  const requests: Array<{ readonly path: string; readonly headers: IncomingHttpHeaders }> = []
  const waiting = new Set<() => void>()
  const held = new Set<() => void>()

  const json = (response: ServerResponse, body: object) =>
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(body))
  const answer = (request: IncomingMessage, response: ServerResponse) => {
    if (request.url?.split("?", 1)[0] === "/elsewhere") return json(response, { keys: published })
    const discovered = request.url?.endsWith(discoveryPath) === true
    if (discovered && discovery === "normal") {
      const base = `http://${request.headers.host}`
      const issuer = `${base}${request.url!.slice(0, -discoveryPath.length)}`
      return json(response, { issuer, jwks_uri: `${base}/.well-known/jwks`, ...described })
    }
    if (!discovered && request.url !== "/.well-known/jwks") return response.writeHead(404).end()
    switch (discovered ? discovery : behaviour) {
      case "normal":
        return json(response, { keys: published })
      case "down":
        return request.socket.destroy()
      case "error":
        return response.writeHead(500).end(JSON.stringify({ keys: published }))
      case "missing":
        return response.writeHead(404).end()
      case "slow":
        return held.add(() => answer(request, response))
      case "trickle":
        return response.writeHead(200).write(`{"keys":[`)
      case "redirect":
        return response.writeHead(302, { location: "/elsewhere" }).end(JSON.stringify({ keys: published }))
      case "oversized":
        response.writeHead(200).write(JSON.stringify({ keys: published }).slice(0, -1))
        return response.end(`,"padding":"${"x".repeat(300 * 1024)}"}`)
      case "garbage":
        return response.writeHead(200).end("<html>Down for maintenance</html>")
      case "no-key-set":
        return json(response, { keys: "none" })
    }
  }
  const server = createServer((request, response) => {
    requests.push({ path: request.url ?? "", headers: request.headers })
    waiting.forEach((check) => check())
    answer(request, response)
  }).listen(0, "127.0.0.1", listening)

  const provider = (): OidcProvider => {
    const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    return {
      issuer,
      audience,
      requests,
      received: (n) =>
        Effect.callback<void>((resume) => {
          const check = () => requests.length >= n && waiting.delete(check) && resume(Effect.void)
          waiting.add(check)
          check()
        }),
      behave: (next) => {
        behaviour = next
        const late = [...held]
        held.clear()
        late.forEach((answer) => answer())
      },
      discover: (next, document = {}) => {
        discovery = next
        described = document
      },
      publish: (...keys) => {
        published = keys.map((key) => (key !== null && typeof key === "object" && "privateKey" in key ? key.jwk : key))
      },
      sign: (claims, header, signer = rs256(rsaKey("key-1"))) =>
        Effect.map(Clock.currentTimeMillis, (now) =>
          encodeToken(
            { typ: "JWT", alg: "RS256", x5t: "example-thumbprint", kid: "key-1", ...header },
            { ...githubClaims(issuer, audience, Math.floor(now / 1000)), ...claims },
            signer,
          ),
        ),
    }
  }
  return { server, provider }
}
