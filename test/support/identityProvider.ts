import { Clock, Effect, type Scope } from "effect"
import { createServer, type IncomingHttpHeaders, type Server, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { adminToken, type Environment, TestServer } from "./server.ts"
import { encodeToken, rs256, rsaKey, type Signer } from "./oidc.ts"

export const clientId = "gatehouse"
export const clientSecret = "a secret: with + and %"

/** Starts a server on a free port of loopback until the scope ends. Returns its URL. */
export const listening = (server: Server) =>
  Effect.acquireRelease(
    Effect.callback<void>((resume) => void server.listen(0, "127.0.0.1", () => resume(Effect.void))),
    () =>
      Effect.callback<void>((resume) => {
        server.close(() => resume(Effect.void))
        server.closeAllConnections()
      }),
  ).pipe(Effect.map(() => `http://127.0.0.1:${(server.address() as AddressInfo).port}`))

/** How the provider answers at an address. */
export type Answer =
  | { readonly json: object; readonly status?: number }
  | { readonly text: string }
  | "down"
  | "silent"
  | "redirect"

/** A stand-in for an OpenID Connect provider, which says what a test wants, also what no real one would. */
export interface IdentityProvider {
  readonly issuer: string
  /** The requests for tokens so far. */
  readonly exchanges: ReadonlyArray<{
    readonly headers: IncomingHttpHeaders
    readonly form: Readonly<Record<string, string>>
  }>
  /** Replaces the discovery document, with other members or another answer. */
  readonly discover: (answer: Answer) => void
  /** What the next exchanges answer. */
  readonly answer: (answer: Answer) => void
  /** A signed token; an override of `undefined` leaves the claim out. */
  readonly sign: (
    claims?: Readonly<Record<string, unknown>>,
    header?: Readonly<Record<string, unknown>>,
    signer?: Signer,
  ) => Effect.Effect<string>
}

export const makeIdentityProvider: Effect.Effect<IdentityProvider, never, Scope.Scope> = Effect.gen(function* () {
  const exchanges: Array<IdentityProvider["exchanges"][number]> = []
  const state: { discovery: Answer; tokens: Answer } = { discovery: { json: {} }, tokens: { json: {} } }
  const say = (response: ServerResponse, answer: Answer) => {
    if (answer === "down") return response.destroy()
    if (answer === "silent") return undefined
    if (answer === "redirect") return response.writeHead(302, { location: "/elsewhere" }).end()
    if ("text" in answer) return response.end(answer.text)
    return response
      .writeHead(answer.status ?? 200, { "content-type": "application/json" })
      .end(JSON.stringify(answer.json))
  }
  const server = createServer((request, response) => {
    const issuer = `http://${request.headers.host}`
    const path = request.url!.split("?", 1)[0]
    if (path === "/keys") return say(response, { json: { keys: [rsaKey("key-1").jwk] } })
    if (path === "/.well-known/openid-configuration") {
      const { discovery } = state
      const usual = {
        issuer,
        jwks_uri: `${issuer}/keys`,
        authorization_endpoint: `${issuer}/authorize?tenant=acme`,
        token_endpoint: `${issuer}/token`,
      }
      const isOther = typeof discovery === "string" || "text" in discovery || discovery.status !== undefined
      return say(response, isOther ? discovery : { json: { ...usual, ...discovery.json } })
    }
    if (path !== "/token") return response.writeHead(404).end()
    let body = ""
    request.on("data", (piece) => (body += String(piece)))
    return request.on("end", () => {
      exchanges.push({ headers: request.headers, form: Object.fromEntries(new URLSearchParams(body)) })
      say(response, state.tokens)
    })
  })
  const issuer = yield* listening(server)
  return {
    issuer,
    exchanges,
    discover: (answer) => void (state.discovery = answer),
    answer: (answer) => void (state.tokens = answer),
    sign: (claims, header, signer = rs256(rsaKey("key-1"))) =>
      Effect.map(Clock.currentTimeMillis, (millis) => {
        const now = Math.floor(millis / 1000)
        const usual = { iss: issuer, aud: clientId, sub: "248289761001", iat: now, exp: now + 3600 }
        return encodeToken({ alg: "RS256", kid: "key-1", ...header }, { ...usual, ...claims }, signer)
      }),
  }
})

/** The variables of a server whose people sign in at a provider. */
export const signInWith = (issuer: string, roles: object): Environment => ({
  ADMIN_TOKEN: adminToken,
  CONSOLE_OIDC_ISSUER: issuer,
  CONSOLE_OIDC_CLIENT_ID: clientId,
  CONSOLE_OIDC_CLIENT_SECRET: clientSecret,
  CONSOLE_OIDC_ROLES: JSON.stringify(roles),
})

/** The cookie of a name that a response sets, as a browser sends it back. */
export const cookieNamed = (name: string, headers: Readonly<Record<string, unknown>>) =>
  ((headers["set-cookie"] ?? []) as ReadonlyArray<string>).find((one) => one.includes(name))?.split(";", 1)[0]

/** Begins a sign-in: the cookie of the browser, and what the provider is asked. */
export const begin = Effect.fnUntraced(function* (path = "/console/sign-in") {
  const { send } = yield* TestServer
  const answer = yield* send("GET", path)
  if (answer.status !== 303) return yield* Effect.die(new Error(`${answer.status} ${answer.text}`))
  const url = new URL(answer.headers.location!)
  return { answer, url, cookie: cookieNamed("sign_in", answer.headers)!, ...Object.fromEntries(url.searchParams) } as {
    readonly answer: typeof answer
    readonly url: URL
    readonly cookie: string
    readonly state: string
    readonly nonce: string
  }
})

/** Comes back from the provider. */
export const comeBack = Effect.fnUntraced(function* (query: Readonly<Record<string, string>>, cookie?: string) {
  const { send } = yield* TestServer
  const path = `/console/sign-in/callback?${new URLSearchParams(query)}`
  return yield* send("GET", path, { headers: cookie === undefined ? {} : { cookie } })
})

/** Signs in with claims. Returns the answer, and the headers of the session's requests. */
export const signInWithClaims = Effect.fnUntraced(function* (
  provider: IdentityProvider,
  claims: Readonly<Record<string, unknown>>,
  path?: string,
) {
  const { send } = yield* TestServer
  const { cookie, nonce, state } = yield* begin(path)
  provider.answer({ json: { id_token: yield* provider.sign({ nonce, ...claims }) } })
  const answer = yield* comeBack({ code: "a-code", state }, cookie)
  const session = cookieNamed("gatehouse_session", answer.headers)
  if (session === undefined) return { answer, me: undefined, headers: {} }
  const current = yield* send("GET", "/api/v0/sessions/current", { headers: { cookie: session } })
  const me = current.json as {
    readonly csrfToken: string
    readonly operations: ReadonlyArray<string>
    readonly expiresAt: string
  }
  return { answer, me, headers: { cookie: session, "x-csrf-token": me.csrfToken } }
})
