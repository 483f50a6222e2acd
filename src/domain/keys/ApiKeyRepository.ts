import { Context, type DateTime, type Effect } from "effect"
import type { ApiKey, KeyState, ValidKey } from "./ApiKey.ts"
import type { AuditEntry } from "../audit/AuditEntry.ts"
import type { OrgScope } from "../Principal.ts"
import { Conflict, type InvalidRequest, LimitReached, NotFound, type Unavailable } from "../Errors.ts"
import type { Found, Page, Search } from "../Page.ts"
import type { AllowedNetworks } from "./AllowedIps.ts"
import type { HolderKeys, KeySettings, RateLimit, SettingsChange } from "./KeySettings.ts"
import type { Metadata } from "../Schemas.ts"
import type { PermissionSet } from "./Permission.ts"

/** Returns the SHA-256 of a key in lower-case hex. The service stores and finds keys by it. */
export class KeyHash extends Context.Service<KeyHash, (key: string) => string>()("gatehouse/domain/KeyHash") {}

/** A new key. `hash` is its SHA-256 in hex; the key itself is not stored. */
export interface NewApiKey extends KeySettings {
  readonly id: string
  readonly name: string
  /** Its visible part. */
  readonly prefix: string
  /** The prefix that it was made with. */
  readonly keyPrefix: string
  readonly hash: string
  readonly createdAt: DateTime.Utc
  readonly expiresAt: DateTime.Utc | null
  /** Whether its holder makes it in a portal. */
  readonly ofHolder?: boolean
}

/** A portal whose session works with keys: it finds those with its external id alone. `undefined`: all of the org. */
export type Holder = HolderKeys | undefined

/** The prefix that a new key must have, when it was made with another one. */
export type OtherPrefix = string | undefined

/** A change of a key; an absent field does not change. */
export interface KeyChange extends SettingsChange {
  readonly name?: string
  readonly expiresAt?: DateTime.Utc | null
}

/** The new key of a rotation. */
export interface KeyReplacement extends Pick<NewApiKey, "id" | "prefix" | "keyPrefix" | "hash"> {
  readonly now: DateTime.Utc
  /** When the new key expires; `null`: never, `undefined`: when the old key expires. */
  readonly expiresAt: DateTime.Utc | null | undefined
  /** The end of the grace period. The old key expires then, or earlier by its own expiry. */
  readonly oldKeyUntil: DateTime.Utc
  /** The settings that differ from those of the old key. Limits are of both keys, which have one counter. */
  readonly settings: SettingsChange
}

/** Which keys a list has: those that fit every filter that is given. */
export interface KeyFilter extends Search {
  readonly externalId?: string | undefined
  readonly name?: string | undefined
  readonly projectId?: string | undefined
  readonly state?: KeyState | undefined
}

export interface KeyLimits {
  /** The counter of the limits, which a rotated key and its replacement share. */
  readonly counterId: string
  /** The version of the counter. */
  readonly version: number
  readonly rateLimit: RateLimit | null
  readonly hasCredits: boolean
}

/** A key that exists: valid, disabled or expired. */
export interface KeyGrant extends ValidKey {
  readonly name: string
  readonly enabled: boolean
  readonly expiresAt: DateTime.Utc | null
  /** Its own, and those of its roles. */
  readonly permissions: PermissionSet
  readonly externalId: string | null
  readonly metadata: Metadata | null
  /** `null`: the key may be used from everywhere. */
  readonly allowedIps: AllowedNetworks | null
  /** `null`: the key has neither a rate limit nor credits. */
  readonly limits: KeyLimits | null
  /** Whether it was made elsewhere, and may have any form. */
  readonly isImported: boolean
  /** Whether its holder made it in a portal: then it is no credential of Gatehouse. */
  readonly isOfHolder: boolean
}

/** A key that was made elsewhere. `hash` is its stored hash: SHA-256, SHA-512 or a slow one. */
interface KeyImport extends NewApiKey {
  readonly projectId: string | null
  /** What a key with a slow hash begins with; `null` for a digest. */
  readonly importStart: string | null
}

/** A hash that a presented key may have. */
export interface ImportedHash {
  /** In hex: a digest, or the bytes of a slow hash. */
  readonly hash: string
  /** What a key with a slow hash begins with; `null` for a digest. */
  readonly start: string | null
  readonly grant: KeyGrant
}

/** A key that was reported as leaked. */
interface LeakedKey {
  readonly orgId: string
  readonly keyId: string
  /** Whether this report disabled it; an earlier one may have. */
  readonly isNew: boolean
}

/** The API keys of orgs. */
export class ApiKeyRepository extends Context.Service<
  ApiKeyRepository,
  {
    /**
     * Inserts a project key. Fails when the scope has no such project, its org has reached its limit of keys, or its
     * holder that of theirs. When keys of the project have another prefix, returns it and inserts nothing.
     */
    readonly insertForProject: (
      scope: OrgScope,
      projectId: string,
      key: NewApiKey,
      entry: AuditEntry,
      holder?: Holder,
    ) => Effect.Effect<OtherPrefix, NotFound | LimitReached | Unavailable>
    /** `insertForProject` of an org key. Fails when there is no such org, or it has reached its limit of keys. */
    readonly insertForOrg: (
      orgId: string,
      key: NewApiKey,
      entry: AuditEntry,
      holder?: Holder,
    ) => Effect.Effect<OtherPrefix, NotFound | LimitReached | Unavailable>
    /**
     * Imports keys of the org, all or none, and notifies every replica. Returns for each the id of its key, and whether
     * it is new; a dry run stops before it inserts. Errors name the key. Adds the number of new keys to the entry.
     */
    readonly importKeys: (
      orgId: string,
      keys: ReadonlyArray<KeyImport>,
      dryRun: boolean,
      entry: AuditEntry,
    ) => Effect.Effect<
      ReadonlyArray<{ readonly id: string; readonly isNew: boolean }>,
      InvalidRequest | NotFound | Conflict | LimitReached | Unavailable
    >
    /**
     * The keys with one of these digests, or with a slow hash and one of these starts; and whether any key was
     * imported.
     */
    readonly findImported: (
      digests: ReadonlyArray<string>,
      starts: ReadonlyArray<string>,
    ) => Effect.Effect<{ readonly found: ReadonlyArray<ImportedHash>; readonly exist: boolean }, Unavailable>
    /** Replaces the hash of an imported key by its SHA-256, by which it is found from now on. */
    readonly settleImported: (orgId: string, keyId: string, sha256: string) => Effect.Effect<void, Unavailable>
    /** Deletes a key of the org, and notifies every replica. Fails when the org has no such key. */
    readonly remove: (
      orgId: string,
      keyId: string,
      entry: AuditEntry,
      holder?: Holder,
    ) => Effect.Effect<void, NotFound | Unavailable>
    /**
     * Changes a key of the org, and notifies every replica. Fails with a `Conflict` when it would enable a leaked key.
     * Returns the changed key, and the ids of all keys whose limits changed with it: those that share its counter.
     */
    readonly update: (
      orgId: string,
      keyId: string,
      change: KeyChange,
      entry: AuditEntry,
      holder?: Holder,
    ) => Effect.Effect<
      { readonly key: ApiKey; readonly changed: ReadonlyArray<string> },
      NotFound | Conflict | LimitReached | Unavailable
    >
    /**
     * Disables the key of this hash for good, and notifies every replica. Returns `undefined` when there is no such
     * key. Writes the entry of the key's id, with its event, when the key was not reported before.
     */
    readonly disableLeaked: (
      hash: string,
      entryOf: (keyId: string) => Effect.Effect<AuditEntry>,
    ) => Effect.Effect<LeakedKey | undefined, Unavailable>
    /**
     * Replaces a key of the org by a new one with the same name, project and settings. Sets the expiry of the old key,
     * and notifies every replica. Fails with a `Conflict` when the old key has expired or was rotated before. Adds the
     * name to the details of the entry. Both keys count towards the limit until the old one is deleted. When the new
     * key must have another prefix, returns it and replaces nothing.
     */
    readonly rotate: (
      orgId: string,
      keyId: string,
      replacement: KeyReplacement,
      entry: AuditEntry,
      holder?: Holder,
    ) => Effect.Effect<
      { readonly name: string; readonly otherPrefix: OtherPrefix },
      NotFound | Conflict | LimitReached | Unavailable
    >
    /** Keys of the org. With two filters, with a state or a text, a page looks at `maxFilteredRows` keys at most. */
    readonly list: (orgId: string, page: Page, filter?: KeyFilter) => Effect.Effect<Found<ApiKey>, Unavailable>
    readonly find: (orgId: string, keyId: string, holder?: Holder) => Effect.Effect<ApiKey, NotFound | Unavailable>
    /** The existing keys with these hashes (SHA-256 in hex), by hash. They can be disabled or expired. */
    readonly findByHashes: (hashes: ReadonlyArray<string>) => Effect.Effect<ReadonlyMap<string, KeyGrant>, Unavailable>
    /** Sets when keys were last used, by id. A time earlier than the stored one changes nothing. */
    readonly touch: (usage: ReadonlyMap<string, DateTime.Utc>) => Effect.Effect<void, Unavailable>
  }
>()("gatehouse/domain/ApiKeys/ApiKeyRepository") {}

/** The error for a holder who has as many keys as their portal allows, or as many that were rotated besides. */
export const holderLimitReached = ({ maxKeys }: HolderKeys) =>
  new LimitReached({
    error: `You have as many keys as you may: ${maxKeys}, and as many that were rotated. Delete one that you do not need.`,
  })

export const keyNotFound = () => new NotFound({ error: "The org has no such key." })
/** The error for credits that are added to, or refilled, where there are none. */
export const noCredits = () =>
  new Conflict({ error: "The key has no credits, so that it is not limited by them. Set credits.remaining first." })

export const keyLeaked = () =>
  new Conflict({
    error:
      "The key was reported as leaked and stays disabled. Rotate it for a new key with the same settings, or create one.",
  })
export const keyExpired = () => new Conflict({ error: "The key has expired: create a new one." })
export const keyReplaced = () => new Conflict({ error: "The key was rotated before. Rotate its replacement." })
