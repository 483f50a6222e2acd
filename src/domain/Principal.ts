import { Context, Data, Effect, type Redacted } from "effect"
import { Forbidden, NotFound, Unauthorized } from "./Errors.ts"
import type { CiRun } from "./deployments/CiRun.ts"
import type { SignedInPerson } from "./Person.ts"
import type { PortalRights } from "./sessions/Portal.ts"
import type { HolderKeys } from "./keys/KeySettings.ts"
import type { StoredSession } from "./sessions/SessionRepository.ts"

/** Who makes a request. The tenant is the org of its key. */
export type Principal = Data.TaggedEnum<{
  /** Holds ADMIN_TOKEN. */
  Administrator: {}
  /** Acts for one org on the webhook interface (`x-org-id`): the administrator, or anyone in open mode. */
  OrgAdministrator: { readonly orgId: string; readonly isAnonymous: boolean }
  /** Holds a key of the whole org. */
  OrgKey: { readonly keyId: string; readonly orgId: string }
  /** Holds a key of one project. */
  ProjectKey: { readonly keyId: string; readonly orgId: string; readonly projectId: string }
  /** Has signed in with the company's identity, for every org. The middleware has checked the role. */
  Person: { readonly person: SignedInPerson }
  /** Has signed in with a role in one org, or acts for one on the webhook interface (`x-org-id`). */
  OrgPerson: { readonly person: SignedInPerson; readonly orgId: string }
  /** Holds a session that was made from a portal link: the webhooks of one org, or the keys of one holder, or both. */
  Portal: {
    readonly portalId: string
    readonly orgId: string
    readonly may: PortalRights
    /** Who made the link, as the audit log names them. */
    readonly madeBy: string
  }
  /** Holds the token of a CI run. */
  CiRun: { readonly run: CiRun }
  /** Sent no credential. */
  Anonymous: {}
}>
export const Principal = Data.taggedEnum<Principal>()

/** The orgs whose data a query may read and change. */
export type OrgScope = Data.TaggedEnum<{ EveryOrg: {}; OneOrg: { readonly orgId: string } }>
export const OrgScope = Data.taggedEnum<OrgScope>()

/** The session of a request, and the token that its changes have to send; `null` for one that is no cookie. */
interface CurrentSession extends StoredSession {
  readonly csrfToken: string | null
}

/** The principal of the current request, and the mode of the server. */
export class CurrentPrincipal extends Context.Service<
  CurrentPrincipal,
  {
    readonly principal: Principal
    /** Whether the server is in open mode: without ADMIN_TOKEN, anyone may manage every org. */
    readonly open: boolean
    /** The token or key of the request; `undefined` without one. */
    readonly credential?: Redacted.Redacted<string> | undefined
    /** The session of the request; `undefined` when the request has another credential, or none. */
    readonly session?: CurrentSession | undefined
    /** Fails when the credential has ended since; for answers that last. */
    readonly recheck?: Effect.Effect<void, unknown>
  }
>()("gatehouse/domain/Principal/CurrentPrincipal") {}

/** The org that the principal acts for; `undefined` when it acts for none. */
export const tenantOf = (principal: Principal): string | undefined =>
  "orgId" in principal ? principal.orgId : undefined

/** A person as the audit log names them, by their subject. */
export const personActor = (subject: string) => `person:${subject}`

/** A portal as the audit log names it, by the id of its link. */
export const portalActor = (linkId: string) => `portal:${linkId}`

/** The principal as the audit log and stored answers name it. */
export const actorOf = (principal: Principal): string => {
  if ("keyId" in principal) return `key:${principal.keyId}`
  if (principal._tag === "Portal") return portalActor(principal.portalId)
  if ("person" in principal) return personActor(principal.person.subject)
  if (principal._tag === "OrgAdministrator") return principal.isAnonymous ? "anonymous" : "administrator"
  return principal._tag.toLowerCase()
}

export const keyNeeded = () =>
  new Unauthorized({ error: "This operation needs an API key: Authorization: Bearer <key>, or x-api-key: <key>." })

export const orgNeeded = () =>
  new Unauthorized({
    error:
      "This operation acts for one org: send the org's id as x-org-id, or a key of the org as Authorization: Bearer <key> or x-api-key: <key>.",
  })

/** The tenant of the current request. Fails with a 401 without a key. */
export const currentTenant: Effect.Effect<string, Unauthorized, CurrentPrincipal> = CurrentPrincipal.use(
  ({ principal }) => {
    const orgId = tenantOf(principal)
    return orgId === undefined ? Effect.fail(keyNeeded()) : Effect.succeed(orgId)
  },
)

/** The CI run of the current request. Fails with a 401 without a CI token. */
export const currentRun: Effect.Effect<CiRun, Unauthorized, CurrentPrincipal> = CurrentPrincipal.use(({ principal }) =>
  principal._tag === "CiRun" ? Effect.succeed(principal.run) : Effect.fail(ciTokenNeeded()),
)

export const portalForbidden = () =>
  new Forbidden({
    error: "A portal session may only use what its link allows: the webhooks of its org, or the keys of its holder.",
  })

export const ciTokenNeeded = () =>
  new Unauthorized({ error: "This operation needs a CI token: Authorization: Bearer <jwt>." })

/** The error for a request without a credential. */
export const noCredential = () =>
  new Unauthorized({ error: "This operation needs a credential: Authorization: Bearer <token>, or x-api-key: <key>." })

/**
 * The scope that the current principal manages: every org for the administrator, for people with a role of all orgs and
 * for anyone in open mode; one org for an org key and for people with a role there. Fails with a 401 without a
 * credential, and with a 403 for a project key or a CI token.
 */
export const managedScope: Effect.Effect<OrgScope, Unauthorized | Forbidden, CurrentPrincipal> = CurrentPrincipal.use(
  ({ principal, open }): Effect.Effect<OrgScope, Unauthorized | Forbidden> => {
    if (open && principal._tag !== "Portal") return Effect.succeed(OrgScope.EveryOrg())
    switch (principal._tag) {
      case "Administrator":
      case "Person":
        return Effect.succeed(OrgScope.EveryOrg())
      case "OrgAdministrator":
      case "OrgKey":
      case "OrgPerson":
        return Effect.succeed(OrgScope.OneOrg({ orgId: principal.orgId }))
      case "Portal":
        return Effect.fail(portalForbidden())
      case "CiRun":
        return Effect.fail(new Forbidden({ error: "A CI token may only register deployments." }))
      case "ProjectKey":
        return Effect.fail(
          new Forbidden({
            error:
              "A project key may not manage keys, projects or orgs: send a key of its org, or the administrator's token.",
          }),
        )
      case "Anonymous":
        return Effect.fail(noCredential())
    }
  },
)

/**
 * Succeeds for who manages every org. Fails like `managedScope`, and with a 403 for who manages one org.
 */
export const requireAdministrator: Effect.Effect<void, Unauthorized | Forbidden, CurrentPrincipal> = Effect.flatMap(
  managedScope,
  (scope) =>
    scope._tag === "EveryOrg"
      ? Effect.void
      : Effect.fail(
          new Forbidden({ error: "Only the administrator may call this operation. Send a token of ADMIN_TOKEN." }),
        ),
)

export const orgNotFound = () => new NotFound({ error: "There is no such org." })

/** Succeeds when the current principal manages the org. Another tenant's org is a 404, as if it did not exist. */
export const requireOrg = (orgId: string): Effect.Effect<void, Unauthorized | Forbidden | NotFound, CurrentPrincipal> =>
  Effect.flatMap(managedScope, (scope) =>
    scope._tag === "EveryOrg" || scope.orgId === orgId ? Effect.void : Effect.fail(orgNotFound()),
  )

/** The holder whose keys the portal session of the current request may work with; `undefined` for other principals. */
export const currentHolder = CurrentPrincipal.useSync(({ principal }) =>
  principal._tag === "Portal" && principal.may.keys !== null
    ? { orgId: principal.orgId, ...principal.may.keys }
    : undefined,
)

/** `requireOrg` for keys: also a portal session, for those of its holder, which it returns. */
export const requireKeys = (
  orgId: string,
): Effect.Effect<HolderKeys | undefined, Unauthorized | Forbidden | NotFound, CurrentPrincipal> =>
  Effect.flatMap(currentHolder, (holder) => {
    if (holder === undefined) return Effect.as(requireOrg(orgId), undefined)
    return holder.orgId === orgId ? Effect.succeed(holder) : Effect.fail(orgNotFound())
  })

/** The owner of requests without an org, such as the administrator's and the lookups of keys. */
export const noOrg = ""

/** The org of the current request; `undefined` for background work. Orgs share the database by it. */
export const RequestOrg = Context.Reference<string | undefined>("gatehouse/domain/RequestOrg", {
  defaultValue: () => undefined,
})
