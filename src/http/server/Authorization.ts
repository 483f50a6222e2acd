import { Context, Effect, Layer, Redacted } from "effect"
import { HttpServerRequest } from "effect/http"
import type { HttpApiEndpoint } from "effect/http-api"
import { Deployments } from "../../domain/deployments/Deployments.ts"
import { ApiKeys } from "../../domain/keys/ApiKeys.ts"
import { CurrentPrincipal, keyNeeded, noCredential, Principal, tenantOf } from "../../domain/Principal.ts"
import { Unauthorized, type Unavailable } from "../../domain/Errors.ts"
import { OrgRepository } from "../../domain/orgs/Orgs.ts"
import { RequestOrg } from "../../domain/orgs/RequestOrg.ts"
import * as Credentials from "./credentials.ts"
import { isLocal } from "./localRequest.ts"
import { Authorization, WebhookAuthorization } from "../api/middleware.ts"
import { Admits } from "../api/security.ts"
import { annotateOrg } from "./requestLog.ts"

/** The administrator's tokens (`undefined` in open mode) and the BASE_URL of the service. */
export class AdminTokens extends Context.Service<
  AdminTokens,
  { readonly tokens: ReadonlyArray<Redacted.Redacted<string>> | undefined; readonly baseUrl: string }
>()("gatehouse/http/Authorization/AdminTokens") {}

const foreign = new Unauthorized({
  error: "In open mode a request without a credential must come to this machine by its own name (Host, Origin).",
})
const refused = new Unauthorized({ error: "The credential is not valid." })

/** Makes the check whether a credential is one of the administrator's tokens. */
export const administratorCheck = Effect.map(AdminTokens, ({ tokens = [] }) => {
  const isToken = Credentials.tokenCheck(tokens)
  return ({ bearer, token }: Credentials.Credential) => bearer && isToken(token)
})

const reveal = (credential: Credentials.RedactedCredential): Credentials.Credential => ({
  ...credential,
  token: Redacted.value(credential.token),
})

/** Turns the credentials of requests into principals. */
export const identify = Effect.gen(function* () {
  const { tokens, baseUrl } = yield* AdminTokens
  const keys = yield* ApiKeys
  const isAdministrator = yield* administratorCheck
  const open = tokens === undefined

  const ofKey = (key: Redacted.Redacted<string>) =>
    Effect.map(keys.authenticate(key), ({ keyId, orgId, projectId }) =>
      projectId === "" ? Principal.OrgKey({ keyId, orgId }) : Principal.ProjectKey({ keyId, orgId, projectId }),
    )
  const toPrincipal = Effect.fnUntraced(function* (request: HttpServerRequest.HttpServerRequest) {
    const credential = yield* Credentials.read(request.headers)
    if (credential === undefined) {
      if (open && !isLocal(request.headers, baseUrl)) return yield* foreign
      return Principal.Anonymous()
    }
    if (isAdministrator(reveal(credential))) return Principal.Administrator()
    return yield* Effect.catchTag(ofKey(credential.token), "Unauthorized", () => Effect.fail(refused))
  })

  return { open, ofKey, toPrincipal }
})

/** The principals of the platform interface. */
const makePlatform = Effect.gen(function* () {
  const deployments = yield* Deployments
  const { open, toPrincipal } = yield* identify

  return Effect.fnUntraced(function* (
    request: HttpServerRequest.HttpServerRequest,
    admits: typeof Admits.Service,
  ): Effect.fn.Return<Principal, Unauthorized | Unavailable> {
    if (admits === "ciRun") {
      const credential = yield* Credentials.read(request.headers)
      const token = credential?.bearer === true ? credential.token : undefined
      return Principal.CiRun({ run: yield* deployments.admit(token) })
    }
    const principal = yield* toPrincipal(request)
    if (admits === "credential" && principal._tag === "Anonymous" && !open) return yield* noCredential()
    return principal
  })
})

/** The principals of the webhook interface: the tenant is the org of a key, or the org that the administrator names. */
const makeTenants = Effect.gen(function* () {
  const orgs = yield* OrgRepository
  const isAdministrator = yield* administratorCheck
  const { open, ofKey, toPrincipal } = yield* identify

  return Effect.fnUntraced(function* (request: HttpServerRequest.HttpServerRequest) {
    const credential = yield* Credentials.read(request.headers)
    const orgId = request.headers["x-org-id"] ?? ""
    if (orgId !== "" && (credential === undefined ? open : isAdministrator(reveal(credential)))) {
      const principal = yield* toPrincipal(request)
      yield* orgs.find(orgId)
      return Principal.OrgAdministrator({ orgId, isAnonymous: principal._tag === "Anonymous" })
    }
    // An Authorization header beside it must have the same key.
    if (credential === undefined || request.headers["x-api-key"] === undefined) return yield* keyNeeded()
    return yield* ofKey(credential.token)
  })
})

type Admit<E> = (
  request: HttpServerRequest.HttpServerRequest,
  admits: typeof Admits.Service,
) => Effect.Effect<Principal, E>

/** Makes the middleware that provides the principal. The org of the principal pays for the database time. */
const provideBy = <E>(admit: Admit<E>, open: boolean) =>
  Effect.fnUntraced(function* <A, E2, R>(
    operation: Effect.Effect<A, E2, R>,
    { endpoint }: { readonly endpoint: HttpApiEndpoint.Top },
  ) {
    const principal = yield* admit(
      yield* HttpServerRequest.HttpServerRequest,
      Context.get(endpoint.annotations, Admits),
    )
    const orgId = tenantOf(principal)
    if (orgId !== undefined) yield* annotateOrg(orgId)
    return yield* Effect.provideService(
      orgId === undefined ? operation : Effect.provideService(operation, RequestOrg, orgId),
      CurrentPrincipal,
      { principal, open },
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
