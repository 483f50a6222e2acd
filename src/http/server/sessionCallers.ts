import { Effect, Redacted } from "effect"
import type { HttpServerRequest } from "effect/http"
import { type NotFound, Unauthorized } from "../../domain/Errors.ts"
import type { ValidKey } from "../../domain/keys/ApiKey.ts"
import { ApiKeys } from "../../domain/keys/ApiKeys.ts"
import { KeyHash } from "../../domain/keys/KeyHash.ts"
import { OrgRepository } from "../../domain/orgs/Orgs.ts"
import { type CurrentPrincipal, Principal } from "../../domain/Principal.ts"
import type { StoredSession } from "../../domain/sessions/SessionRepository.ts"
import { Sessions } from "../../domain/sessions/Sessions.ts"
import { AdminTokens } from "./AdminTokens.ts"
import * as Credentials from "./credentials.ts"

/** Who makes a request, and with what. */
export type Caller = Pick<typeof CurrentPrincipal.Service, "principal" | "credential" | "session">

const csrfNeeded = new Unauthorized({
  error: "A change with a session needs its csrfToken in x-csrf-token: read it from GET /api/v0/sessions/current.",
})
const withoutChange = new Set<string>(["GET", "HEAD"])

export const ofGrant = ({ keyId, orgId, projectId }: ValidKey) =>
  projectId === "" ? Principal.OrgKey({ keyId, orgId }) : Principal.ProjectKey({ keyId, orgId, projectId })

/** Finds the principal of a session. A session ends with the credential that made it. */
export const makeSessionCallers = Effect.gen(function* () {
  const { tokens } = yield* AdminTokens
  const keys = yield* ApiKeys
  const orgs = yield* OrgRepository
  const sessions = yield* Sessions
  const hashOf = yield* KeyHash
  const administrators = new Set((tokens ?? []).map((token) => hashOf(Redacted.value(token))))
  const ended = new Unauthorized({ error: "The session has ended: sign in again." })
  const orEnded = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
    Effect.catchTag(effect as Effect.Effect<A, E | Unauthorized | NotFound, R>, ["Unauthorized", "NotFound"], () =>
      Effect.fail(ended),
    )

  const principalOf = Effect.fnUntraced(function* ({ credentialHash, id, kind, orgId }: StoredSession) {
    const isAdministrators = credentialHash === "" ? tokens === undefined : administrators.has(credentialHash)
    if (kind === "administrator") return isAdministrators ? Principal.Administrator() : yield* ended
    const grant = isAdministrators ? undefined : yield* keys.authenticateHash(credentialHash)
    if (kind === "key") return grant === undefined ? yield* ended : ofGrant(grant)
    if (grant === undefined) yield* orgs.find(orgId)
    return Principal.Portal({ portalId: id, orgId })
  })

  /** The caller of a request with a session; `undefined` without one. Open mode ignores a session that has ended. */
  return Effect.fnUntraced(function* ({ headers, method }: HttpServerRequest.HttpServerRequest) {
    const token = Credentials.readSession(headers)
    if (token === undefined) return undefined
    const found = sessions.find(token).pipe(
      Effect.flatMap((session) => Effect.map(principalOf(session), (principal) => ({ principal, session }))),
      orEnded,
    )
    const caller = yield* tokens === undefined
      ? Effect.catchTag(found, "Unauthorized", () => Effect.succeed(undefined))
      : found
    if (caller === undefined) return undefined
    const csrfToken = sessions.csrfTokenOf(token)
    if (!withoutChange.has(method) && headers["x-csrf-token"] !== csrfToken) return yield* csrfNeeded
    return { ...caller, session: { ...caller.session, csrfToken } } satisfies Caller
  })
})
