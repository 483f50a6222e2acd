import { Context, Effect, Redacted, Result } from "effect"
import { timingSafeEqual } from "node:crypto"
import { Unauthorized } from "../domain/Errors.ts"

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

const sessionCookie = /(?:^|;) *(?:__Host-)?gatehouse_session=([\w.]{1,200})(?:;|$)/

/** The token of the session cookie. Source: RFC 6265, section 5.4. */
export const readSession = (
  headers: Readonly<Record<string, string | undefined>>,
): Redacted.Redacted<string> | undefined => {
  const token = sessionCookie.exec(headers["cookie"] ?? "")?.[1]
  return token === undefined ? undefined : Redacted.make(token)
}

/** The administrator's tokens (`undefined` in open mode) and the BASE_URL of the service. */
export class AdminTokens extends Context.Service<
  AdminTokens,
  { readonly tokens: ReadonlyArray<Redacted.Redacted<string>> | undefined; readonly baseUrl: string }
>()("gatehouse/http/Authorization/AdminTokens") {}
