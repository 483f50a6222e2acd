import { Context, type Duration, Effect, Redacted, Result } from "effect"
import { HttpServerResponse } from "effect/http"
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

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

/**
 * The value of a header that has a credential. Node reads the bytes of a header as Latin-1; most clients send UTF-8. Of
 * a header that was sent more than once, which Node joins by commas, the value if it is always the same.
 */
export const headerValue = (
  headers: Readonly<Record<string, string | ReadonlyArray<string> | undefined>>,
  name: string,
): string | undefined => {
  const joined = headers[name]
  if (typeof joined !== "string") return undefined
  const [first = "", ...others] = joined.split(", ").filter((one) => one !== "")
  const value = others.every((other) => other === first) ? first : joined
  if (!/[\x80-\xff]/.test(value)) return value
  try {
    return utf8.decode(Buffer.from(value, "latin1"))
  } catch {
    return value
  }
}

/**
 * Parses the credential of a request: the bearer token of `authorization`, or `x-api-key`. `undefined` without either
 * header. An empty one beside the other does not count. The token is plain text: use `read` wherever it could be
 * logged. Source: RFC 6750, section 2.1.
 */
export const parse = (
  headers: Readonly<Record<string, string | ReadonlyArray<string> | undefined>>,
): Result.Result<Credential | undefined, Unauthorized> => {
  const authorization = headerValue(headers, "authorization")
  const apiKey = headerValue(headers, "x-api-key")
  if (authorization === undefined || (authorization === "" && apiKey)) {
    return Result.succeed(apiKey === undefined ? undefined : { token: apiKey, bearer: false })
  }
  const token = bearer.exec(authorization)?.[1]
  if (token === undefined) return Result.fail(malformed)
  if (apiKey && apiKey !== token) return Result.fail(twice)
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
  return (text: string): boolean => {
    const given = Buffer.from(text)
    let found = false
    for (const one of expected) found = (one.length === given.length && timingSafeEqual(one, given)) || found
    return found
  }
}

/** `session`: of who is signed in. `sign_in`: of the browser in which a sign-in with the company's identity began. */
type Cookie = "session" | "sign_in"

/**
 * The name of a cookie. Behind TLS it has the prefix with which browsers take a cookie from this host alone: a
 * neighbour of the same domain could set one without it.
 */
const cookieName = (cookie: Cookie, secure: boolean) => `${secure ? "__Host-" : ""}gatehouse_${cookie}`
const cookies = /(?:^|;) *((?:__Host-)?gatehouse_(?:session|sign_in))=([\w.]{1,200})(?=;|$)/g

/** The value of a cookie; behind TLS, only of the one with the prefix. Source: RFC 6265, section 5.4. */
export const readCookie = (
  headers: Readonly<Record<string, string | undefined>>,
  cookie: Cookie,
  secure: boolean,
): Redacted.Redacted<string> | undefined => {
  for (const [, name, value] of (headers["cookie"] ?? "").matchAll(cookies)) {
    if (name === cookieName(cookie, secure)) return Redacted.make(value!)
  }
  return undefined
}

/**
 * Sets a cookie that scripts cannot read. Other sites do not send that of a session; that of a sign-in comes with the
 * way back from the identity provider.
 */
export const setCookie = (
  response: HttpServerResponse.HttpServerResponse,
  cookie: Cookie,
  value: string,
  { maxAge, secure }: { readonly maxAge: Duration.Duration; readonly secure: boolean },
) =>
  HttpServerResponse.setCookieUnsafe(response, cookieName(cookie, secure), value, {
    httpOnly: true,
    sameSite: cookie === "session" ? "strict" : "lax",
    path: "/",
    secure,
    maxAge,
  })

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
