import { Context, Effect, Redacted, Result } from "effect"
import { timingSafeEqual } from "node:crypto"
import { Unauthorized } from "../domain/Errors.ts"
import { hasLoopbackHost, TrustedProxies } from "./clientAddress.ts"

const bearer = /^Bearer +([^\s]+)$/i

const malformed = new Unauthorized({ error: "The Authorization header must be: Bearer <token>." })
const twice = new Unauthorized({ error: "Authorization and x-api-key hold different credentials; send one." })

/** A credential, and whether it came as `authorization: Bearer` or as `x-api-key`. */
export interface Credential {
  readonly token: string
  readonly bearer: boolean
}

/**
 * Parses the credential of a request: the bearer token of `authorization`, or `x-api-key`. `undefined` without either
 * header. The token is plain text: use `read` wherever it could be logged. Source: RFC 6750, section 2.1.
 */
export const parse = (
  headers: Readonly<Record<string, string | ReadonlyArray<string> | undefined>>,
): Result.Result<Credential | undefined, Unauthorized> => {
  const { authorization, "x-api-key": apiKey } = headers as Readonly<Record<string, string | undefined>>
  if (authorization === undefined) {
    return Result.succeed(apiKey === undefined ? undefined : { token: apiKey, bearer: false })
  }
  const token = bearer.exec(authorization)?.[1]
  if (token === undefined) return Result.fail(malformed)
  if (apiKey !== undefined && apiKey !== token) return Result.fail(twice)
  return Result.succeed({ token, bearer: true })
}

/** A credential whose token does not appear in logs. */
export interface RedactedCredential {
  readonly token: Redacted.Redacted<string>
  readonly bearer: boolean
}

/** Parses the credential of a request, with a redacted token. */
export const read = (headers: Readonly<Record<string, string | undefined>>) =>
  Effect.map(
    Effect.fromResult(parse(headers)),
    (credential) => credential && { ...credential, token: Redacted.make(credential.token) },
  )

/** Makes a check for tokens. Its duration reveals only the number and the lengths of the tokens. */
export const tokenCheck = (tokens: ReadonlyArray<Redacted.Redacted<string>>) => {
  const expected = tokens.map((token) => Buffer.from(Redacted.value(token)))
  const lengths = new Set(expected.map(({ length }) => length))
  return (text: string): boolean => {
    if (!lengths.has(text.length)) return false
    const given = Buffer.from(text)
    let found = false
    for (const one of expected) found = (one.length === given.length && timingSafeEqual(one, given)) || found
    return found
  }
}

/**
 * The name of the session cookie. Behind TLS it has the prefix with which browsers take a cookie from this host alone:
 * a neighbour of the same domain could set one without it.
 */
export const sessionCookieName = (secure: boolean) => `${secure ? "__Host-" : ""}gatehouse_session`
const sessionCookie = /(?:^|;) *((?:__Host-)?gatehouse_session)=([\w.]{1,200})(?=;|$)/g

/** The token of the session cookie; behind TLS, only of the one with the prefix. Source: RFC 6265, section 5.4. */
export const readSession = (
  headers: Readonly<Record<string, string | undefined>>,
  secure: boolean,
): Redacted.Redacted<string> | undefined => {
  for (const [, name, token] of (headers["cookie"] ?? "").matchAll(sessionCookie)) {
    if (name === sessionCookieName(secure)) return Redacted.make(token!)
  }
  return undefined
}

/** The administrator's tokens (`undefined` in open mode) and the BASE_URL of the service. */
export class AdminTokens extends Context.Service<
  AdminTokens,
  { readonly tokens: ReadonlyArray<Redacted.Redacted<string>> | undefined; readonly baseUrl: string }
>()("gatehouse/http/Authorization/AdminTokens") {}

/**
 * Whether the client reached the service by TLS: the nearest trusted proxy says so, the last in `x-forwarded-proto`;
 * without a word of it, by BASE_URL, for requests from elsewhere.
 */
export const isBehindTls = (headers: Readonly<Record<string, string | undefined>>, baseUrl: string) =>
  Effect.map(TrustedProxies, (proxies) => {
    const proto = proxies > 0 ? headers["x-forwarded-proto"]?.split(",").at(-1)!.trim() : undefined
    return proto === undefined
      ? baseUrl.startsWith("https:") && !hasLoopbackHost(headers)
      : proto.toLowerCase() === "https"
  })
