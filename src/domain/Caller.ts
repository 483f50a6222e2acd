import { Context, Data, Effect } from "effect"
import { Forbidden, NotFound, Unauthorized } from "./Errors.ts"

/**
 * Who is calling. CI is not here: its token is the subject of its one operation, and `Deployments` reads it.
 */
export type Caller = Data.TaggedEnum<{
  /** Holds ADMIN_TOKEN. */
  Administrator: {}
  /** Holds a key of the whole org. */
  OrgKey: { readonly keyId: string; readonly orgId: string }
  /** Holds a key of one project. */
  ProjectKey: { readonly keyId: string; readonly orgId: string; readonly projectId: string }
  /** Sent no credential. */
  Anonymous: {}
}>
export const Caller = Data.taggedEnum<Caller>()

/** Whose data a query may touch: one org's, or every org's. */
export type OrgScope = Data.TaggedEnum<{ EveryOrg: {}; OneOrg: { readonly orgId: string } }>
export const OrgScope = Data.taggedEnum<OrgScope>()

/** The caller of the request at hand, and the mode that the server runs in. */
export class CurrentCaller extends Context.Service<
  CurrentCaller,
  {
    readonly caller: Caller
    /** Open mode: no ADMIN_TOKEN is configured, and whoever reaches the server may manage it. */
    readonly open: boolean
  }
>()("gatehouse/domain/Caller/CurrentCaller") {}

/** The refusal of a caller who sent no credential where one is needed. */
export const noCredential = () =>
  new Unauthorized({ error: "This operation needs a credential: Authorization: Bearer <token>, or x-api-key: <key>." })

/**
 * The scope that the current caller manages: every org (administrator, or anyone in open mode), or the org of an org
 * key. Anyone else fails: 401 without a credential, 403 with a project key.
 */
export const managedScope: Effect.Effect<OrgScope, Unauthorized | Forbidden, CurrentCaller> = CurrentCaller.use(
  ({ caller, open }): Effect.Effect<OrgScope, Unauthorized | Forbidden> => {
    if (open) return Effect.succeed(OrgScope.EveryOrg())
    switch (caller._tag) {
      case "Administrator":
        return Effect.succeed(OrgScope.EveryOrg())
      case "OrgKey":
        return Effect.succeed(OrgScope.OneOrg({ orgId: caller.orgId }))
      case "ProjectKey":
        return Effect.fail(new Forbidden({ error: "A project key may not manage keys, projects or orgs." }))
      case "Anonymous":
        return Effect.fail(noCredential())
    }
  },
)

/** Succeeds for an administrator, and for anyone in open mode; 401 without a credential, else 403. */
export const requireAdministrator: Effect.Effect<void, Unauthorized | Forbidden, CurrentCaller> = Effect.flatMap(
  managedScope,
  (scope) =>
    scope._tag === "EveryOrg"
      ? Effect.void
      : Effect.fail(new Forbidden({ error: "This operation is the administrator's." })),
)

export const orgNotFound = () => new NotFound({ error: "There is no such org." })

/** Succeeds when the current caller manages the org; another tenant's org is the 404 of one that does not exist. */
export const requireOrg = (orgId: string): Effect.Effect<void, Unauthorized | Forbidden | NotFound, CurrentCaller> =>
  Effect.flatMap(managedScope, (scope) =>
    scope._tag === "EveryOrg" || scope.orgId === orgId ? Effect.void : Effect.fail(orgNotFound()),
  )
