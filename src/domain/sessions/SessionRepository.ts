import type { DateTime, Effect } from "effect"
import { Context } from "effect"
import type { Unavailable } from "../Errors.ts"
import type { SignedInPerson } from "./Person.ts"
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
  readonly createdAt: DateTime.Utc
  readonly expiresAt: DateTime.Utc
}

/** Names a session: the org and the hash of its token. */
export type SessionKey = Pick<StoredSession, "orgId" | "hash">

/** The sessions and portal links of all orgs. */
export class SessionRepository extends Context.Service<
  SessionRepository,
  {
    /**
     * Inserts a session. A credential keeps its newest `keep` of a kind, however many are inserted at once; the others
     * are removed. Inserts none for an org that does not exist any more.
     */
    readonly insert: (session: StoredSession, keep: number) => Effect.Effect<void, Unavailable>
    /** The session, unless it has expired. A link is no session. */
    readonly find: (key: SessionKey, now: DateTime.Utc) => Effect.Effect<StoredSession | undefined, Unavailable>
    readonly remove: (key: SessionKey) => Effect.Effect<void, Unavailable>
    /**
     * Removes sessions of a person that began until `before`: those of a session at the provider, of a credential, or
     * of both together. `orgIds`: all orgs in which people may have a session.
     */
    readonly removePerson: (person: {
      readonly orgIds: ReadonlyArray<string>
      readonly before: DateTime.Utc
      readonly credentialHash: string | undefined
      readonly sid: string | undefined
    }) => Effect.Effect<void, Unavailable>
    /**
     * Replaces a link by a portal session with the hash and the times of `session`, in one transaction: of several
     * calls with one link, one gets the session. `undefined` when there is no such link, or it has expired. Keeps as
     * `insert` does.
     */
    readonly openLink: (
      link: SessionKey,
      session: Pick<StoredSession, "hash" | "createdAt" | "expiresAt">,
      keep: number,
    ) => Effect.Effect<StoredSession | undefined, Unavailable>
    /** Removes expired sessions and links, up to the limit. Returns their number. */
    readonly removeExpired: (now: DateTime.Utc, limit: number) => Effect.Effect<number, Unavailable>
  }
>()("gatehouse/domain/Sessions/SessionRepository") {}
