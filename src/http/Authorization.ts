import { Context, Effect, Layer, Redacted } from "effect"
import { Digest } from "effect/crypto"
import { HttpServerRequest } from "effect/http"
import { ApiKeys } from "../domain/ApiKeys.ts"
import { Caller, CurrentCaller, noCredential } from "../domain/Caller.ts"
import { Unauthorized } from "../domain/Errors.ts"
import * as Credentials from "./credentials.ts"
import { isLocal } from "./localRequest.ts"
import { Authorization, OptionalAuthorization } from "./middleware.ts"

/** The administrator's token, `undefined` in open mode; and where the service is reached. */
export class AdminToken extends Context.Service<
  AdminToken,
  { readonly token: Redacted.Redacted<string> | undefined; readonly baseUrl: string }
>()("gatehouse/http/Authorization/AdminToken") {}

const foreign = new Unauthorized({
  error: "In open mode a request without a credential must come to this machine by its own name (Host, Origin).",
})
const refused = new Unauthorized({ error: "The credential is not valid." })

const equal = (a: Uint8Array, b: Uint8Array) => {
  let difference = a.length ^ b.length
  for (let i = 0; i < a.length; i++) difference |= a[i]! ^ b[i]!
  return difference === 0
}

/** Turns the credentials of requests into callers. */
const identify = Effect.gen(function* () {
  const { token: adminToken, baseUrl } = yield* AdminToken
  const digest = yield* Digest.Digest
  const keys = yield* ApiKeys
  const open = adminToken === undefined
  // Hashes of one length are compared, so that the time taken tells nothing of the token.
  const hash = (token: Redacted.Redacted<string>) =>
    digest.digest(Digest.sha256, new TextEncoder().encode(Redacted.value(token)))
  const adminHash = adminToken === undefined ? undefined : yield* hash(adminToken)

  const toCaller = Effect.fnUntraced(function* (request: HttpServerRequest.HttpServerRequest) {
    const credential = yield* Credentials.read(request.headers)
    if (credential === undefined) {
      if (open && !isLocal(request.headers, baseUrl)) return yield* foreign
      return Caller.Anonymous()
    }
    if (credential.bearer && adminHash !== undefined && equal(yield* hash(credential.token), adminHash)) {
      return Caller.Administrator()
    }
    const { keyId, orgId, projectId } = yield* keys
      .authenticate(credential.token)
      .pipe(Effect.catchTag("Unauthorized", () => Effect.fail(refused)))
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
