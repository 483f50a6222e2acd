import { Context, Effect, Layer, Option, Redacted } from "effect"
import { HttpServerRequest } from "effect/http"
import { HttpApi, type HttpApiEndpoint } from "effect/http-api"
import {
  Forbidden,
  InvalidRequest,
  NotFound,
  type TooManyRequests,
  Unauthorized,
  type Unavailable,
} from "../../domain/Errors.ts"
import {
  CurrentPrincipal,
  keyNeeded,
  noCredential,
  orgNeeded,
  portalForbidden,
  Principal,
  RequestOrg,
  tenantOf,
} from "../../domain/Principal.ts"
import { Deployments } from "../../domain/deployments/Deployments.ts"
import { monotonicMillis } from "../../domain/monotonicMillis.ts"
import { limitWrongCredentials } from "../../domain/wrongCredentials.ts"
import { networkOf } from "../../domain/clientNetworks.ts"
import { isWellFormed } from "../../domain/keys/ApiKey.ts"
import { holdersKey, noRoom } from "../../domain/keys/KeyChecks.ts"
import { ApiKeys } from "../../domain/keys/ApiKeys.ts"
import { OrgRepository } from "../../domain/orgs/Orgs.ts"
import { sessionEnded, Sessions, tokenPattern } from "../../domain/sessions/Sessions.ts"
import { Admits, Authorization, PeopleWho, WebhookAuthorization } from "../api/access.ts"
import { furtherFieldsIgnored } from "../api/responses.ts"
import { AdminTokens } from "../credentials.ts"
import * as Credentials from "../credentials.ts"
import { clientAddress, isLocal } from "../clientAddress.ts"
import { makeSessionPrincipal, ofGrant } from "../sessionPrincipal.ts"
import { annotateOrg } from "./requestTelemetry.ts"

const foreign = new Unauthorized({
  error:
    "In open mode, Host and Origin of a request without a credential must name this machine, such as 127.0.0.1 or localhost. Use that address, set BASE_URL, or send a credential.",
})
const refused = new Unauthorized({ error: "The credential is not valid." })
const tokenAsKey = new Unauthorized({
  error: "The administrator's token is sent as Authorization: Bearer <token>; x-api-key is for API keys.",
})
const orgByName = new NotFound({
  error: "There is no such org: x-org-id takes the id of an org, not its name. GET /api/v0/orgs lists both.",
})
/** The form of an id. */
const ulid = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/

/** Makes the check whether a credential is one of the administrator's tokens. */
export const administratorCheck = Effect.map(AdminTokens, ({ tokens = [] }) => {
  const isToken = Credentials.tokenCheck(tokens)
  return ({ bearer, token }: Credentials.Credential) => bearer && isToken(token)
})

const reveal = (credential: Credentials.RedactedCredential): Credentials.Credential => ({
  ...credential,
  token: Redacted.value(credential.token),
})

/** How often wrong credentials are logged. */
const warningMillis = 60_000

/** Where credentials are sent. The wrong ones are limited at each door by itself. */
type Door = "api" | "console" | "metrics"

/** The guesses of the administrator's token by door and network. */
export class TokenGuesses extends Context.Service<TokenGuesses>()("gatehouse/http/Authorization/TokenGuesses", {
  make: Effect.sync(() => {
    const limitOf = () =>
      limitWrongCredentials(
        "Too many credentials from this address were not valid. Try again after the seconds in Retry-After.",
      )
    const limits = { api: limitOf(), console: limitOf(), metrics: limitOf() }
    let warnedAt = -Infinity
    let more = 0
    return {
      /** Takes a guess of an address that was wrong, or fails when it has guessed too often. */
      take: (door: Door, address: string) => limits[door].take(address),
      /** Logs that there are wrong credentials, at most once a minute. */
      warn: (network: string) =>
        Effect.flatMap(monotonicMillis, (now) => {
          if (now - warnedAt < warningMillis) return Effect.sync(() => void more++)
          const others = more === 0 ? "" : `, and ${more} times since the last such line`
          warnedAt = now
          more = 0
          return Effect.logWarning(
            `A credential that is neither a key nor the administrator's token was sent from ${network}${others}`,
          )
        }),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}

/** Turns the credentials of requests into principals. */
export const identify = Effect.gen(function* () {
  const { tokens, baseUrl } = yield* AdminTokens
  const guesses = yield* TokenGuesses
  const keys = yield* ApiKeys
  const isAdministrator = yield* administratorCheck
  const { ofBearer, ofSession } = yield* makeSessionCallers
  const open = tokens === undefined

  const addressOf = (request: HttpServerRequest.HttpServerRequest) =>
    Effect.provideService(clientAddress, HttpServerRequest.HttpServerRequest, request)

  const ofKey = Effect.fnUntraced(function* (
    request: HttpServerRequest.HttpServerRequest,
    door: Door,
    key: Redacted.Redacted<string>,
  ): Effect.fn.Return<Caller, Unauthorized | TooManyRequests | Unavailable> {
    const address = yield* addressOf(request)
    const grant = yield* Effect.tapError(keys.authenticate(key, address), (error) =>
      error === noRoom ? guesses.take(door, address) : Effect.void,
    )
    return { principal: ofGrant(grant), credential: key }
  })

  /**
   * Whether a credential is the administrator's. One that is neither that nor a key is a guess: a network has 600 of
   * them in a minute, and further ones are a 429. The right one always passes. Keys are too long to be guessed, and
   * count nothing.
   */
  const isAdministratorNow = Effect.fnUntraced(function* (
    request: HttpServerRequest.HttpServerRequest,
    door: Door,
    credential: Credentials.RedactedCredential,
  ) {
    const revealed = reveal(credential)
    if (open || isWellFormed(revealed.token)) return false
    if (isAdministrator(revealed)) return true
    if (isAdministrator({ ...revealed, bearer: true })) return yield* tokenAsKey
    const address = yield* addressOf(request)
    yield* guesses.take(door, address)
    yield* guesses.warn(networkOf(address))
    return false
  })

  const toCaller = Effect.fnUntraced(function* (
    request: HttpServerRequest.HttpServerRequest,
    door: Door,
  ): Effect.fn.Return<Caller, Unauthorized | TooManyRequests | Unavailable> {
    const credential = yield* Credentials.read(request.headers)
    if (credential === undefined) {
      const caller = yield* ofSession(request)
      if (caller !== undefined) return caller
      if (open && !isLocal(request.headers, baseUrl)) return yield* foreign
      return { principal: Principal.Anonymous() }
    }
    const { token } = credential
    if (isPortalToken(credential)) return yield* ofBearer(token)
    if (yield* isAdministratorNow(request, door, credential))
      return { principal: Principal.Administrator(), credential: token }
    return yield* Effect.catchTag(ofKey(request, door, token), "Unauthorized", (error) =>
      Effect.fail(error === holdersKey ? error : refused),
    )
  })

  return { open, isAdministratorNow, ofKey, toCaller }
})

/** Whether a request exchanges a credential for a session of the console. */
const isSignIn = ({ method, url }: HttpServerRequest.HttpServerRequest) =>
  method === "POST" && url === "/api/v0/sessions"

/** The callers of the platform interface. */
const makePlatform = Effect.gen(function* () {
  const deployments = yield* Deployments
  const { open, toCaller } = yield* identify

  return Effect.fnUntraced(function* (
    request: HttpServerRequest.HttpServerRequest,
    admits: typeof Admits.Service,
  ): Effect.fn.Return<Caller, Unauthorized | TooManyRequests | Unavailable> {
    // GitHub has no credential here: another middleware checks its signature.
    if (admits === "signed") return { principal: Principal.Anonymous() }
    if (admits === "ciRun") {
      const credential = yield* Credentials.read(request.headers)
      const token = credential?.bearer === true ? credential.token : undefined
      return { principal: Principal.CiRun({ run: yield* deployments.verify(token) }) }
    }
    const caller = yield* toCaller(request, isSignIn(request) ? "console" : "api")
    if (admits === "credential" && caller.principal._tag === "Anonymous" && !open) return yield* noCredential()
    return caller
  })
})

/**
 * The callers of the webhook interface: a key or session of the tenant; or the administrator and people with a role of
 * all orgs, who name the org.
 */
const makeTenants = Effect.gen(function* () {
  const orgs = yield* OrgRepository
  const { isAdministratorNow, ofKey, open, toCaller } = yield* identify

  const actFor = Effect.fnUntraced(function* (orgId: string, caller: Caller) {
    if (orgId === "") return yield* orgNeeded()
    yield* Effect.catchTag(orgs.find(orgId), "NotFound", (missing) =>
      Effect.fail(ulid.test(orgId) ? missing : orgByName),
    )
    const { principal } = caller
    const isAnonymous = principal._tag === "Anonymous"
    const acting =
      principal._tag === "Person"
        ? Principal.OrgPerson({ person: principal.person, orgId })
        : Principal.OrgAdministrator({ orgId, isAnonymous })
    return { ...caller, principal: acting }
  })

  return Effect.fnUntraced(function* (
    request: HttpServerRequest.HttpServerRequest,
    admits: typeof Admits.Service,
  ): Effect.fn.Return<Caller, Unauthorized | Forbidden | NotFound | TooManyRequests | Unavailable> {
    const credential = yield* Credentials.read(request.headers)
    const orgId = request.headers["x-org-id"] ?? ""
    if (credential !== undefined && !isPortalToken(credential)) {
      if (!(yield* isAdministratorNow(request, "api", credential)))
        return yield* ofKey(request, "api", credential.token)
      return yield* actFor(orgId, { principal: Principal.Administrator(), credential: credential.token })
    }
    const caller = yield* toCaller(request, "api")
    switch (caller.principal._tag) {
      case "Administrator":
      case "Person":
        return yield* actFor(orgId, caller)
      case "Anonymous":
        return open ? yield* actFor(orgId, caller) : yield* keyNeeded()
      case "Portal":
        return admits === "webhooks" && caller.principal.may.webhooks ? caller : yield* portalForbidden()
      default:
        return caller
    }
  })
})

/** Whether a bearer token is a session: that of a portal in a frame of another site, which gets no cookies. */
const isPortalToken = ({ bearer, token }: Credentials.RedactedCredential) =>
  bearer && tokenPattern.test(Redacted.value(token))

type Admit<E> = (
  request: HttpServerRequest.HttpServerRequest,
  admits: typeof Admits.Service,
) => Effect.Effect<Caller, E>

/** Fails for a person whose role does not include the operation. Machines have no role. */
const checkRole = ({ annotations }: HttpApiEndpoint.Top, { principal, session }: Caller) => {
  if (!("person" in principal)) return Effect.void
  const { ofAll, ofOrg } = Context.get(annotations, PeopleWho)
  const { role } = principal.person
  if ((session?.orgId === "" ? ofAll : ofOrg).includes(role)) return Effect.void
  const sentence = (all: ReadonlyArray<string>) => (all.length === 0 ? "no role" : all.join(", "))
  return new Forbidden({
    error: `Your role ${role} may not call this operation. Roles that may: of all orgs ${sentence(ofAll)}; of an org ${sentence(ofOrg)}.`,
  })
}

/**
 * Makes the middleware that provides the principal, and then refuses a role that the operation excludes, and an unknown
 * query. The org of the principal pays for the database time.
 */
const provideBy = <E>(admit: Admit<E>, open: boolean) =>
  Effect.fnUntraced(function* <A, E2, R>(
    operation: Effect.Effect<A, E2, R>,
    { endpoint }: { readonly endpoint: HttpApiEndpoint.Top },
  ) {
    const request = yield* HttpServerRequest.HttpServerRequest
    const caller = yield* admit(request, Context.get(endpoint.annotations, Admits))
    const orgId = tenantOf(caller.principal)
    if (orgId !== undefined) yield* annotateOrg(orgId)
    yield* checkRole(endpoint, caller)
    yield* refuseUnknownQuery(endpoint)
    return yield* Effect.provideService(
      orgId === undefined ? operation : Effect.provideService(operation, RequestOrg, orgId),
      CurrentPrincipal,
      { ...caller, open, recheck: Effect.asVoid(admit(request, Context.get(endpoint.annotations, Admits))) },
    )
  })

/** The middlewares that provide the principal, for both interfaces. */
export const layer = Layer.effectContext(
  Effect.gen(function* () {
    const open = (yield* AdminTokens).tokens === undefined
    return Context.make(Authorization, provideBy(yield* makePlatform, open)).pipe(
      Context.add(WebhookAuthorization, provideBy(yield* makeTenants, open)),
    )
  }),
)

/** Who makes a request, and with what. */
type Caller = Pick<typeof CurrentPrincipal.Service, "principal" | "credential" | "session">

const csrfNeeded = new Unauthorized({
  error: "A change with a session needs its csrfToken in x-csrf-token: read it from GET /api/v0/sessions/current.",
})
const withoutChange = new Set<string>(["GET", "HEAD"])

/** Finds the caller of a request with a session. */
const makeSessionCallers = Effect.gen(function* () {
  const { tokens, baseUrl } = yield* AdminTokens
  const sessions = yield* Sessions
  const principalOf = yield* makeSessionPrincipal
  const orEnded = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
    Effect.catchTag(effect as Effect.Effect<A, E | Unauthorized | NotFound, R>, ["Unauthorized", "NotFound"], () =>
      Effect.fail(sessionEnded),
    )

  const callerOf = (token: Redacted.Redacted<string>) =>
    sessions.find(token).pipe(
      Effect.flatMap((session) => Effect.map(principalOf(session), (principal) => ({ principal, session }))),
      orEnded,
    )

  /** The caller with the session of a portal as its bearer token. Sessions of the console are cookies alone. */
  const ofBearer = Effect.fnUntraced(function* (token: Redacted.Redacted<string>) {
    const { principal, session } = yield* callerOf(token)
    if (principal._tag !== "Portal") return yield* sessionEnded
    // A page of another site cannot send the header, so that changes need no token of their own.
    return { principal, session: { ...session, csrfToken: null } } satisfies Caller
  })

  /** The caller of a request with a session; `undefined` without one. Open mode ignores a session that has ended. */
  const ofSession = Effect.fnUntraced(function* ({ headers, method }: HttpServerRequest.HttpServerRequest) {
    if (headers["cookie"] === undefined) return undefined
    const token = Credentials.readCookie(headers, "session", yield* Credentials.isBehindTls(headers, baseUrl))
    if (token === undefined) return undefined
    const found = callerOf(token)
    const caller = yield* tokens === undefined
      ? Effect.catchTag(found, "Unauthorized", () => Effect.succeed(undefined))
      : found
    if (caller === undefined) return undefined
    const csrfToken = sessions.csrfTokenOf(token)
    if (!withoutChange.has(method) && headers["x-csrf-token"] !== csrfToken) return yield* csrfNeeded
    return { ...caller, session: { ...caller.session, csrfToken } } satisfies Caller
  })

  return { ofBearer, ofSession }
})

/** A name that may be repeated to the caller: a longer one may be a secret in the wrong place. */
const printable = /^[\w-]{1,32}$/

/** Whether the callers of an operation send more than it reads. */
const ignoresFields = ({ annotations }: HttpApiEndpoint.Top) =>
  Option.contains(Context.getOption(annotations, HttpApi.PayloadParseOptions), furtherFieldsIgnored)

/**
 * Refuses a query for an operation that takes none: else a `limit` that belongs into the body would have no effect.
 * Queries of other operations are decoded with their schema.
 */
const refuseUnknownQuery = (endpoint: HttpApiEndpoint.Top) =>
  endpoint.query !== undefined || ignoresFields(endpoint)
    ? Effect.void
    : Effect.flatMap(HttpServerRequest.ParsedSearchParams, (query) => {
        for (const name in query) {
          const known = printable.test(name) ? name : "A name in the query"
          const error = `${known} is not a query parameter of this operation, which has none.`
          return Effect.fail(new InvalidRequest({ error }))
        }
        return Effect.void
      })
