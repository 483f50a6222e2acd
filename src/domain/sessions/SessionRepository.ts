import type { DateTime, Effect } from "effect"
import { Context } from "effect"
import type { AuditEntry } from "../audit/AuditEntry.ts"
import type { NotFound, Unavailable } from "../Errors.ts"
import type { Found, Page } from "../Page.ts"
import type { SignedInPerson } from "../Person.ts"
import type { PortalRights } from "./Portal.ts"

/** `link` is a portal link that nobody has opened yet; it signs nobody in. */
export type SessionKind = "administrator" | "key" | "person" | "portal" | "link"

/** A session, or a portal link. */
export interface StoredSession {
  readonly id: string
  /** Empty for the administrator, and for people with a role of all orgs. */
  readonly orgId: string
  readonly kind: SessionKind
  /** The SHA-256 of the token in hex; the token itself is not stored. */
  readonly hash: string
  /** The SHA-256 of the credential that made it, in hex; empty for a link that was made without one, in open mode. */
  readonly credentialHash: string
  /** The person who signed in with the company's identity, or who made the link. */
  readonly person: SignedInPerson | null
  /** The person's session at the identity provider, if it has a name. */
  readonly sid: string | null
  /** What a portal, or the portal of a link, may use; `null` for other sessions. */
  readonly portal: PortalRights | null
  /** Who made the link of a portal, as the audit log names them; `null` for other sessions. */
  readonly madeBy: string | null
  /** The hash of the session in which they made it, with which it ends; `null`: with a key or token. */
  readonly madeIn: string | null
  readonly createdAt: DateTime.Utc
  readonly expiresAt: DateTime.Utc
}

/** Names a session: the org and the hash of its token. */
type SessionKey = Pick<StoredSession, "orgId" | "hash">

/** The sessions and portal links of all orgs. */
export class SessionRepository extends Context.Service<
  SessionRepository,
  {
    /**
     * Inserts a session. A credential keeps its newest `keep` of a kind, however many are inserted at once; the others
     * are removed. Inserts none for an org that does not exist any more.
     */
    readonly insert: (session: StoredSession, keep: number, entry: AuditEntry) => Effect.Effect<void, Unavailable>
    /**
     * The session, unless it has expired, or the session in which the link of its portal was made has ended. A link is
     * no session: `link` finds links alone.
     */
    readonly find: (
      key: SessionKey,
      now: DateTime.Utc,
      kind?: "link",
    ) => Effect.Effect<StoredSession | undefined, Unavailable>
    readonly remove: (key: SessionKey, entry: AuditEntry) => Effect.Effect<void, Unavailable>
    /** The portal links of the org and the portals that they opened, oldest first. */
    readonly links: (
      orgId: string,
      page: Page,
      now: DateTime.Utc,
    ) => Effect.Effect<Found<StoredSession & { readonly isAlive: boolean }>, Unavailable>
    /** Removes a link, or the portal that it has opened. */
    readonly revokeLink: (
      orgId: string,
      linkId: string,
      entry: AuditEntry,
    ) => Effect.Effect<void, NotFound | Unavailable>
    /**
     * Removes sessions of a person: those of a session at the provider, of a credential, or of both together, which
     * began until `before`, if that is given. `orgIds`: all orgs in which people may have a session. `except`: sessions
     * with these roles stay, each as `<orgId>:<role>`.
     */
    readonly removePerson: (
      person: {
        readonly orgIds: ReadonlyArray<string>
        readonly before?: DateTime.Utc
        readonly credentialHash: string | undefined
        readonly sid: string | undefined
        readonly except?: ReadonlyArray<string>
      },
      entryOf: (session: StoredSession) => Effect.Effect<AuditEntry>,
    ) => Effect.Effect<void, Unavailable>
    /**
     * Makes a link a portal session with the hash and the times of `session`: of several calls with one link, one gets
     * the session, and a revocation meanwhile ends it. `undefined` when there is no such link, or it has expired.
     * Keeps as `insert` does.
     */
    readonly openLink: (
      link: SessionKey,
      session: Pick<StoredSession, "hash" | "createdAt" | "expiresAt">,
      keep: number,
      entry: AuditEntry,
    ) => Effect.Effect<StoredSession | undefined, Unavailable>
    /** Removes expired sessions and links, up to the limit. Returns their number. */
    readonly removeExpired: (now: DateTime.Utc, limit: number) => Effect.Effect<number, Unavailable>
  }
>()("gatehouse/domain/Sessions/SessionRepository") {}
