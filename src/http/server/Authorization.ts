import { Context, Effect, Layer, Redacted } from "effect"
import { HttpServerRequest } from "effect/http"
import { ApiKeys } from "../../domain/keys/ApiKeys.ts"
import { Caller, CurrentCaller, noCredential } from "../../domain/Caller.ts"
import { Unauthorized } from "../../domain/Errors.ts"
import { RequestOrg } from "../../domain/orgs/RequestOrg.ts"
import * as Credentials from "./credentials.ts"
import { isLocal } from "./localRequest.ts"
import { Authorization, OptionalAuthorization } from "../api/middleware.ts"
import { ofOrg } from "./requestLog.ts"

/** The administrator's tokens, `undefined` in open mode; and where the service is reached. */
export class AdminTokens extends Context.Service<
  AdminTokens,
  { readonly tokens: ReadonlyArray<Redacted.Redacted<string>> | undefined; readonly baseUrl: string }
>()("gatehouse/http/Authorization/AdminTokens") {}

const foreign = new Unauthorized({
  error: "In open mode a request without a credential must come to this machine by its own name (Host, Origin).",
})
const refused = new Unauthorized({ error: "The credential is not valid." })

/** Whether a credential is one of the administrator's tokens. */
export const administratorCheck = Effect.map(AdminTokens, ({ tokens = [] }) => {
  const isToken = Credentials.tokenCheck(tokens)
  return ({ bearer, token }: Credentials.Credential) => bearer && isToken(token)
})

/** Turns the credentials of requests into callers. */
export const identify = Effect.gen(function* () {
  const { tokens, baseUrl } = yield* AdminTokens
  const keys = yield* ApiKeys
  const isAdministrator = yield* administratorCheck
  const open = tokens === undefined

  const toCaller = Effect.fnUntraced(function* (request: HttpServerRequest.HttpServerRequest) {
    const credential = yield* Credentials.read(request.headers)
    if (credential === undefined) {
      if (open && !isLocal(request.headers, baseUrl)) return yield* foreign
      return Caller.Anonymous()
    }
    if (isAdministrator({ ...credential, token: Redacted.value(credential.token) })) return Caller.Administrator()
    const { keyId, orgId, projectId } = yield* keys
      .authenticate(credential.token)
      .pipe(Effect.catchTag("Unauthorized", () => Effect.fail(refused)))
    yield* ofOrg(orgId)
    return projectId === "" ? Caller.OrgKey({ keyId, orgId }) : Caller.ProjectKey({ keyId, orgId, projectId })
  })

  return { open, toCaller }
})

/** An operation that has its caller's org's share of the database. */
const ofCaller = <A, E, R>(caller: Caller, operation: Effect.Effect<A, E, R>) =>
  "orgId" in caller ? Effect.provideService(operation, RequestOrg, caller.orgId) : operation

/** The middleware that lets nobody in without a credential, open mode excepted, and the one that lets in anyone. */
export const layer = Layer.effectContext(
  Effect.map(identify, ({ open, toCaller }) =>
    Context.make(
      Authorization,
      Effect.fnUntraced(function* (operation) {
        const caller = yield* toCaller(yield* HttpServerRequest.HttpServerRequest)
        if (caller._tag === "Anonymous" && !open) return yield* noCredential()
        return yield* Effect.provideService(ofCaller(caller, operation), CurrentCaller, { caller, open })
      }),
    ).pipe(
      Context.add(
        OptionalAuthorization,
        Effect.fnUntraced(function* (operation) {
          const caller = yield* toCaller(yield* HttpServerRequest.HttpServerRequest)
          return yield* Effect.provideService(ofCaller(caller, operation), CurrentCaller, { caller, open })
        }),
      ),
    ),
  ),
)
