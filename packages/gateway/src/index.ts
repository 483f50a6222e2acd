/** The owner of a valid key. */
export interface KeyOwner {
  readonly keyId: string
  readonly orgId: string
  /** Empty for a key of the whole org. */
  readonly projectId: string
}

declare global {
  namespace Express {
    interface Request {
      /** The owner of the request's key. `withExpress` sets it; on routes without it, it is undefined. */
      gatehouse: KeyOwner
    }
  }
}

/** @ts-ignore Only where Fastify is installed. */
declare module "fastify" {
  interface FastifyRequest {
    /** The owner of the request's key. `withFastify` sets it; on routes without it, it is undefined. */
    gatehouse: KeyOwner
  }
}

/** @ts-ignore Only where Hono is installed. */
declare module "hono" {
  interface ContextVariableMap {
    /** The owner of the request's key. `withHono` sets it; on routes without it, it is undefined. */
    gatehouse: KeyOwner
  }
}

export interface GatewayOptions {
  /** The address of Gatehouse: `https://gatehouse.example.com`. */
  readonly url: string
  /**
   * The gateway's own credential: an API key or an administrator's token. Without one, its failures are rate limited.
   */
  readonly credential?: string | undefined
  /**
   * The header that has the key, as it is or after `Bearer`; no other header is read then. Default: the bearer token of
   * `authorization`, or `x-api-key`.
   */
  readonly keyHeader?: string | undefined
  /**
   * How long a valid key may be answered from memory, in seconds, 0 to 60. A deleted or changed key is accepted up to
   * that long, and rate limits and usage do not count what memory answers. Default: 0, which asks Gatehouse for each
   * request.
   */
  readonly cacheSeconds?: number | undefined
  /** How long Gatehouse may take, in milliseconds. Default: 2000. */
  readonly timeoutMillis?: number | undefined
  /** Called when Gatehouse does not answer as it should: log it. The client gets a 503. */
  readonly onFault?: ((message: string) => void) | undefined
  /**
   * Also accepts tokens of `POST /api/v0/keys/token` of this issuer: the `BASE_URL` of Gatehouse. They are verified
   * without a call, so that no use counts, and a deleted key is accepted until its token ends.
   */
  readonly tokens?: { readonly issuer: string } | undefined
  /**
   * `"pass"`: a browser's preflight (`OPTIONS` with `Access-Control-Request-Method`), which has no key, passes without
   * an owner, and the handler answers it. Default: it is refused like any request without a key, so that only a
   * middleware in front of the gateway answers it.
   */
  readonly cors?: "pass" | undefined
  /** Another `fetch`, for tests. */
  readonly fetch?: typeof fetch | undefined
}

/** What a gateway answers instead of passing the request on. */
export interface Refusal {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: { readonly error: string; readonly code: string }
}

/** Headers of a request: a `Headers`, or an object such as those of Node and of events of AWS Lambda. */
export type RequestHeaders =
  | { readonly get: (name: string) => string | null | undefined }
  | Readonly<Record<string, string | ReadonlyArray<string> | undefined>>

/** Exactly one of both is there. */
export type Decision =
  | { readonly owner: KeyOwner; readonly refusal?: undefined }
  | { readonly owner?: undefined; readonly refusal: Refusal }

/** What a request uses. */
export interface Use {
  /**
   * Permissions that the key needs, all of them: 1 to 20. A key that lacks one is a 403 that names it. Default: none.
   */
  readonly permissions?: ReadonlyArray<string> | undefined
  /** The address of the client, for keys with `allowedIps`. */
  readonly clientIp?: string | undefined
  /**
   * What it takes of the rate limit and the credits of the key: 0 to 1,000,000. A use that names its cost is never
   * answered from memory. Default: 1.
   */
  readonly cost?: number | undefined
}

export interface Gateway<Cors extends "pass" | undefined = "pass" | undefined> {
  /** Decides about a request by its headers, and what it uses. Never throws. */
  readonly check: (headers: RequestHeaders, use?: Use) => Promise<Decision>
  /** Whether preflights pass: that of the options. */
  readonly cors: Cors
}

interface HttpRequest {
  readonly method?: string | undefined
  readonly headers: RequestHeaders
}

/** The decision about a request; neither an owner nor a refusal for a preflight that passes. */
const decide = async ({ check, cors }: Gateway, { headers, method }: HttpRequest, use: Use | undefined) =>
  cors === "pass" && method === "OPTIONS" && headerOf(headers, "access-control-request-method")
    ? { owner: undefined, refusal: undefined }
    : check(headers, use)

/** How many valid keys the memory holds. */
const maxCached = 10_000

const refusal = (status: number, code: string, error: string, headers: Refusal["headers"] = {}): Decision => ({
  refusal: { status, headers: { "cache-control": "no-store", ...headers }, body: { error, code } },
})

const bearer = { "www-authenticate": "Bearer" }
const unavailable = () =>
  refusal(503, "unavailable", "The key cannot be checked now; try again.", { "retry-after": "1" })

/** What the value of a header may have, as runtimes read its bytes. */
const inHeader = /^[\t\x20-\x7e\x80-\xff]*$/
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

/** The value of a header in an object. Node writes its name in lower case, and events of Lambda as it was sent. */
const valueOf = (headers: Readonly<Record<string, unknown>>, name: string): unknown =>
  headers[name] ?? Object.entries(headers).find(([one]) => one.toLowerCase() === name)?.[1]

/** The value of a header. Of one that was sent more than once, the value if it is always the same. */
const headerOf = (headers: RequestHeaders, name: string): string | undefined => {
  const value =
    typeof headers.get === "function" ? headers.get(name) : valueOf(headers as Record<string, unknown>, name)
  const joined = Array.isArray(value) ? value.join(", ") : value
  if (typeof joined !== "string" || !inHeader.test(joined)) return undefined
  const [first = "", ...others] = joined.split(", ").filter((one) => one !== "")
  return others.every((other) => other === first) ? first : joined
}

/** Runtimes read the bytes of a header as Latin-1; most clients send UTF-8. */
const decoded = (value: string): string => {
  try {
    return utf8.decode(Uint8Array.from(value, (character) => character.charCodeAt(0)))
  } catch {
    return value
  }
}

/** The longest key, in characters. A longer credential is none. */
const maxKeyLength = 255

/** How a client sends its key: `read` takes the key from the headers, `said` tells a client without one. */
const keyIn = (keyHeader: string | undefined) => {
  if (keyHeader === undefined) {
    const read = (headers: RequestHeaders): string | undefined => {
      const [authorization, apiKey] = [headerOf(headers, "authorization"), headerOf(headers, "x-api-key")]
      if (!authorization) return apiKey
      const token = /^Bearer +(\S+)$/i.exec(authorization)?.[1]
      return apiKey && apiKey !== token ? undefined : token
    }
    return { read, said: "Authorization: Bearer <key>, or x-api-key: <key>; not two that differ" }
  }
  // In lower case, as Node has it; throws on what cannot be the name of a header.
  const name = new Headers([[keyHeader, ""]]).keys().next().value!
  const read = (headers: RequestHeaders): string | undefined => headerOf(headers, name)?.replace(/^Bearer +/i, "")
  return { read, said: `${name}: <key>` }
}

interface KeyResponse {
  readonly status: number
  readonly retryAfter: string | null
  readonly body: Partial<KeyOwner> & { readonly error?: string; readonly code?: string }
}

/** The JSON of a response; empty for anything else. */
const bodyOf = async (response: Response): Promise<KeyResponse["body"]> => {
  const text = await response.text()
  try {
    return (JSON.parse(text) as KeyResponse["body"] | null) ?? {}
  } catch {
    return {}
  }
}

/** Why a key cannot be checked, in words of this package: those of others may have a credential in them. */
class Fault extends Error {}

const faultOf = (status: number) => {
  const said =
    status === 401
      ? "The credential is not valid; the gateway needs another"
      : status === 400
        ? "The permissions or the cost of the check are not valid"
        : status >= 300 && status < 400
          ? "It redirects, and a redirect is not followed"
          : "Not a response to a key"
  return new Fault(`status ${status}: ${said}`)
}

/** Gatehouse's response to a key that is not valid. Any other 401 is about the gateway's own credential. */
const invalidKey = "The key is not valid."

const toDecision = ({ body, retryAfter, status }: KeyResponse): Decision | undefined => {
  const { code = "", error = "", keyId, orgId, projectId } = body
  if (status === 200 && keyId !== undefined && orgId !== undefined && projectId !== undefined) {
    return { owner: { keyId, orgId, projectId } }
  }
  if (code === "" || error === "") return undefined
  if (status === 401 && error === invalidKey) return refusal(401, code, error, bearer)
  if (status === 403) return refusal(403, code, error)
  if (status === 429) return refusal(429, code, error, retryAfter === null ? {} : { "retry-after": retryAfter })
  return undefined
}

/** The parts of a JWT in the compact form. */
const tokenShape = /^[\w-]+\.[\w-]+\.[\w-]*$/
/** How often the public keys are read at most, for tokens whose key is not known, unless a read fails. */
const readAgainMillis = 30_000

/** A public key of Gatehouse. */
interface PublicKey {
  readonly kid: string
  readonly kty: string
  readonly crv: string
  readonly x: string
}
type VerifyKey = Awaited<ReturnType<typeof crypto.subtle.importKey>>

interface Claims {
  readonly iss: string
  readonly sub: string
  readonly org: string
  readonly project: string
  readonly permissions: ReadonlyArray<string>
  readonly exp: number
}

const bytesOf = (part: string) =>
  Uint8Array.from(atob(part.replaceAll("-", "+").replaceAll("_", "/")), (character) => character.charCodeAt(0))
const jsonOf = (part: string): unknown => JSON.parse(new TextDecoder().decode(bytesOf(part)))

/** The parts of a token that is not verified yet; `undefined` for one that cannot be read. */
const parseToken = (token: string) => {
  const [header = "", payload = "", signature = ""] = token.split(".")
  try {
    const { alg, kid } = jsonOf(header) as { readonly alg?: string; readonly kid?: string }
    const content = new TextEncoder().encode(`${header}.${payload}`)
    return { alg, kid, claims: jsonOf(payload) as Claims | null, content, signature: bytesOf(signature) }
  } catch {
    return undefined
  }
}

const isGranted = (list: ReadonlyArray<string>, needed: string) =>
  list.some((one) => one === "*" || one === needed || (one.endsWith(".*") && needed.startsWith(one.slice(0, -1))))

/** Makes the check of tokens. Throws when the public keys cannot be read. */
const makeTokenCheck = (issuer: string, readKeys: () => Promise<ReadonlyArray<PublicKey>>) => {
  const invalid = () => refusal(401, "unauthorized", "The token is not valid.", bearer)
  let keys = new Map<string, VerifyKey>()
  let readAt = -Infinity
  let reading: Promise<void> | undefined
  const read = async () => {
    const published = await readKeys()
    const imported = published.map(async ({ crv, kid, kty, x }) => {
      const key = await crypto.subtle.importKey("jwk", { crv, kty, x }, "Ed25519", false, ["verify"])
      return [kid, key] as const
    })
    keys = new Map(await Promise.all(imported))
    readAt = performance.now()
  }
  const keyOf = async (kid: string) => {
    if (!keys.has(kid) && (reading !== undefined || performance.now() - readAt >= readAgainMillis)) {
      await (reading ??= read().finally(() => (reading = undefined)))
    }
    return keys.get(kid)
  }

  return async (token: string, permissions: ReadonlyArray<string> = []): Promise<Decision> => {
    const { alg, claims, content, kid, signature } = parseToken(token) ?? {}
    if (alg !== "EdDSA" || kid === undefined || claims?.iss !== issuer || !(claims.exp * 1000 > Date.now())) {
      return invalid()
    }
    const key = await keyOf(kid)
    if (key === undefined || !(await crypto.subtle.verify("Ed25519", key, signature!, content!))) return invalid()
    const missing = permissions.find((needed) => !isGranted(claims.permissions, needed))
    if (missing !== undefined) {
      return refusal(403, "forbidden", `The token does not have the permission ${missing}.`)
    }
    return { owner: { keyId: claims.sub, orgId: claims.org, projectId: claims.project } }
  }
}

/** Makes a gateway's check of API keys. */
export const makeGateway = <Cors extends "pass" | undefined = undefined>(
  options: GatewayOptions & { readonly cors?: Cors },
): Gateway<Cors> => {
  const { cacheSeconds = 0, credential, keyHeader, onFault = () => {}, timeoutMillis = 2_000, url } = options
  if (!(cacheSeconds >= 0 && cacheSeconds <= 60)) throw new RangeError("cacheSeconds must be 0 to 60.")
  const { read, said } = keyIn(keyHeader)
  const send = options.fetch ?? fetch
  const base = url.endsWith("/") ? url : `${url}/`
  const address = new URL("api/v0/keys/validate", base)
  // No request has them, so each would fail.
  if (address.username !== "" || address.password !== "") throw new TypeError("url must have no user name or password.")
  const checkToken =
    options.tokens &&
    makeTokenCheck(options.tokens.issuer, async () => {
      const signal = AbortSignal.timeout(timeoutMillis)
      const response = await send(new URL(".well-known/jwks.json", base), { redirect: "manual", signal })
      if (response.status !== 200) throw new Fault(`status ${response.status} of its public keys`)
      return ((await response.json()) as { readonly keys: [] }).keys
    })
  const ownCredential = credential?.trim()
  const headers = {
    "content-type": "application/json",
    ...(ownCredential === undefined ? {} : { authorization: `Bearer ${ownCredential}` }),
  }
  const cached = new Map<string, { readonly decision: Decision; readonly until: number }>()

  const keep = (asked: string, decision: Decision) => {
    if (cached.size >= maxCached) cached.delete(cached.keys().next().value!)
    cached.set(asked, { decision, until: performance.now() + cacheSeconds * 1000 })
  }

  const ask = async (asked: string, mayKeep: boolean): Promise<Decision> => {
    if (ownCredential !== undefined && !inHeader.test(ownCredential)) {
      throw new Fault("The gateway's own credential has characters that no header can have")
    }
    const signal = AbortSignal.timeout(timeoutMillis)
    // A redirect would take the credential and the key to an address that nobody chose.
    const response = await send(address, { method: "POST", headers, body: asked, redirect: "manual", signal })
    const { status } = response
    const retryAfter = response.headers.get("retry-after")
    const decision = toDecision({ status, retryAfter, body: await bodyOf(response) })
    if (decision === undefined) throw faultOf(status)
    if (decision.owner !== undefined && mayKeep) keep(asked, decision)
    return decision
  }

  return {
    cors: options.cors as Cors,
    check: async (headers, { clientIp, cost, permissions } = {}) => {
      const sent = read(headers)
      if (!sent) return refusal(401, "unauthorized", `Send an API key: ${said}.`, bearer)
      const key = decoded(sent)
      const isToken = checkToken !== undefined && tokenShape.test(key)
      if (!isToken && key.length > maxKeyLength) return refusal(401, "unauthorized", invalidKey, bearer)
      const asked = JSON.stringify({ key, permissions, cost, clientIp })
      const known = cached.get(asked)
      if (known !== undefined && performance.now() < known.until) return known.decision
      cached.delete(asked)
      try {
        if (isToken) return await checkToken(key, permissions)
        return await ask(asked, cacheSeconds > 0 && cost === undefined)
      } catch (error) {
        const isLate = error instanceof Error && error.name === "TimeoutError"
        const silent = isLate ? `No response within ${timeoutMillis} ms` : "No response that can be read"
        onFault(
          `Gatehouse at ${address.origin} cannot check a key: ${error instanceof Fault ? error.message : silent}.`,
        )
        return unavailable()
      }
    },
  }
}

/**
 * For servers of the Fetch standard (Workers, Deno, Bun): the owner of the key, or the response to return instead. With
 * `cors: "pass"`, `undefined` for a preflight.
 *
 * ```ts
 * const owner = await withFetch(gateway)(request)
 * if (owner instanceof Response) return owner
 * ```
 */
export const withFetch =
  <Cors extends "pass" | undefined>(gateway: Gateway<Cors>, use?: Use) =>
  async (request: HttpRequest): Promise<KeyOwner | Response | (Cors extends "pass" ? undefined : never)> => {
    const { owner, refusal } = await decide(gateway, request, use)
    return refusal === undefined ? owner! : Response.json(refusal.body, refusal)
  }

interface NodeRequest {
  readonly method?: string | undefined
  readonly headers: Readonly<Record<string, string | ReadonlyArray<string> | undefined>>
}
interface NodeResponse {
  readonly writeHead: (status: number, headers: Record<string, string>) => { readonly end: (body: string) => unknown }
}

/** For Express and Connect: puts the owner of the key on `request.gatehouse`. */
export const withExpress =
  (gateway: Gateway, use?: Use) =>
  (request: NodeRequest & { gatehouse?: KeyOwner }, response: NodeResponse, next: (error?: unknown) => void): void => {
    void decide(gateway, request, use).then(({ owner, refusal }) => {
      if (refusal !== undefined) {
        const { body, headers, status } = refusal
        response.writeHead(status, { ...headers, "content-type": "application/json" }).end(JSON.stringify(body))
        return
      }
      if (owner !== undefined) request.gatehouse = owner
      next()
    }, next)
  }

interface FastifyReply {
  readonly code: (status: number) => FastifyReply
  readonly headers: (headers: Record<string, string>) => FastifyReply
  readonly send: (body: unknown) => unknown
}

/** For Fastify, as an `onRequest` hook: puts the owner of the key on `request.gatehouse`. */
export const withFastify =
  (gateway: Gateway, use?: Use) =>
  async (request: NodeRequest & { gatehouse?: KeyOwner }, reply: FastifyReply): Promise<unknown> => {
    const { owner, refusal } = await decide(gateway, request, use)
    if (refusal !== undefined)
      return reply
        .code(refusal.status)
        .headers({ ...refusal.headers })
        .send(refusal.body)
    if (owner !== undefined) request.gatehouse = owner
    return undefined
  }

interface HonoContext {
  readonly req: { readonly raw: HttpRequest }
  readonly set: (name: "gatehouse", owner: KeyOwner) => void
}

/** For Hono: sets the variable `gatehouse` to the owner of the key. */
export const withHono =
  (gateway: Gateway, use?: Use) =>
  async (context: HonoContext, next: () => Promise<void>): Promise<Response | undefined> => {
    const { owner, refusal } = await decide(gateway, context.req.raw, use)
    if (refusal !== undefined) return Response.json(refusal.body, refusal)
    if (owner !== undefined) context.set("gatehouse", owner)
    await next()
    return undefined
  }
