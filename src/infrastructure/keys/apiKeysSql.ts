import { DateTime, Effect, Layer, Schema } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import * as Crypto from "node:crypto"
import { Conflict, InvalidRequest, type NotFound, Unavailable } from "../../domain/Errors.ts"
import type { Found } from "../../domain/Page.ts"
import { orgNotFound } from "../../domain/Principal.ts"
import { AllowedNetworks } from "../../domain/keys/AllowedIps.ts"
import { ApiKey, defaultKeyPrefix, type ValidKey } from "../../domain/keys/ApiKey.ts"
import {
  ApiKeyRepository,
  type Holder,
  holderLimitReached,
  type KeyChange,
  keyExpired,
  type KeyGrant,
  keyLeaked,
  noCredits,
  keyNotFound,
  keyReplaced,
  type NewApiKey,
} from "../../domain/keys/ApiKeyRepository.ts"
import { maxKeysPerStart } from "../../domain/keys/ImportKeys.ts"
import { changeLimits, newCounter, refilled } from "../../domain/keys/keyLimits.ts"
import { type HolderKeys, mayAddKey, RateLimit, Refill, type SettingsChange } from "../../domain/keys/KeySettings.ts"
import { Metadata } from "../../domain/Schemas.ts"
import { parseJson } from "../../domain/exactJson.ts"
import { noPermissions, PermissionSet } from "../../domain/keys/Permission.ts"
import { projectNotFound } from "../../domain/projects/Projects.ts"
import { audited, auditedTogether } from "../audit/audited.ts"
import { lockName } from "../database/boundedTransactions.ts"
import {
  afterCursor,
  assignments,
  bytes,
  date,
  dateOrNull,
  decodePage,
  decodeRows,
  descending,
  exactJson,
  hasText,
  isOfOrg,
  listedId,
  lookedAt,
  orgOf,
  pageOf,
  texts,
  Time,
  times,
  toJsonText,
  typed,
} from "../database/fragments.ts"
import { newRowBytes } from "../../domain/orgs/StoredBytes.ts"
import { orUnavailable, orUnavailableWithin } from "../database/orUnavailable.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import * as ByteLimit from "../orgs/enforceByteLimit.ts"
import * as Limits from "../orgs/enforceLimits.ts"
import { keysImported, revocationChannel } from "../revocations.ts"
import { lockCounters, nowMillis, writeCounters } from "./keyCountersSql.ts"

/** What `makeInsert` asks for: a key, its owner, and how many keys the org has. */
interface WantedKey extends Omit<NewApiKey, "metadata"> {
  /** As text: json_to_recordset refuses some strings that JSON allows. */
  readonly metadata: string | null
  readonly orgId: string | null
  readonly projectId: string | null
  readonly rows: number
  readonly bytes: number
}

/** The fields of a new key, as column definitions of `json_to_recordset`. */
const newKeyFields = `
  id text, name text, prefix text, "keyPrefix" text, hash text, "createdAt" timestamptz, "expiresAt" timestamptz,
  "rateLimit" json, enabled boolean, permissions json, roles json, "externalId" text, metadata text, "allowedIps" json,
  credits json, "orgId" text, "projectId" text, rows bigint, bytes bigint, "importStart" text, "ofHolder" boolean`

/** A key that is imported now may have the SHA-256 that another one gets. */
const keysAreImported = new Unavailable({ error: "Keys are being imported; try again." })

/** Node has it since 24.7. */
const hasArgon2 = "argon2Sync" in Crypto
/** What the text of such a hash begins with, in hex. */
const argon2Start = Buffer.from("$argon2id$").toString("hex")

const faultOf = (index: number, fault: string) => new InvalidRequest({ error: `keys.${index}.${fault}` })
const startTaken = `start: ${maxKeysPerStart} other keys with a slow hash begin with it. Take more characters.`

/** API keys in PostgreSQL. */
export const layer = Layer.effect(
  ApiKeyRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const limit = yield* Limits.make("keys")
    const stored = yield* ByteLimit.make

    /** Inserts the counters of new keys that have limits. */
    const insertCounters = () => {
      const now = sql.literal(`${nowMillis}::bigint`)
      return sql`
        INSERT INTO key_counters (
          org_id, id, version, rate_limit, rate_window, rate_used, rate_current, rate_previous, rate_at,
          credits, credits_since, refill_amount, refill_every
        )
        SELECT changed."orgId", changed.id, 0, ("rateLimit"->>'limit')::int, ("rateLimit"->>'window')::int, 0, 0, 0,
          ${now}, (credits->>'remaining')::bigint, CASE WHEN json_typeof(credits) = 'object' THEN ${now} END,
          (credits->'refill'->>'amount')::bigint, credits->'refill'->>'every'
        FROM changed JOIN asked USING (id)
        WHERE json_typeof("rateLimit") = 'object' OR json_typeof(credits) = 'object'`
    }

    /**
     * The INSERT of the keys in `asked`.
     *
     * @param rest of a SELECT, from its columns org_id, project_id, import_hash and import_start to its WHERE
     */
    const insertKeys = (rest: Statement.Fragment) => sql`
      INSERT INTO api_keys (
        id, name, prefix, hash, created_at, expires_at, rate_limit, rate_window, enabled, permissions, roles,
        external_id, metadata, allowed_ips, of_holder, org_id, project_id, import_hash, import_start
      )
      SELECT asked.id, asked.name, prefix, decode(hash, 'hex'), "createdAt", "expiresAt",
        ("rateLimit"->>'limit')::int, ("rateLimit"->>'window')::int, enabled, permissions,
        CASE WHEN json_array_length(roles) > 0 THEN roles END, "externalId",
        metadata::json, CASE WHEN json_typeof("allowedIps") = 'array' THEN "allowedIps" END,
        coalesce("ofHolder", false), ${rest}
      RETURNING id, org_id AS "orgId"`

    /**
     * Inserts keys in batches.
     *
     * @param owner the rest of that SELECT to its FROM, which reads `asked` and finds `org`
     * @param prefix the prefix of the owner's keys
     */
    const makeInsert = (owner: Statement.Fragment, prefix: Statement.Fragment) =>
      auditedTogether<WantedKey>(
        sql,
        newKeyFields,
        insertKeys(
          sql`${owner} WHERE ${limit.fits({ rows: sql`asked.rows`, bytes: sql`asked.bytes` })}
            AND "keyPrefix" = ${prefix}`,
        ),
        insertCounters(),
      )

    /** SQL: whether a key is one that a portal may work with: of the statement that finds and locks it. */
    const isHeld = (holder: Holder) =>
      holder === undefined ? sql.literal("true") : sql`external_id = ${holder.externalId}`

    /**
     * In a transaction: fails when a holder may not have another key. One creation or rotation of a holder at a time.
     */
    const takeHolders = Effect.fnUntraced(function* (orgId: string, holder: HolderKeys, isRotation: boolean) {
      const { externalId, maxKeys } = holder
      yield* lockName(sql, `holder:${orgId}:${externalId}`)
      // A separate statement, so that it sees what the previous holder of the lock has committed.
      const [found] = yield* sql<{ readonly keys: number; readonly live: number }>`
        SELECT count(*)::int AS keys, (count(*) FILTER (WHERE replaced_by IS NULL))::int AS live FROM (
          SELECT replaced_by FROM api_keys WHERE ${isOfOrg(sql, orgId)} AND external_id = ${externalId}
            LIMIT ${2 * maxKeys}
        ) AS held`
      if (!mayAddKey(holder, found!.keys, isRotation ? 0 : found!.live)) return yield* holderLimitReached(holder)
    })

    /** SQL: the prefix of new keys of a project, or of `org` alone. */
    const prefixOf = (project?: string) =>
      sql.literal(
        `coalesce(${project === undefined ? "" : `${project}.key_prefix, `}org.key_prefix, '${defaultKeyPrefix}')`,
      )

    /** SQL: the state of a key. */
    const stateOfKey = () =>
      sql.literal(`CASE WHEN leaked_at IS NOT NULL THEN 'leaked' WHEN expires_at <= now() THEN 'expired'
        WHEN enabled THEN 'valid' ELSE 'disabled' END`)

    const cast = typed(sql)
    const columnsOf = ({ allowedIps, metadata, permissions, rateLimit, roles, ...settings }: SettingsChange) => ({
      enabled: cast("boolean", settings.enabled),
      permissions: cast("text::json", permissions && JSON.stringify(permissions)),
      // Without roles, a look-up of a key reads no roles.
      roles: cast("text::json", roles && (roles.length === 0 ? null : JSON.stringify(roles))),
      external_id: cast("text", settings.externalId),
      metadata: cast("text::json", metadata && JSON.stringify(metadata)),
      allowed_ips: cast("text::json", allowedIps && JSON.stringify(allowedIps)),
      rate_limit: cast("int", rateLimit && rateLimit.limit),
      rate_window: cast("int", rateLimit && rateLimit.window),
    })

    /** The assignments of an UPDATE for a change. */
    const changesOf = ({ expiresAt, name, ...settings }: KeyChange) =>
      assignments(sql, {
        name,
        expires_at: cast("timestamptz", expiresAt && date(expiresAt)),
        ...columnsOf(settings),
      })

    /** Notifies every replica of the keys that are affected by a change: the key, and those with the same counter. */
    const notify = (orgId: string, keyId: string, counterId: string | undefined) =>
      sql<{ readonly id: string }>`
        SELECT id, pg_notify(${revocationChannel}, id) FROM (
          SELECT id FROM api_keys WHERE org_id = ${orgId} AND id = ANY(ARRAY[${keyId}, ${counterId ?? keyId}]::text[])
          UNION
          (SELECT id FROM api_keys
            WHERE ${isOfOrg(sql, orgId)} AND counter_id = ${counterId ?? ""}
              AND (expires_at IS NULL OR expires_at > now())
            LIMIT ${maxNotified})
        ) AS affected`.pipe(Effect.map((rows) => rows.map(({ id }) => id)))

    /** The settings of the new key as SQL: those that are given, else those of the old key. */
    const newSettings = (settings: SettingsChange) => {
      // A leaked key is replaced by one that is enabled.
      const enabled = sql`enabled OR leaked_at IS NOT NULL`
      const values = Object.entries(columnsOf(settings))
      return sql.csv(values.map(([column, value]) => value ?? (column === "enabled" ? enabled : sql`${sql(column)}`)))
    }

    /**
     * In a transaction: changes the limits of a key's counter, and creates the counter when there is none. Without a
     * change, it only creates a counter that a limit of the key needs. Returns whether there is a counter.
     */
    const changeCounter = Effect.fnUntraced(function* (
      { counterId: id, orgId, rateLimit }: LimitedKey,
      change: SettingsChange,
    ) {
      const [stored] = yield* lockCounters(sql, [{ orgId, id }])
      const { credits } = change
      // What is added to no credits, or refills none, would set a limit that nobody asked for.
      if (credits != null && credits.remaining === undefined && !stored?.counter.credits) return yield* noCredits()
      if (stored !== undefined) {
        if (changesLimits(change)) {
          yield* writeCounters(sql, [{ orgId, id, counter: changeLimits(stored.counter, change, stored.now) }])
        }
        return true
      }
      const limits = {
        rateLimit: change.rateLimit === undefined ? rateLimit : change.rateLimit,
        credits: change.credits ?? null,
      }
      if (limits.rateLimit === null && limits.credits === null) return false
      const [clock] = yield* sql<{ readonly now: number }>`SELECT ${sql.literal(nowMillis)}::float8 AS now`
      yield* writeCounters(sql, [{ orgId, id, counter: newCounter(limits, clock!.now) }])
      return true
    })

    /** The columns of a key in a SELECT from api_keys. */
    const keyColumns = () =>
      sql.literal(`
        id, name, prefix, project_id AS "projectId", created_at AS "createdAt", expires_at AS "expiresAt",
        last_used_at AS "lastUsedAt", enabled, leaked_at AS "leakedAt", replaced_by AS "replacedBy",
        import_hash IS NOT NULL AS imported, coalesce(permissions, '[]') AS permissions, coalesce(roles, '[]') AS roles,
        external_id AS "externalId", metadata::text, allowed_ips AS "allowedIps", ${limitColumns}`)

    /** Whether a key was imported, of any org. */
    const anyImported = () =>
      Effect.map(
        sql<{ readonly exist: boolean }>`SELECT EXISTS (SELECT FROM api_keys WHERE import_hash IS NOT NULL) AS exist`,
        ([row]) => row!.exist,
      )

    /** The columns of a `GrantRow` in a SELECT from api_keys. */
    const grantColumns = () =>
      sql.literal(`
        encode(hash, 'hex') AS hash, id AS "keyId", org_id AS "orgId", coalesce(project_id, '') AS "projectId", name,
          enabled,
        expires_at AS "expiresAt", permissions, external_id AS "externalId", metadata::text,
        allowed_ips AS "allowedIps",
        CASE WHEN roles IS NOT NULL THEN (
          SELECT json_agg(role.permissions) FROM roles role
          WHERE role.org_id = api_keys.org_id AND role.name IN (SELECT json_array_elements_text(api_keys.roles))
        ) END AS "ofRoles", import_hash IS NOT NULL AS "isImported", of_holder AS "isOfHolder",
        coalesce(counter_id, id) AS "counterId", ${limitColumns}`)

    /**
     * SQL: whether the org of a key exists, and its project if it has one. The keys of deleted ones have rows until a
     * sweep has removed them; every statement that finds keys has this condition.
     */
    const hasOwner = (keys = "api_keys") =>
      sql.literal(`EXISTS (SELECT FROM orgs WHERE id = ${keys}.org_id)
        AND (${keys}.project_id IS NULL OR EXISTS (SELECT FROM projects WHERE id = ${keys}.project_id))`)

    // Lateral subqueries: a plan made while these tables were small cannot read the whole tables later.
    const insertForProject = yield* makeInsert(
      sql`
        owner.org_id, owner.id, NULL, NULL FROM asked CROSS JOIN LATERAL (
          SELECT id, org_id, key_prefix FROM projects
          WHERE id = "projectId" AND ("orgId" IS NULL OR org_id = "orgId") LIMIT 1
        ) AS owner CROSS JOIN LATERAL (SELECT id, limits, key_prefix FROM orgs WHERE id = owner.org_id LIMIT 1) AS org`,
      prefixOf("owner"),
    )
    const insertForOrg = yield* makeInsert(
      sql`
        org.id, NULL, NULL, NULL FROM asked CROSS JOIN LATERAL (
          SELECT id, limits, key_prefix FROM orgs WHERE id = "orgId" LIMIT 1
        ) AS org`,
      prefixOf(),
    )
    const projectOwner = (orgId: string | null, projectId: string): Limits.Owner => ({
      key: projectId,
      from: () => sql`
        projects p JOIN orgs org ON org.id = p.org_id
        WHERE p.id = ${projectId} AND (${orgId}::text IS NULL OR p.org_id = ${orgId})`,
    })

    /** Inserts the key of a holder in one transaction with the check of their limit. */
    const within = <A, E>(orgId: string | null, holder: Holder, insert: Effect.Effect<A, E>) =>
      holder === undefined || orgId === null
        ? insert
        : orUnavailable(sql.withTransaction(Effect.andThen(takeHolders(orgId, holder, false), insert)))

    /** What an insert without a row is due to: another prefix, or no such owner. */
    const orOther = (owner: Limits.Owner, prefix: Statement.Fragment, missing: () => NotFound) =>
      Effect.flatMap((row: unknown) =>
        row === undefined
          ? sql<{ readonly prefix: string }>`SELECT ${prefix} AS prefix FROM ${owner.from()}`.pipe(
              orUnavailable,
              Effect.flatMap(([found]) =>
                found === undefined ? Effect.fail(missing()) : Effect.succeed(found.prefix),
              ),
            )
          : Effect.succeed(undefined),
      )

    return ApiKeyRepository.of({
      insertForProject: (scope, projectId, key, entry, holder) => {
        const orgId = orgOf(scope)
        const owner = projectOwner(orgId, projectId)
        const insert = limit
          .admit(owner, { bytes: newRowBytes(key) }, (beside) =>
            insertForProject({ ...key, metadata: toJsonText(key.metadata), orgId, projectId, ...beside }, entry),
          )
          .pipe(orOther(owner, prefixOf("p"), projectNotFound))
        return within(orgId, holder, insert)
      },

      insertForOrg: (orgId, key, entry, holder) => {
        const owner = Limits.orgOwner(sql, orgId)
        const insert = limit
          .admit(owner, { bytes: newRowBytes(key) }, (beside) =>
            insertForOrg({ ...key, metadata: toJsonText(key.metadata), orgId, projectId: null, ...beside }, entry),
          )
          .pipe(orOther(owner, prefixOf(), orgNotFound))
        return within(orgId, holder, insert)
      },

      importKeys: (orgId, keys, dryRun, entry) =>
        Effect.gen(function* () {
          // One import after the other, of all orgs: they share the bounds of starts, and hashes belong to one key.
          yield* lockName(sql, "import")
          const [org] = yield* sql`SELECT id FROM orgs WHERE id = ${orgId} FOR NO KEY UPDATE`
          if (org === undefined) return yield* orgNotFound()
          const projectIds = new Set(keys.flatMap(({ projectId }) => projectId ?? []))
          const projects = yield* sql<{ readonly id: string }>`
            SELECT id FROM projects WHERE org_id = ${orgId} AND id = ANY(${texts(projectIds)})`
          const ownIds = new Set(projects.map(({ id }) => id))
          const foreign = keys.findIndex(({ projectId }) => projectId !== null && !ownIds.has(projectId))
          if (foreign !== -1) return yield* faultOf(foreign, "projectId: the org has no such project.")

          const unverifiable = hasArgon2 ? -1 : keys.findIndex(({ hash }) => hash.startsWith(argon2Start))
          if (unverifiable !== -1)
            return yield* faultOf(unverifiable, "algorithm: argon2id needs Node 24.7 or newer here.")

          const hashes = new Set(keys.map(({ hash }) => hash))
          // A key that was used has two: the one that was imported, and its SHA-256.
          const stored = yield* sql<{ readonly id: string; readonly orgId: string; readonly hash: string }>`
            SELECT id, org_id AS "orgId", encode(import_hash, 'hex') AS hash FROM api_keys
            WHERE import_hash = ANY(${bytes(hashes)})
            UNION ALL
            SELECT id, org_id, encode(hash, 'hex') FROM api_keys WHERE hash = ANY(${bytes(hashes)})`
          const others = new Set(stored.filter((one) => one.orgId !== orgId).map(({ hash }) => hash))
          const taken = keys.findIndex(({ hash }) => others.has(hash))
          if (taken !== -1) return yield* new Conflict({ error: `keys.${taken}.hash: a key of another org has it.` })

          const idOf = new Map(stored.map(({ hash, id }) => [hash, id]))
          const wanted = keys.filter(({ hash, id }) => !idOf.has(hash) && idOf.set(hash, id) !== undefined)
          const starts = wanted.flatMap(({ importStart }) => importStart ?? [])
          const counts = yield* sql<{ readonly start: string; readonly n: number }>`
            SELECT import_start AS start, count(*)::int AS n FROM api_keys
            WHERE import_start = ANY(${texts(new Set(starts))}) GROUP BY 1`
          const countOf = new Map(counts.map(({ n, start }) => [start, n]))
          for (const { id, importStart } of wanted) {
            if (importStart === null) continue
            const count = (countOf.get(importStart) ?? 0) + 1
            countOf.set(importStart, count)
            if (count > maxKeysPerStart)
              return yield* faultOf(
                keys.findIndex((key) => key.id === id),
                startTaken,
              )
          }
          const needs = { rows: wanted.length, bytes: wanted.reduce((sum, key) => sum + newRowBytes(key), 0) }
          // Fails at a limit, and creates nothing.
          if (dryRun && wanted.length > 0)
            yield* limit.admit(Limits.orgOwner(sql, orgId), needs, () => Effect.undefined)
          if (!dryRun && wanted.length > 0) {
            const rows = wanted.map((key) => ({ ...key, metadata: toJsonText(key.metadata) }))
            const insert = sql`
              WITH asked AS (
                SELECT * FROM json_to_recordset(${JSON.stringify(rows)}) AS asked (${sql.literal(newKeyFields)})
              ),
              changed AS (${insertKeys(sql`${orgId}, "projectId", decode(hash, 'hex'), "importStart" FROM asked`)})
              ${insertCounters()}`
            yield* limit.within(Limits.orgOwner(sql, orgId), needs, insert)
            const details = { ...entry.details, keys: wanted.length }
            yield* audited(sql, { ...entry, details }, sql`SELECT id AS "orgId" FROM orgs WHERE id = ${orgId}`)
            yield* sql`SELECT pg_notify(${revocationChannel}, ${keysImported})`
          }
          return keys.map(({ hash, id }) => ({ id: idOf.get(hash)!, isNew: idOf.get(hash) === id }))
        }).pipe(sql.withTransaction, orUnavailable),

      // In one statement: another replica may replace a hash between two.
      findImported: (digests, starts) =>
        Effect.gen(function* () {
          const columns = sql`${grantColumns()}, import_start AS "importStart"`
          const found = yield* sql<GrantRow & { readonly importStart: string | null }>`
            SELECT ${columns} FROM api_keys WHERE hash = ANY(${bytes(digests)}) AND ${hasOwner()}
            UNION ALL
            SELECT ${columns} FROM api_keys WHERE import_start = ANY(${texts(starts)}) AND ${hasOwner()}`
          const exist = found.length > 0 || (yield* anyImported())
          return {
            exist,
            found: found.map((row) => ({ hash: row.hash, start: row.importStart, grant: toGrant(row) })),
          }
        }).pipe(orUnavailable),

      settleImported: (orgId, keyId, sha256) =>
        sql<{ readonly isFree: boolean }>`
          WITH import AS MATERIALIZED (
            SELECT pg_try_advisory_xact_lock_shared(hashtextextended('gatehouse:import', 0)) AS "isFree"
          ), settled AS (
            UPDATE api_keys SET hash = decode(${sha256}, 'hex'), import_start = NULL FROM import
            WHERE id = ${keyId} AND org_id = ${orgId} AND import_hash IS NOT NULL AND "isFree"
          )
          SELECT "isFree" FROM import`.pipe(
          // The SHA-256 was imported meanwhile, or before this use: that key is found by it from now on.
          Effect.catchIf(
            ({ reason }) => reason._tag === "UniqueViolation",
            () => Effect.succeed([{ isFree: true }]),
          ),
          Effect.filterOrFail(
            ([one]) => one!.isFree,
            () => keysAreImported,
          ),
          Effect.asVoid,
          orUnavailableWithin("sweep"),
        ),

      /**
       * Deletes a key of an org, and its counter with the last key that has it. Commits the deletion, its entry and its
       * notification together. Locks the key and the counter before it decides: a statement that waits for a lock does
       * not see the key that a rotation has inserted meanwhile.
       */
      remove: (orgId, keyId, entry, holder) =>
        Effect.gen(function* () {
          const [key] = yield* sql<{ readonly counterId: string }>`
            SELECT coalesce(counter_id, id) AS "counterId" FROM api_keys
            WHERE id = ${keyId} AND org_id = ${orgId} AND ${isHeld(holder)} AND ${hasOwner()} FOR UPDATE`
          if (key === undefined) return yield* keyNotFound()
          const { counterId } = key
          const [counter] = yield* lockCounters(sql, [{ orgId, id: counterId }])
          yield* audited(
            sql,
            entry,
            sql`
              DELETE FROM api_keys WHERE id = ${keyId} AND org_id = ${orgId}
              RETURNING org_id AS "orgId", pg_notify(${revocationChannel}, id)`,
          )
          if (counter === undefined) return
          yield* sql`
            DELETE FROM key_counters WHERE id = ${counterId} AND org_id = ${orgId}
              AND NOT EXISTS (SELECT FROM api_keys WHERE ${isOfOrg(sql, orgId)} AND counter_id = ${counterId})
              AND NOT EXISTS (SELECT FROM api_keys WHERE org_id = ${orgId} AND id = ${counterId})`
        }).pipe(sql.withTransaction, orUnavailable),

      rotate: (orgId, keyId, replacement, entry, holder) =>
        Effect.gen(function* () {
          const { id, prefix, keyPrefix, hash, now, expiresAt, oldKeyUntil, settings } = replacement
          const [old] = yield* sql<RotatedKey>`
            SELECT key.name, ${prefixOf("p")} AS "keyPrefix", expires_at AS "expiresAt", replaced_by AS "replacedBy",
              coalesce(counter_id, key.id) AS "counterId",
              (SELECT ${sql.literal(ByteLimit.bytesOf("key"))} FROM api_keys WHERE id = key.id) AS bytes,
              CASE WHEN rate_limit IS NOT NULL
                THEN json_build_object('limit', rate_limit, 'window', rate_window) END AS "rateLimit"
            FROM api_keys key JOIN orgs org ON org.id = key.org_id
            LEFT JOIN projects p ON p.id = key.project_id AND p.org_id = key.org_id
            WHERE key.id = ${keyId} AND key.org_id = ${orgId} AND ${isHeld(holder)} AND ${hasOwner("key")}
            FOR UPDATE OF key`
          if (old === undefined) return yield* keyNotFound()
          if (old.replacedBy !== null) return yield* keyReplaced()
          if (old.expiresAt !== null && old.expiresAt.getTime() <= DateTime.toEpochMillis(now))
            return yield* keyExpired()
          if (old.keyPrefix !== keyPrefix) return { name: old.name, otherPrefix: old.keyPrefix }
          if (holder !== undefined) yield* takeHolders(orgId, holder, true)
          const isCounted = yield* changeCounter({ ...old, orgId }, settings)
          const insert = sql`
            INSERT INTO api_keys (
              id, org_id, project_id, name, prefix, hash, created_at, expires_at, counter_id, of_holder,
              enabled, permissions, roles, external_id, metadata, allowed_ips, rate_limit, rate_window
            )
            SELECT ${id}, org_id, project_id, name, ${prefix}, decode(${hash}, 'hex'), ${date(now)},
              ${expiresAt === undefined ? sql`expires_at` : sql`${dateOrNull(expiresAt)}::timestamptz`},
              ${isCounted ? old.counterId : null}::text, of_holder, ${newSettings(settings)}
            FROM api_keys WHERE id = ${keyId} AND org_id = ${orgId}`
          yield* limit.within(Limits.orgOwner(sql, orgId), { bytes: old.bytes }, insert)
          yield* audited(
            sql,
            { ...entry, details: { name: old.name, ...entry.details } },
            sql`
              UPDATE api_keys SET replaced_by = ${id}, expires_at = least(expires_at, ${date(oldKeyUntil)}::timestamptz)
              WHERE id = ${keyId} AND org_id = ${orgId}
              RETURNING org_id AS "orgId", pg_notify(${revocationChannel}, id)`,
          )
          return { name: old.name, otherPrefix: undefined }
        }).pipe(sql.withTransaction, orUnavailable),

      update: (orgId, keyId, change, entry, holder) =>
        Effect.gen(function* () {
          const [old] = yield* sql<OldKey>`
            SELECT leaked_at IS NOT NULL AS leaked, coalesce(counter_id, id) AS "counterId",
              CASE WHEN rate_limit IS NOT NULL
                THEN json_build_object('limit', rate_limit, 'window', rate_window) END AS "rateLimit"
            FROM api_keys WHERE id = ${keyId} AND org_id = ${orgId} AND ${isHeld(holder)} AND ${hasOwner()}`
          if (old === undefined) return yield* keyNotFound()
          if (old.leaked && change.enabled === true) return yield* keyLeaked()
          const { counterId } = old
          const isLimitChange = changesLimits(change)
          if (isLimitChange) yield* changeCounter({ ...old, orgId }, change)
          const sets = changesOf(change)
          // A change of credits alone sets no column.
          if (sets.length === 0) sets.push(sql`enabled = enabled`)
          yield* audited(
            sql,
            entry,
            sql`
              UPDATE api_keys SET ${sql.csv(sets)} WHERE id = ${keyId} AND org_id = ${orgId}
              RETURNING org_id AS "orgId"`,
          )
          const changed = yield* notify(orgId, keyId, isLimitChange ? counterId : undefined)
          const [key] = yield* decodeKeys(
            sql`SELECT ${keyColumns()} FROM api_keys WHERE id = ${keyId} AND org_id = ${orgId}`,
          )
          return { key: key!, changed }
        }).pipe((change) => stored.changing("key", sql`id = ${keyId} AND org_id = ${orgId}`, change), orUnavailable),

      disableLeaked: (hash, entryOf) =>
        Effect.gen(function* () {
          const [found] = yield* sql<{ readonly keyId: string; readonly orgId: string; readonly isNew: boolean }>`
            SELECT id AS "keyId", org_id AS "orgId", leaked_at IS NULL AS "isNew"
            FROM api_keys WHERE hash = decode(${hash}, 'hex') AND ${hasOwner()} FOR UPDATE`
          if (found === undefined || !found.isNew) return found
          const { keyId, orgId } = found
          yield* audited(
            sql,
            yield* entryOf(keyId),
            sql`
              UPDATE api_keys SET enabled = false, leaked_at = now() WHERE id = ${keyId} AND org_id = ${orgId}
              RETURNING org_id AS "orgId"`,
          )
          yield* notify(orgId, keyId, undefined)
          return found
        }).pipe(sql.withTransaction, orUnavailable),

      /**
       * Lists keys of an org. The first filter with an index chooses the keys to look at, the others are checked for
       * each of them, so that they are bounded: no index fits every combination.
       */
      list: Effect.fnUntraced(function* (
        orgId,
        page,
        { externalId, name, order = "oldest", projectId, state, text } = {},
      ) {
        const filters = [
          externalId === undefined ? undefined : sql`external_id = ${externalId}`,
          // Planner (the name of a key with its org): an index that begins with the org seems to fit what finds keys by
          // ids, and all keys of the org would be read.
          name === undefined ? undefined : sql`org_id || ':' || name = ${`${orgId}:${name}`}`,
          projectId === undefined ? undefined : sql`project_id = ${projectId}`,
        ]
        const [indexed, ...others] = filters.filter((filter) => filter !== undefined)
        if (state !== undefined) others.push(sql`${stateOfKey()} = ${state}`)
        if (text !== undefined) others.push(hasText(sql, text, "name", "external_id", "prefix", "id"))
        // Only the indexes of the filters have the org and the order in this form (ADR 14).
        const [keys, id] =
          indexed === undefined
            ? [sql`org_id = ${orgId} AND ${afterCursor(sql, page, order)}`, sql`id`]
            : [
                sql`${isOfOrg(sql, orgId)} AND ${indexed} AND ${afterCursor(sql, page, order, listedId)}`,
                sql.literal(listedId),
              ]
        const { within = sql.literal("true"), ...seen } =
          others.length === 0 ? {} : yield* lookedAt(sql, sql`api_keys WHERE ${keys}`, id, order)
        const checked = sql.and([...others, within])
        // IS TRUE: as a join, a plan could begin with the orgs, and sort all keys of the filter.
        const rows = sql`
          SELECT * FROM api_keys WHERE ${keys} AND ${checked} AND (${hasOwner()}) IS TRUE
          ORDER BY ${id} ${descending(sql, order)} LIMIT ${page.limit + 1}`
        const found = yield* decodeKeyPage(
          pageOf(sql, page, sql`SELECT ${keyColumns()} FROM (${rows}) AS api_keys`, "id", ["name"], order),
        )
        return { ...found, ...seen }
      }, orUnavailable),

      find: (orgId, keyId, holder) =>
        sql`
          SELECT ${keyColumns()} FROM api_keys
          WHERE id = ${keyId} AND org_id = ${orgId} AND ${isHeld(holder)} AND ${hasOwner()}`.pipe(
          decodeKeys,
          Effect.flatMap(([key]) => (key === undefined ? keyNotFound() : Effect.succeed(key))),
          orUnavailable,
        ),

      findByHashes: (hashes) =>
        sql<GrantRow>`SELECT ${grantColumns()} FROM api_keys WHERE hash = ANY (${bytes(hashes)})
          AND ${hasOwner()}`.pipe(
          Effect.map((rows) => new Map(rows.map((row) => [row.hash, toGrant(row)]))),
          orUnavailable,
        ),

      touch: (usage) => {
        const ids = texts(usage.keys())
        return sql`
          UPDATE api_keys SET last_used_at = used.at
          FROM unnest(${ids}, ${times(usage.values())}) AS used (id, at)
          -- The ids again: without them a plan may read all keys for the join.
          WHERE api_keys.id = ANY(${ids}) AND api_keys.id = used.id AND (last_used_at IS NULL OR last_used_at < used.at)`.pipe(
          Effect.asVoid,
          orUnavailableWithin("sweep"),
        )
      },
    })
  }),
).pipe(Layer.provide(OrgUsage.layer))

interface OldKey {
  readonly leaked: boolean
  readonly counterId: string
  readonly rateLimit: RateLimit | null
}

/** Keys with one counter that a change notifies of: as many as a key was rotated within the longest grace period. */
const maxNotified = 1_000

interface RotatedKey {
  readonly name: string
  readonly keyPrefix: string
  readonly counterId: string
  readonly rateLimit: RateLimit | null
  readonly expiresAt: Date | null
  readonly replacedBy: string | null
  /** What the new key stores; its settings may be others. */
  readonly bytes: number
}

/** A key whose limits change. */
interface LimitedKey {
  readonly orgId: string
  readonly counterId: string
  /** The rate limit that counts when there is no counter. */
  readonly rateLimit: RateLimit | null
}

const changesLimits = ({ credits, rateLimit }: SettingsChange) => rateLimit !== undefined || credits !== undefined

/** The limits of a key's counter. Without a counter, the key itself may have a rate limit. */
const Counter = Schema.Struct({
  version: Schema.Int,
  rateLimit: Schema.NullOr(RateLimit),
  credits: Schema.NullOr(Schema.Struct({ remaining: Schema.Int, since: Schema.Int, refill: Schema.NullOr(Refill) })),
  now: Schema.Number,
})

const { credits: _, ...plainFields } = ApiKey.fields
const Row = Schema.Struct({
  ...plainFields,
  createdAt: Time,
  expiresAt: Schema.NullOr(Time),
  lastUsedAt: Schema.NullOr(Time),
  leakedAt: Schema.NullOr(Time),
  counter: Schema.NullOr(Counter),
  metadata: Schema.NullOr(exactJson(Metadata)),
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

const toKey = ({ counter, ...row }: typeof Row.Type): ApiKey => {
  if (counter === null) return { ...row, credits: null }
  const { credits, now, rateLimit } = counter
  if (credits === null) return { ...row, rateLimit, credits }
  const { refill, remaining } = refilled(credits, now)
  return { ...row, rateLimit, credits: refill === null ? { remaining } : { remaining, refill } }
}

const decodeOne = decodeRows(Row)
const decodeMany = decodePage(Row)

/** Decodes rows with `keyColumns`. */
const decodeKeys = <E, R>(rows: Effect.Effect<ReadonlyArray<unknown>, E, R>) =>
  Effect.map(decodeOne(rows), (decoded) => decoded.map(toKey))

/** Decodes a page of rows with `keyColumns`. */
const decodeKeyPage = <E, R>(rows: Effect.Effect<ReadonlyArray<unknown>, E, R>) =>
  Effect.map(decodeMany(rows), ({ hasMore, items }): Found<ApiKey> => ({ hasMore, items: items.map(toKey) }))

/** A row of a look-up. Not decoded with a schema: it is on the path of each look-up. */
interface GrantRow extends ValidKey {
  readonly hash: string
  readonly name: string
  readonly enabled: boolean
  readonly expiresAt: Date | null
  readonly permissions: ReadonlyArray<string> | null
  /** The permissions of each of its roles. */
  readonly ofRoles: ReadonlyArray<ReadonlyArray<string>> | null
  readonly externalId: string | null
  readonly metadata: string | null
  readonly allowedIps: ReadonlyArray<string> | null
  readonly counterId: string
  readonly rateLimit: RateLimit | null
  readonly counter: typeof Counter.Type | null
  readonly isImported: boolean
  readonly isOfHolder: boolean
}

const limitsOf = ({ counter, counterId, rateLimit }: GrantRow): KeyGrant["limits"] => {
  const limit = counter === null ? rateLimit : counter.rateLimit
  const hasCredits = counter !== null && counter.credits !== null
  if (limit === null && !hasCredits) return null
  return { counterId, version: counter?.version ?? 0, rateLimit: limit, hasCredits }
}

const permissionsOf = ({ ofRoles, permissions }: GrantRow) => {
  const all = ofRoles === null ? (permissions ?? []) : [...new Set([...(permissions ?? []), ...ofRoles.flat()])]
  return all.length === 0 ? noPermissions : new PermissionSet(all)
}

const toGrant = (row: GrantRow): KeyGrant => ({
  keyId: row.keyId,
  orgId: row.orgId,
  projectId: row.projectId,
  name: row.name,
  enabled: row.enabled,
  expiresAt: row.expiresAt === null ? null : DateTime.fromDateUnsafe(row.expiresAt),
  permissions: permissionsOf(row),
  externalId: row.externalId,
  metadata: row.metadata === null ? null : (parseJson(row.metadata) as Metadata),
  allowedIps: row.allowedIps === null ? null : new AllowedNetworks(row.allowedIps),
  limits: limitsOf(row),
  isImported: row.isImported,
  isOfHolder: row.isOfHolder,
})
