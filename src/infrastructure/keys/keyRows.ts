import { DateTime, Effect, Schema } from "effect"
import type { SqlClient } from "effect/sql"
import { ApiKey, type ValidKey } from "../../domain/keys/ApiKey.ts"
import type { KeyGrant } from "../../domain/keys/ApiKeyRepository.ts"
import { refilled } from "../../domain/keys/KeyCounter.ts"
import { type Metadata, RateLimit, Refill } from "../../domain/keys/KeySettings.ts"
import { noPermissions, PermissionSet } from "../../domain/keys/Permission.ts"
import type { Found } from "../../domain/Page.ts"
import { decodePage, decodeRows, Time } from "../database/fragments.ts"
import { nowMillis } from "./counterRows.ts"

/** The limits of a key's counter. Without a counter, the key itself may have a rate limit. */
const Counter = Schema.Struct({
  version: Schema.Int,
  rateLimit: Schema.NullOr(RateLimit),
  credits: Schema.NullOr(Schema.Struct({ remaining: Schema.Int, since: Schema.Int, refill: Schema.NullOr(Refill) })),
  now: Schema.Number,
})

const { credits: _credits, refill: _refill, ...plainFields } = ApiKey.fields
const Row = Schema.Struct({
  ...plainFields,
  createdAt: Time,
  expiresAt: Schema.NullOr(Time),
  lastUsedAt: Schema.NullOr(Time),
  leakedAt: Schema.NullOr(Time),
  counter: Schema.NullOr(Counter),
})

/** Columns of the limits: the counter as JSON, and the key's own rate limit. */
const limitColumns = `
  CASE WHEN rate_limit IS NOT NULL THEN json_build_object('limit', rate_limit, 'window', rate_window) END AS "rateLimit",
  (
    SELECT json_build_object('version', c.version, 'now', ${nowMillis},
      'rateLimit', CASE WHEN c.rate_limit IS NOT NULL
        THEN json_build_object('limit', c.rate_limit, 'window', c.rate_window) END,
      'credits', CASE WHEN c.credits IS NOT NULL
        THEN json_build_object('remaining', c.credits, 'since', c.credits_since, 'refill',
          CASE WHEN c.refill_amount IS NOT NULL
            THEN json_build_object('amount', c.refill_amount, 'every', c.refill_every) END) END)
    FROM key_counters c WHERE c.org_id = api_keys.org_id AND c.id = coalesce(api_keys.counter_id, api_keys.id)
  ) AS counter`

/** The columns of a key in a SELECT from api_keys. */
export const keyColumns = (sql: SqlClient.SqlClient) =>
  sql.literal(`
    id, name, prefix, project_id AS "projectId", created_at AS "createdAt", expires_at AS "expiresAt",
    last_used_at AS "lastUsedAt", enabled, leaked_at AS "leakedAt", replaced_by AS "replacedBy",
    coalesce(permissions, '[]') AS permissions,
    external_id AS "externalId", metadata, ${limitColumns}`)

const toKey = ({ counter, ...row }: typeof Row.Type): ApiKey => {
  if (counter === null) return { ...row, credits: null, refill: null }
  const credits = counter.credits && refilled(counter.credits, counter.now)
  return {
    ...row,
    rateLimit: counter.rateLimit,
    credits: credits?.remaining ?? null,
    refill: credits?.refill ?? null,
  }
}

const decodeOne = decodeRows(Row)
const decodeMany = decodePage(Row)

/** Decodes rows with `keyColumns`. */
export const decodeKeys = <E, R>(rows: Effect.Effect<ReadonlyArray<unknown>, E, R>) =>
  Effect.map(decodeOne(rows), (decoded) => decoded.map(toKey))

/** Decodes a page of rows with `keyColumns`. */
export const decodeKeyPage = <E, R>(rows: Effect.Effect<ReadonlyArray<unknown>, E, R>) =>
  Effect.map(decodeMany(rows), ({ hasMore, items }): Found<ApiKey> => ({ hasMore, items: items.map(toKey) }))

/** The columns of a `GrantRow` in a SELECT from api_keys. */
export const grantColumns = (sql: SqlClient.SqlClient) =>
  sql.literal(`
    encode(hash, 'hex') AS hash, id AS "keyId", org_id AS "orgId", coalesce(project_id, '') AS "projectId", name, enabled,
    expires_at AS "expiresAt", permissions, external_id AS "externalId", metadata,
    coalesce(counter_id, id) AS "counterId", ${limitColumns}`)

/** A row of a look-up. Not decoded with a schema: it is on the path of each look-up. */
export interface GrantRow extends ValidKey {
  readonly hash: string
  readonly name: string
  readonly enabled: boolean
  readonly expiresAt: Date | null
  readonly permissions: ReadonlyArray<string> | null
  readonly externalId: string | null
  readonly metadata: Metadata | null
  readonly counterId: string
  readonly rateLimit: RateLimit | null
  readonly counter: typeof Counter.Type | null
}

const limitsOf = ({ counter, counterId, rateLimit }: GrantRow): KeyGrant["limits"] => {
  const limit = counter === null ? rateLimit : counter.rateLimit
  const hasCredits = counter !== null && counter.credits !== null
  if (limit === null && !hasCredits) return null
  return { counterId, version: counter?.version ?? 0, rateLimit: limit, hasCredits }
}

export const toGrant = (row: GrantRow): KeyGrant => ({
  keyId: row.keyId,
  orgId: row.orgId,
  projectId: row.projectId,
  name: row.name,
  enabled: row.enabled,
  expiresAt: row.expiresAt === null ? null : DateTime.fromDateUnsafe(row.expiresAt),
  permissions:
    row.permissions === null || row.permissions.length === 0 ? noPermissions : new PermissionSet(row.permissions),
  externalId: row.externalId,
  metadata: row.metadata,
  limits: limitsOf(row),
})
