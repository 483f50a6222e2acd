import { Context, type DateTime, type Effect } from "effect"
import type { ApiKey, RateLimit, ValidKey } from "./ApiKey.ts"
import type { AuditEntry } from "../audit/AuditEntry.ts"
import type { OrgScope } from "../Principal.ts"
import type { LimitReached, Unavailable } from "../Errors.ts"
import { Conflict, NotFound } from "../Errors.ts"
import type { Found, Page } from "../Page.ts"

/** A new key. `hash` is its SHA-256 in hex; the key itself is not stored. */
export interface NewApiKey {
  readonly id: string
  readonly name: string
  readonly prefix: string
  readonly hash: string
  readonly createdAt: DateTime.Utc
  readonly expiresAt: DateTime.Utc | null
  readonly rateLimit: RateLimit | null
}

/** The new key of a rotation. */
export interface KeyReplacement extends Pick<NewApiKey, "id" | "prefix" | "hash"> {
  readonly now: DateTime.Utc
  /** `undefined` for the expiry of the old key. */
  readonly expiresAt: DateTime.Utc | null | undefined
  /** The end of the overlap. The old key expires then, or earlier by its own expiry. */
  readonly oldKeyUntil: DateTime.Utc
}

/** A key that exists, valid or expired. */
export interface KeyGrant extends ValidKey {
  readonly expiresAt: DateTime.Utc | null
  readonly rateLimit: RateLimit | null
}

/** The API keys of orgs. */
export class ApiKeyRepository extends Context.Service<
  ApiKeyRepository,
  {
    /** Inserts a project key. Fails when the scope has no such project, or its org has reached its limit of keys. */
    readonly insertForProject: (
      scope: OrgScope,
      projectId: string,
      key: NewApiKey,
      entry: AuditEntry,
    ) => Effect.Effect<void, NotFound | LimitReached | Unavailable>
    /** Inserts an org key. Fails when there is no such org, or it has reached its limit of keys. */
    readonly insertForOrg: (
      orgId: string,
      key: NewApiKey,
      entry: AuditEntry,
    ) => Effect.Effect<void, NotFound | LimitReached | Unavailable>
    /** Deletes a key of the org, and notifies every replica. Fails when the org has no such key. */
    readonly remove: (orgId: string, keyId: string, entry: AuditEntry) => Effect.Effect<void, NotFound | Unavailable>
    /**
     * Replaces a key of the org by a new one with the same name, project and rate limit. Sets the expiry of the old key, and
     * notifies every replica. Fails with a `Conflict` when the old key has expired or was rotated before. Adds the name to
     * the details of the entry. Both keys count towards the limit until the old one is deleted.
     */
    readonly rotate: (
      orgId: string,
      keyId: string,
      replacement: KeyReplacement,
      entry: AuditEntry,
    ) => Effect.Effect<{ readonly name: string }, NotFound | Conflict | LimitReached | Unavailable>
    /** Keys of the org, oldest first. */
    readonly list: (orgId: string, page: Page) => Effect.Effect<Found<ApiKey>, Unavailable>
    /** The existing keys with these hashes (SHA-256 in hex), by hash. They can be expired. */
    readonly findByHashes: (hashes: ReadonlyArray<string>) => Effect.Effect<ReadonlyMap<string, KeyGrant>, Unavailable>
    /** Sets when keys were last used, by id. A time earlier than the stored one changes nothing. */
    readonly touch: (usage: ReadonlyMap<string, DateTime.Utc>) => Effect.Effect<void, Unavailable>
  }
>()("gatehouse/domain/ApiKeys/ApiKeyRepository") {}

export const keyNotFound = () => new NotFound({ error: "The org has no such key." })
export const keyExpired = () => new Conflict({ error: "The key has expired: create a new one." })
export const keyReplaced = () => new Conflict({ error: "The key was rotated before: rotate the one that replaced it." })
