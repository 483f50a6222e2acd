import { DateTime, Effect, Layer, Record, Schema } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import { formatOwner, type RepositoryOwner } from "../../domain/RepositoryOwner.ts"
import { Conflict, NotFound } from "../../domain/Errors.ts"
import type { Person } from "../../domain/Person.ts"
import { cutRows, type Found, type Page } from "../../domain/Page.ts"
import { orgNotFound, type OrgScope } from "../../domain/Principal.ts"
import type { Named } from "../../domain/orgs/Named.ts"
import { Org } from "../../domain/orgs/Org.ts"
import { OrgRepository } from "../../domain/orgs/Orgs.ts"
import type { OrgAmounts, OrgLimitOverrides } from "../../domain/orgs/OrgLimits.ts"
import { erasedKinds } from "../../domain/orgs/OrgErasure.ts"
import { erasedSoFar, newestEntry, sumOfErased } from "./erasureProgress.ts"
import { OrgUsage } from "./OrgUsage.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import { audited } from "../audit/audited.ts"
import { everywhere, type Node, nodeOfRow, Nodes } from "../database/Nodes.ts"
import { ownerDeleted, revocationChannel } from "../revocations.ts"
import {
  afterCursor,
  assignments,
  date,
  decodePage,
  decodeRows,
  hasText,
  inScope,
  lookedAt,
  pageOf,
  texts,
  Time,
} from "../database/fragments.ts"
import { countPending, pendingSample, samplePending } from "./pendingDeliveriesSql.ts"
import { type CountedRows, countedRows, countRows, countUpTo, usedBytes } from "./enforceLimits.ts"

const Row = Schema.Struct({ ...Org.fields, createdAt: Time })
const decode = decodeRows(Row)
const decodeList = decodePage(Row)

interface OwnerRow extends RepositoryOwner {
  readonly orgId: string
}

/** A changed org, and the name of its node. */
interface PlacedOrg {
  readonly orgId: string
  readonly node: string | null
}

/** The owners of an org, in their own order. Owners of an org that is being erased belong to nobody. */
const readOwners = (sql: SqlClient.SqlClient, orgId: string) =>
  sql<RepositoryOwner>`
    SELECT provider, owner FROM org_owners WHERE org_id = ${orgId} AND EXISTS (SELECT FROM orgs WHERE id = ${orgId})
    ORDER BY position`

/**
 * Replaces the owners of an org, in a transaction that has locked the org. An owner that stays keeps the id that its
 * runs have proved. Fails when another org, also one that is being erased, has one of them.
 */
const replaceOwners = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  orgId: string,
  owners: ReadonlyArray<RepositoryOwner>,
) {
  const unique = [...new Map(owners.map((owner) => [formatOwner(owner).toLowerCase(), owner])).values()]
  const [providers, names] = [texts(unique.map(({ provider }) => provider)), texts(unique.map(({ owner }) => owner))]
  const wanted = sql`unnest(${providers}, ${names}) WITH ORDINALITY AS wanted (provider, owner, position)`
  yield* sql`
    DELETE FROM org_owners o WHERE org_id = ${orgId} AND NOT EXISTS (
      SELECT FROM ${wanted} WHERE wanted.provider = o.provider AND lower(wanted.owner) = o.owner_key)`
  yield* sql`
    INSERT INTO org_owners (provider, owner_key, owner, org_id, position)
    -- In one order, so that two changes of the same owners do not wait for each other.
    SELECT provider, lower(owner), owner, ${orgId}, position FROM ${wanted} ORDER BY provider, lower(owner)
    ON CONFLICT (provider, owner_key) DO UPDATE SET owner = excluded.owner, position = excluded.position
      WHERE org_owners.org_id = excluded.org_id`
  const [taken] = yield* sql<OwnerRow>`
    SELECT o.provider, o.owner, o.org_id AS "orgId" FROM ${wanted}
    JOIN org_owners o ON o.provider = wanted.provider AND o.owner_key = lower(wanted.owner)
    WHERE o.org_id <> ${orgId} ORDER BY o.provider, o.owner_key LIMIT 1`
  if (taken === undefined) return
  return yield* new Conflict({
    error: `owners: another org has the owner ${formatOwner(taken)}. Remove it there first.`,
  })
})

/** Orgs in PostgreSQL. */
export const layer = Layer.effect(
  OrgRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const nodes = yield* Nodes
    const usage = yield* OrgUsage
    const columns = sql.literal(`id AS "orgId", name, created_at AS "createdAt"`)

    return OrgRepository.of({
      insert: ({ orgId, name, createdAt }, entry) =>
        Effect.gen(function* () {
          const node = yield* nodes.forNewOrg
          const insert = audited(
            sql,
            entry,
            sql`
              INSERT INTO orgs (id, name, created_at, node)
              VALUES (${orgId}, ${name}, ${date(createdAt)}, ${node?.name ?? null})
              RETURNING id AS "orgId"`,
          )
          yield* node === undefined ? insert : sql.withTransaction(Effect.andThen(insert, copyTo(sql, node, orgId)))
        }).pipe(orUnavailable),

      find: (orgId) =>
        sql`SELECT ${columns} FROM orgs WHERE id = ${orgId}`.pipe(
          decode,
          orUnavailable,
          Effect.flatMap(([org]) => (org === undefined ? Effect.fail(orgNotFound()) : Effect.succeed(org))),
        ),

      findWithUsage: (orgId) =>
        Effect.gen(function* () {
          const sampled = yield* sample(sql, orgId, columns)
          if (sampled === undefined) return yield* orgNotFound()
          const [org] = yield* decode(Effect.succeed([sampled]))
          const owners = yield* readOwners(sql, orgId)
          const node = yield* nodeOfRow(nodes, sampled.node)
          const here = yield* used(sql, sampled)
          const there = node && (yield* sample(node.sql, orgId, columns))
          const stored = there === undefined ? here : withNode(here, yield* used(node!.sql, there))
          const storedBytes = Math.max(0, stored.storedBytes + usage.bytes(orgId))
          const { keyPrefix, overrides, retentionDays, strictEvents } = sampled
          const settings = { overrides: overrides ?? {}, keyPrefix, retentionDays, strictEvents }
          return { org: org!, ...settings, used: { ...stored, storedBytes }, owners }
        }).pipe(orUnavailable),

      owners: (orgId) => readOwners(sql, orgId).pipe(orUnavailable),

      update: (orgId, { keyPrefix, name, limits, owners, retentionDays, strictEvents }, entry) => {
        const sets = assignments(sql, {
          // Also when it stays: a change of the owners alone locks the row, too.
          name: sql`coalesce(${name ?? null}, name)`,
          key_prefix: keyPrefix,
          retention_days: retentionDays,
          strict_events:
            strictEvents === undefined
              ? undefined
              : sql`CASE WHEN ${strictEvents} THEN coalesce(strict_events, ${entry.id}) END`,
          limits: limits && sql`jsonb_strip_nulls(coalesce(limits, '{}') || ${JSON.stringify(limits)}::text::jsonb)`,
        })
        return Effect.gen(function* () {
          const [org] = yield* audited<PlacedOrg>(
            sql,
            entry,
            sql`UPDATE orgs SET ${sql.csv(sets)} WHERE id = ${orgId} RETURNING id AS "orgId", node`,
          )
          if (org === undefined) return yield* orgNotFound()
          if (owners !== undefined) yield* replaceOwners(sql, orgId, owners)
          const node = yield* nodeOfRow(nodes, org.node)
          if (node !== undefined) yield* copyTo(sql, node, orgId)
        }).pipe(sql.withTransaction, orUnavailable)
      },

      remove: (orgId, now, entry) =>
        Effect.gen(function* () {
          const [org] = yield* audited<PlacedOrg>(
            sql,
            entry,
            sql`DELETE FROM orgs WHERE id = ${orgId} RETURNING id AS "orgId", node`,
          )
          if (org === undefined) return yield* orgNotFound()
          yield* sql`SELECT pg_notify(${revocationChannel}, ${ownerDeleted(orgId)})`
          // The sweep has the id of the entry, which is a new one.
          yield* sql`
            INSERT INTO sweeps (id, org_id, kind, node, created_at)
            VALUES (${entry.id}, ${orgId}, 'erase', ${org.node}, ${date(now)})`
        }).pipe(sql.withTransaction, orUnavailable),

      erasure: Effect.fnUntraced(function* (orgId) {
        const deletion = yield* newestEntry<Deletion>(sql, orgId, "org.delete", "id, at, actor, person")
        const here = deletion && (yield* erasedSoFar(sql, deletion.id, orgId))
        if (here === undefined) return yield* noErasure()
        const node = here.node === null ? undefined : yield* nodes.named(here.node)
        const there = node && (yield* erasedSoFar(node.sql, deletion!.id, orgId))
        const none = Record.map(erasedKinds, () => 0)
        return {
          orgId,
          deletedAt: DateTime.fromDateUnsafe(deletion!.at),
          actor: deletion!.actor,
          person: deletion!.person === null ? null : (JSON.parse(deletion!.person) as Person),
          endedAt: here.endedAt && DateTime.fromDateUnsafe(here.endedAt),
          progress: Math.min(here.progress, there?.progress ?? 100),
          erased: { ...none, ...sumOfErased(here.erased, there?.erased ?? {}) },
        }
      }, orUnavailable),

      findNamed: (scope, page) =>
        Effect.map(
          everywhere(sql, nodes, (one) => orUnavailable(namedIn(one, scope, page))),
          (found) => pageOfNamed(found.flat(), page),
        ),

      list: Effect.fnUntraced(function* (scope, page, { order = "oldest", owns, text } = {}) {
        const all = sql.and([inScope(sql, scope, "id"), afterCursor(sql, page, order)])
        const { within, ...seen } =
          text === undefined
            ? { within: sql.literal("true") }
            : yield* lookedAt(sql, sql`orgs WHERE ${all}`, sql`id`, order)
        const filters = [all, within]
        if (text !== undefined) filters.push(hasText(sql, text, "name", "id"))
        if (owns !== undefined) {
          const owners = yield* everywhere(sql, nodes, (one) => orUnavailable(ownersOf(one, owns)))
          filters.push(sql`id = ANY(${texts(owners.flat())})`)
        }
        const rows = sql`SELECT ${columns} FROM orgs WHERE ${sql.and(filters)}`
        return { ...(yield* pageOf(sql, page, rows, "orgId", ["name"], order).pipe(decodeList)), ...seen }
      }, orUnavailable),
    })
  }),
).pipe(Layer.provide(OrgUsage.layer))

/** The entry of the audit log about the deletion of an org. */
interface Deletion {
  readonly id: string
  readonly at: Date
  readonly actor: string
  readonly person: string | null
}

const noErasure = () =>
  new NotFound({ error: "There is no erasure of this org: it was not deleted, or its audit log has expired." })

/** The tables whose rows have an id and an org. */
const owned = [
  ...["projects", "deployments", "api_keys", "webhook_endpoints", "job_schedules"],
  ...["jobs", "finished_jobs", "events", "deliveries"],
]

/** The org of what has an id in a database; none when nothing has it. */
const ownersOf = (sql: SqlClient.SqlClient, id: string) => {
  const of = (table: string) => sql`SELECT org_id AS "orgId" FROM ${sql(table)} WHERE id = ${id}`
  const [first, ...others] = owned.map(of)
  return sql<{ readonly orgId: string }>`
    ${others.reduce((all, one) => sql`${all} UNION ALL ${one}`, first!)}`.pipe(
    Effect.map((found) => found.map(({ orgId }) => orgId)),
  )
}

/** What the copy of an org's row has, at the database that has the org's other rows. */
export interface CopiedOrg {
  readonly name: string
  readonly created_at: Date
  readonly limits: string | null
  readonly retention_days: number | null
  readonly strict_events: string | null
}
export const copiedColumns = "name, created_at, limits::text AS limits, retention_days, strict_events"
export const writeCopy = (sql: SqlClient.SqlClient, orgId: string, org: CopiedOrg) => sql`
  INSERT INTO orgs (id, name, created_at, limits, retention_days, strict_events)
  VALUES (${orgId}, ${org.name}, ${org.created_at}, ${org.limits}::text::jsonb, ${org.retention_days},
    ${org.strict_events})
  ON CONFLICT (id) DO UPDATE SET
    name = excluded.name, limits = excluded.limits, retention_days = excluded.retention_days,
    -- The node has the catalogue, and so its version.
    strict_events = CASE WHEN excluded.strict_events IS NOT NULL
      THEN coalesce(orgs.strict_events, excluded.strict_events) END`

/**
 * Copies the row of an org to its node, so that statements there find its limits without the platform's database. Last
 * in the transaction that changes the org: when the node does not answer, the change fails, too.
 */
const copyTo = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, node: Node, orgId: string) {
  const [org] = yield* sql<CopiedOrg>`SELECT ${sql.literal(copiedColumns)} FROM orgs WHERE id = ${orgId}`
  yield* writeCopy(node.sql, orgId, org!)
})

const countedNames = Object.keys(countedRows) as ReadonlyArray<CountedRows>
/** Rows of a kind that one statement counts for display; past that, they are counted in batches. */
const maxInlineCount = 10_000
/** Rows of a kind that are counted for display in all. */
const maxShownCount = 10_000_000

/** An org, and what it has in a database, as far as one statement counts it. */
interface Sampled extends OrgAmounts {
  readonly orgId: string
  readonly node: string | null
  readonly overrides: OrgLimitOverrides | null
  readonly keyPrefix: string | null
  readonly retentionDays: number | null
  readonly strictEvents: boolean
}

/** Reads the row of an org with its sampled amounts, and any other columns; `undefined` without such an org. */
const sample = (sql: SqlClient.SqlClient, orgId: string, others: Statement.Fragment) => {
  const counts = countedNames.map((name) => `${countUpTo(name, maxInlineCount)}::int AS "${name}"`)
  const rows = sql<Sampled>`
    SELECT ${others}, org.node, org.limits AS overrides, org.key_prefix AS "keyPrefix",
      org.retention_days AS "retentionDays", org.strict_events IS NOT NULL AS "strictEvents",
      ${sql.literal(counts.join(", "))}, ${samplePending(sql)}::int AS "pendingDeliveries",
      ${sql.literal(usedBytes)}::float8 AS "storedBytes"
    FROM orgs org WHERE id = ${orgId}`
  return Effect.map(rows, ([row]) => row)
}

/** What an org has in a database: what the sample has cut is counted again. */
const used = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, sampled: Sampled) {
  const { orgId, pendingDeliveries, storedBytes } = sampled
  const counted = yield* Effect.all(
    Record.map(countedRows, (_, name) =>
      sampled[name] < maxInlineCount ? Effect.succeed(sampled[name]) : countRows(sql, name, orgId, maxShownCount),
    ),
  )
  const pending =
    pendingDeliveries < pendingSample ? pendingDeliveries : (yield* countPending(sql, orgId, maxShownCount)).pending
  return { ...counted, pendingDeliveries: pending, storedBytes } satisfies OrgAmounts
})

/** What an org on a node has. While it moves, the platform's database has copies of what is the node's. */
const withNode = ({ keys, projects, storedBytes }: OrgAmounts, node: OrgAmounts): OrgAmounts => ({
  ...node,
  keys,
  projects,
  storedBytes: storedBytes + node.storedBytes,
})

/** Where names are: the table, the SQL of what a reader sees as the name, and the columns that may have the text. */
const places: ReadonlyArray<{
  readonly kind: Named["kind"]
  readonly table: string
  readonly name: string
  readonly texts: ReadonlyArray<string>
}> = [
  { kind: "project", table: "projects", name: "name", texts: ["name", "subdomain"] },
  { kind: "key", table: "api_keys", name: "name", texts: ["name", "external_id", "prefix"] },
  {
    kind: "endpoint",
    table: "webhook_endpoints",
    name: "coalesce(description, url)",
    texts: ["description", "url", "external_id"],
  },
  { kind: "schedule", table: "job_schedules", name: "workflow", texts: ["workflow"] },
  { kind: "change", table: "audit_log", name: "action", texts: [] },
]

/** What has a text in its name in a database, by table. */
const namedIn = (sql: SqlClient.SqlClient, scope: OrgScope, { text, ...page }: Page & { readonly text: string }) =>
  Effect.forEach(places, (place) => findIn(sql, scope, text, page, place))

type NamedRows = Effect.Success<ReturnType<typeof findIn>>

/**
 * The newest of what was found in several tables. Of each, `maxFilteredRows` rows were read at most: a page ends where
 * one of them was cut, and can have fewer items than its limit while others follow.
 */
const pageOfNamed = (parts: ReadonlyArray<NamedRows>, { limit }: Page): Found<Named> => {
  const ends = parts.flatMap(({ end }) => (end === undefined ? [] : [end]))
  const from = ends.reduce((one, other) => (one > other ? one : other), "")
  // While an org moves, two databases have its rows.
  const byId = new Map(parts.flatMap((part) => part.items.map((item) => [item.id, item] as const)))
  const items = [...byId.values()].filter(({ id }) => id >= from).toSorted((a, b) => (a.id < b.id ? 1 : -1))
  return {
    items: items.slice(0, limit),
    hasMore: items.length > limit || parts.some(({ hasMore }) => hasMore),
    ...(from === "" ? {} : { seenTo: from }),
  }
}

/** The newest rows of a table that fit; `end`: the last id that was looked at, when others may follow. */
const findIn = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  scope: OrgScope,
  text: string,
  page: Page,
  { kind, name, table, texts }: (typeof places)[number],
) {
  const all = sql.and([inScope(sql, scope), afterCursor(sql, page, "newest")])
  const { seenTo, within } = yield* lookedAt(sql, sql`${sql(table)} WHERE ${all}`, sql`id`, "newest")
  const fits = kind === "change" ? sql`request_id = ${text}` : hasText(sql, text, ...texts)
  const rows = yield* sql<Named>`
    SELECT ${kind}::text AS kind, t.id, t.name, t.org_id AS "orgId", orgs.name AS "orgName"
    FROM (
      SELECT id, org_id, ${sql.literal(name)} AS name FROM ${sql(table)} WHERE ${all} AND ${within} AND ${fits}
    ) AS t
    JOIN orgs ON orgs.id = t.org_id
    ORDER BY t.id DESC LIMIT ${page.limit + 1}`
  const { hasMore, items } = cutRows(rows, page.limit)
  return { items, hasMore, end: hasMore ? items.at(-1)!.id : seenTo }
})
