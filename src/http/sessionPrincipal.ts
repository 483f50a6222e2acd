import { Effect, Redacted } from "effect"
import type { ValidKey } from "../domain/keys/ApiKey.ts"
import { ApiKeys } from "../domain/keys/ApiKeys.ts"
import { KeyHash } from "../domain/keys/ApiKeyRepository.ts"
import { OrgRepository } from "../domain/orgs/Orgs.ts"
import { Principal } from "../domain/Principal.ts"
import { People } from "../domain/sessions/People.ts"
import type { StoredSession } from "../domain/sessions/SessionRepository.ts"
import { sessionEnded } from "../domain/sessions/Sessions.ts"
import { AdminTokens } from "./credentials.ts"

/** The principal of a key. */
export const ofGrant = ({ keyId, orgId, projectId }: ValidKey) =>
  projectId === "" ? Principal.OrgKey({ keyId, orgId }) : Principal.ProjectKey({ keyId, orgId, projectId })

/**
 * Makes what finds the principal of a session, or of a portal link for its portal. Both end with the credential that
 * made them; those of a person, when the settings of the identity provider or of the roles change.
 */
export const makeSessionPrincipal = Effect.gen(function* () {
  const { tokens } = yield* AdminTokens
  const keys = yield* ApiKeys
  const orgs = yield* OrgRepository
  const hashOf = yield* KeyHash
  const people = yield* People
  const administrators = new Set((tokens ?? []).map((token) => hashOf(Redacted.value(token))))

  return Effect.fnUntraced(function* ({ credentialHash, id, kind, madeBy, orgId, person, portal }: StoredSession) {
    const ofLink = () => Principal.Portal({ portalId: id, orgId, may: portal!, madeBy: madeBy! })
    if (person !== null) {
      if (people?.credentialOf(person) !== credentialHash) return yield* sessionEnded
      if (orgId !== "") yield* orgs.find(orgId)
      if (portal !== null) return ofLink()
      return orgId === "" ? Principal.Person({ person }) : Principal.OrgPerson({ person, orgId })
    }
    const isAdministrators = credentialHash === "" ? tokens === undefined : administrators.has(credentialHash)
    if (kind === "administrator") return isAdministrators ? Principal.Administrator() : yield* sessionEnded
    const grant = isAdministrators ? undefined : yield* keys.authenticateHash(credentialHash)
    if (kind === "key") return grant === undefined ? yield* sessionEnded : ofGrant(grant)
    if (grant === undefined) yield* orgs.find(orgId)
    return ofLink()
  })
})
