import { Context, Effect, Layer, Redacted } from "effect"
import { HttpServerRequest } from "effect/http"
import { timingSafeEqual } from "node:crypto"
import { ApiKeys } from "../domain/ApiKeys.ts"
import { Caller, CurrentCaller, noCredential } from "../domain/Caller.ts"
import { Unauthorized } from "../domain/Errors.ts"
import * as Credentials from "./credentials.ts"
import { isLocal } from "./localRequest.ts"
import { Authorization, OptionalAuthorization } from "./middleware.ts"
import { ofOrg } from "./requestLog.ts"

/** The administrator's token, `undefined` in open mode; and where the service is reached. */
export class AdminToken extends Context.Service<
  AdminToken,
  { readonly token: Redacted.Redacted<string> | undefined; readonly baseUrl: string }
>()("gatehouse/http/Authorization/AdminToken") {}

const foreign = new Unauthorized({
  error: "In open mode a request without a credential must come to this machine by its own name (Host, Origin).",
})
const refused = new Unauthorized({ error: "The credential is not valid." })

/** Whether a credential is the administrator's token. How long it takes tells nothing of the token but its length. */
export const administratorCheck = Effect.map(AdminToken, ({ token }) => {
  const expected = token === undefined ? undefined : Buffer.from(Redacted.value(token))
  return ({ bearer, token }: Credentials.Credential) => {
    if (expected === undefined || !bearer || token.length !== expected.length) return false
    const given = Buffer.from(token)
    return given.length === expected.length && timingSafeEqual(given, expected)
  }
})

/** Turns the credentials of requests into callers. */
const identify = Effect.gen(function* () {
  const { token: adminToken, baseUrl } = yield* AdminToken
  const keys = yield* ApiKeys
  const isAdministrator = yield* administratorCheck
  const open = adminToken === undefined

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

/** The middleware that lets nobody in without a credential, open mode excepted, and the one that lets in anyone. */
export const layer = Layer.effectContext(
  Effect.map(identify, ({ open, toCaller }) =>
    Context.make(
      Authorization,
      Effect.fnUntraced(function* (operation) {
        const caller = yield* toCaller(yield* HttpServerRequest.HttpServerRequest)
        if (caller._tag === "Anonymous" && !open) return yield* noCredential()
        return yield* Effect.provideService(operation, CurrentCaller, { caller, open })
      }),
    ).pipe(
      Context.add(
        OptionalAuthorization,
        Effect.fnUntraced(function* (operation) {
          const caller = yield* toCaller(yield* HttpServerRequest.HttpServerRequest)
          return yield* Effect.provideService(operation, CurrentCaller, { caller, open })
        }),
      ),
    ),
  ),
)
