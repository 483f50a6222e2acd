import { Schema } from "effect"
import { atMost, Id, Metadata, NonEmptyText, NullableMetadata, whole } from "../Schemas.ts"
import { withoutUndefined } from "../withoutUndefined.ts"
import { AllowedIps } from "./AllowedIps.ts"
import { Permissions } from "./Permission.ts"

/** The rate limit of a key: `limit` units at once, and `limit` more in every `window` seconds. */
export const RateLimit = Schema.Struct({
  limit: whole(1, 1_000_000).annotate({
    description: "The units of a window. A validation takes 1, or its cost.",
    examples: [600],
  }),
  window: whole(1, 86_400).annotate({ description: "The length of the window, in seconds.", examples: [60] }),
}).annotate({ identifier: "RateLimit" })
export interface RateLimit extends Schema.Schema.Type<typeof RateLimit> {}

const maxCredits = 10 ** 12
/** How credits are refilled: at 00:00 UTC of each day, or of the first day of each month. */
export const Refill = Schema.Struct({
  amount: whole(0, maxCredits).annotate({ description: "The credits after a refill.", examples: [100_000] }),
  every: Schema.Literals(["day", "month"]).annotate({
    description: "day: at 00:00 UTC. month: at 00:00 UTC of the first day.",
    examples: ["month"],
  }),
}).annotate({ identifier: "Refill" })
export interface Refill extends Schema.Schema.Type<typeof Refill> {}

/** The credits of a key. */
export const Credits = Schema.Struct({
  remaining: whole(0, maxCredits).annotate({ description: "The credits that are left.", examples: [100_000] }),
  refill: Schema.optionalKey(Refill).annotate({ description: "Absent: the credits are never refilled." }),
}).annotate({ identifier: "Credits" })
export interface Credits extends Schema.Schema.Type<typeof Credits> {}

/** A change of the credits of a key. What is absent does not change. */
export const CreditsChange = Schema.Struct({
  remaining: Schema.optionalKey(Credits.fields.remaining),
  add: Schema.optionalKey(whole(-maxCredits, maxCredits)).annotate({
    description:
      "How many credits are added; a negative number takes them, down to 0. In place of remaining. Additions at the same time " +
      "all count.",
    examples: [5_000],
  }),
  refill: Schema.optionalKey(Schema.NullOr(Refill)).annotate({
    description: "Absent: the refill stays. null: the credits are never refilled.",
  }),
})
  .check(
    Schema.makeFilter(
      ({
        add,
        refill,
        remaining,
      }: {
        readonly add?: unknown
        readonly refill?: unknown
        readonly remaining?: unknown
      }) => (add === undefined ? remaining !== undefined || refill !== undefined : remaining === undefined),
      {
        expected: "an object with remaining, add or refill; not with both remaining and add",
        toJsonSchema: () => ({ minProperties: 1, maxProperties: 2 }),
      },
    ),
  )
  .annotate({ identifier: "CreditsChange", examples: [{ remaining: 100_000 }] })
export interface CreditsChange extends Schema.Schema.Type<typeof CreditsChange> {}

/** The credits of a counter after a change. `since` is new when they are set or refilled in another way. */
export const changeCredits = <Balance extends { readonly remaining: number; readonly refill: Refill | null }>(
  credits: (Balance & { readonly since: number }) | null,
  { add = 0, refill = credits?.refill ?? null, remaining }: CreditsChange,
  now: number,
) => {
  const left = Math.min(maxCredits, Math.max(0, (credits?.remaining ?? 0) + add))
  const isSame = credits !== null && remaining === undefined && refill === credits.refill
  return { remaining: remaining ?? left, refill, since: isSame ? credits.since : now }
}

/** The id that your own system has for the holder of a key. */
export const ExternalId = NonEmptyText.check(atMost(255)).annotate({
  description: "Your own id of the key's holder.",
  examples: ["customer_42"],
})

/** The name of a role. With the flag u, the pattern is also in the OpenAPI document. */
export const RoleName = Schema.String.check(
  Schema.isPattern(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/u, {
    expected: "1 to 64 letters, digits, underscores, full stops or hyphens; the first a letter or a digit",
  }),
).annotate({ description: "The name of a role of the org.", examples: ["reader"] })

const maxRolesOfKey = 20
const roles = Schema.Array(RoleName)
  .check(Schema.isMaxLength(maxRolesOfKey, { expected: `a list of at most ${maxRolesOfKey} roles` }))
  .annotate({
    description: "Roles of the org, at most 20: the key also has their permissions.",
    examples: [["reader"]],
  })

const enabled = Schema.Boolean.annotate({
  description: "false: the key is refused until it is enabled again.",
  examples: [true],
})
const permissions = Permissions.annotate({
  description:
    "What the key may do: at most 100. Segments joined by dots; a last segment * covers everything below, * alone " +
    "everything. None: validations that need a permission are refused.",
  examples: [["models.gpt-5.use", "files.*"]],
})
const limits = {
  rateLimit: "How often the key may be validated, exact over all replicas.",
  credits: "What the key may use in all, exact over all replicas.",
}

/** The settings of a new key. */
export const newSettings = {
  enabled: Schema.optionalKey(enabled),
  permissions: Schema.optionalKey(permissions),
  roles: Schema.optionalKey(roles),
  externalId: Schema.optionalKey(ExternalId),
  metadata: Schema.optionalKey(Metadata),
  allowedIps: Schema.optionalKey(Schema.NullOr(AllowedIps)),
  rateLimit: Schema.optionalKey(RateLimit).annotate({ description: `${limits.rateLimit} Absent: unlimited.` }),
  credits: Schema.optionalKey(Credits).annotate({ description: `${limits.credits} Absent: unlimited.` }),
}

/** Settings to change; `null` clears. An absent one does not change. */
export const changedSettings = {
  enabled: Schema.optionalKey(enabled),
  permissions: Schema.optionalKey(Schema.NullOr(permissions)),
  roles: Schema.optionalKey(Schema.NullOr(roles)),
  externalId: Schema.optionalKey(Schema.NullOr(ExternalId)),
  metadata: Schema.optionalKey(NullableMetadata),
  allowedIps: Schema.optionalKey(Schema.NullOr(AllowedIps)),
  rateLimit: Schema.optionalKey(Schema.NullOr(RateLimit)).annotate({
    description: `${limits.rateLimit} null: unlimited.`,
  }),
  credits: Schema.optionalKey(Schema.NullOr(CreditsChange)).annotate({
    description: `${limits.credits} null: unlimited.`,
  }),
}

export interface KeySettings {
  readonly enabled: boolean
  readonly permissions: ReadonlyArray<string>
  readonly roles: ReadonlyArray<string>
  readonly externalId: string | null
  readonly metadata: Metadata | null
  readonly allowedIps: ReadonlyArray<string> | null
  readonly rateLimit: RateLimit | null
  readonly credits: Credits | null
}

/** A change of settings; an absent field does not change. */
export interface SettingsChange extends Partial<Omit<KeySettings, "credits">> {
  readonly credits?: CreditsChange | null
}

/** The settings of a request, as a change: `null` permissions and roles are none. */
export const settingsChange = (asked: {
  readonly [Name in keyof SettingsChange]: SettingsChange[Name] | null | undefined
}): SettingsChange => {
  const { permissions, roles } = asked
  return withoutUndefined({
    enabled: asked.enabled ?? undefined,
    permissions: permissions === undefined ? undefined : [...new Set(permissions)],
    roles: roles === undefined ? undefined : [...new Set(roles)],
    externalId: asked.externalId,
    metadata: asked.metadata,
    allowedIps: asked.allowedIps,
    rateLimit: asked.rateLimit,
    credits: asked.credits,
  } satisfies { readonly [Name in keyof SettingsChange]: SettingsChange[Name] | undefined })
}

/** The settings of a key for which nothing is set. */
export const defaultSettings: KeySettings = {
  enabled: true,
  permissions: [],
  roles: [],
  externalId: null,
  metadata: null,
  allowedIps: null,
  rateLimit: null,
  credits: null,
}

/** What a portal session may do with API keys: make keys for its holder, and change those with the same external id. */
export const HolderKeys = Schema.Struct({
  externalId: Schema.String.annotate({ description: "The external id of all its keys.", examples: ["customer_42"] }),
  projectId: Schema.NullOr(Id).annotate({ description: "The project of its new keys. null: keys of the org." }),
  permissions: Schema.Array(Schema.String).annotate({
    description: "What its new keys may do at most.",
    examples: [["files.*"]],
  }),
  maxKeys: Schema.Int.annotate({ description: "How many keys it may have, without those that were rotated." }),
}).annotate({ identifier: "HolderKeys" })
export type HolderKeys = typeof HolderKeys.Type

/** Whether a holder may have one more: `live` keys were not rotated. A rotation adds one that was, and no live one. */
export const mayAddKey = ({ maxKeys }: HolderKeys, all: number, live: number) => all < 2 * maxKeys && live < maxKeys
