import { Context, type DateTime, type Effect } from "effect"
import type { ApiKey, RateLimit, ValidKey } from "./ApiKey.ts"
import type { AuditEntry } from "../audit/AuditEntry.ts"
import type { OrgScope } from "../Principal.ts"
import type { LimitReached, Unavailable } from "../Errors.ts"
import { Conflict, NotFound } from "../Errors.ts"
import type { Found, Page } from "../Page.ts"

/** A key as it is stored: by its SHA-256, in hex. */
export interface NewApiKey {
  readonly id: string
  readonly name: string
  readonly prefix: string
  readonly hash: string
  readonly createdAt: DateTime.Utc
  readonly expiresAt: DateTime.Utc | null
  readonly rateLimit: RateLimit | null
}

/** What takes a key's place. */
export interface KeyReplacement extends Pick<NewApiKey, "id" | "prefix" | "hash"> {
  readonly now: DateTime.Utc
  /** The new key's; `undefined`: the old key's. */
  readonly expiresAt: DateTime.Utc | null | undefined
  /** Until when the old key stays good, unless it ends before. */
  readonly oldKeyUntil: DateTime.Utc
}

/** What the lookup of a key finds. */
export interface KeyGrant extends ValidKey {
  readonly expiresAt: DateTime.Utc | null
  readonly rateLimit: RateLimit | null
}

/** Where keys are kept. */
export class ApiKeyRepository extends Context.Service<
  ApiKeyRepository,
  {
    /** Inserts a key of a project in the scope. Fails when the scope has no such project, or its org no room for a key. */
    readonly insertForProject: (
      scope: OrgScope,
      projectId: string,
      key: NewApiKey,
      entry: AuditEntry,
    ) => Effect.Effect<void, NotFound | LimitReached | Unavailable>
    /** Inserts a key of an org. Fails when there is no such org, or it has no room for a key. */
    readonly insertForOrg: (
      orgId: string,
      key: NewApiKey,
      entry: AuditEntry,
    ) => Effect.Effect<void, NotFound | LimitReached | Unavailable>
    /** Deletes a key of the org, and tells every replica. Fails when the org has no such key. */
    readonly remove: (orgId: string, keyId: string, entry: AuditEntry) => Effect.Effect<void, NotFound | Unavailable>
    /**
     * Puts a new key in the place of one of the org: its name, project and rate limit are the old one's, which ends soon
     * and tells every replica so. A key that has expired by `now`, or was replaced before, is a `Conflict`. The entry's
     * details get the name. The new key counts as one more until the old one is deleted.
     */
    readonly rotate: (
      orgId: string,
      keyId: string,
      replacement: KeyReplacement,
      entry: AuditEntry,
    ) => Effect.Effect<{ readonly name: string }, NotFound | Conflict | LimitReached | Unavailable>
    /** Keys of the org, oldest first. */
    readonly list: (orgId: string, page: Page) => Effect.Effect<Found<ApiKey>, Unavailable>
    /** The keys with these SHA-256 (hex), expired or not, by their hash; those that there are. */
    readonly findByHashes: (hashes: ReadonlyArray<string>) => Effect.Effect<ReadonlyMap<string, KeyGrant>, Unavailable>
    /** Writes when keys were last used; a time earlier than the one stored changes nothing. */
    readonly touch: (usage: ReadonlyMap<string, DateTime.Utc>) => Effect.Effect<void, Unavailable>
  }
>()("gatehouse/domain/ApiKeys/ApiKeyRepository") {}

export const keyNotFound = () => new NotFound({ error: "The org has no such key." })
export const keyExpired = () => new Conflict({ error: "The key has expired: create a new one." })
export const keyReplaced = () => new Conflict({ error: "The key was rotated before: rotate the one that replaced it." })
