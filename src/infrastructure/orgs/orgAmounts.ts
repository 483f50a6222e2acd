import { Effect } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import { DefaultLimits, type OrgAmounts, type OrgLimitOverrides, limitsOf } from "../../domain/orgs/OrgLimits.ts"
import { type Counted, type CountedLimit, OrgUsage } from "./OrgUsage.ts"
import { shardsOf, inOrg } from "../database/shards.ts"
import { orUnavailableWithin } from "../database/orUnavailable.ts"
import { countedRows, type CountedRows, countRows, countUpTo, limitOf } from "./orgCounts.ts"
import { countPending, pendingSample, samplePending } from "../webhooks/PendingDeliveries.ts"
import { usedBytes, writeStoredBytes } from "./storedBytes.ts"

const countedNames = Object.keys(countedRows) as ReadonlyArray<CountedRows>
/** Rows of a kind that one statement counts for display; past that, a recent count or a count in batches is shown. */
const maxInlineCount = 10_000
/** Rows of a kind that are counted for display in all. */
const maxShownCount = 10_000_000

/** The amounts that the statement that reads an org counts, each up to `sampleLimit`. */
export interface Sampled extends Readonly<Record<CountedLimit | "storedBytes", number>> {
  readonly orgId: string
  readonly overrides: OrgLimitOverrides | null
}

/** What the platform counts; the rest is in the shard of the org. */
const isOfPlatform = (name: CountedLimit) => name === "projects" || name === "keys"

/** Runs the count of a limit where its rows are. */
const inPlaceOf = (sql: SqlClient.SqlClient, name: CountedLimit, orgId: string) =>
  isOfPlatform(name) ? <A, E, R>(count: Effect.Effect<A, E, R>) => count : inOrg(sql, orgId)

/** The sums of two samples: each counts nothing of what is in the other place. */
const sumOf = (one: Sampled, other: Sampled | undefined): Sampled => {
  if (other === undefined) return one
  const names = [...countedNames, "pendingDeliveries", "storedBytes"] as const
  return { ...one, ...Object.fromEntries(names.map((name) => [name, one[name] + other[name]])) }
}

/** Counts what an org has, for display. */
export const make = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const usage = yield* OrgUsage
  const defaults = yield* DefaultLimits

  const counts = countedNames.map((name) => `${countUpTo(name, `${maxInlineCount}`)}::int AS "${name}"`)

  /** The columns of a SELECT … FROM orgs org that `used` needs. */
  const columns = sql`
    org.limits AS overrides, ${sql.literal(counts.join(", "))}, ${samplePending(sql)}::int AS "pendingDeliveries",
    ${sql.literal(usedBytes)}::float8 AS "storedBytes"`

  const sampleLimit = (name: CountedLimit) => (name === "pendingDeliveries" ? pendingSample : maxInlineCount)
  const count = (name: CountedLimit, orgId: string) =>
    inPlaceOf(
      sql,
      name,
      orgId,
    )(
      name === "pendingDeliveries"
        ? Effect.map(countPending(sql, orgId, maxShownCount), ({ pending }) => pending)
        : countRows(sql, name, orgId, maxShownCount),
    )

  const exactCount = Effect.fnUntraced(function* (name: CountedLimit, { orgId, overrides, ...sampled }: Sampled) {
    if (sampled[name] < sampleLimit(name)) return sampled[name]
    const known = usage.known(name, orgId)
    // A count that reached its limit stopped there, so the org may have more.
    if (known !== undefined && known.count > sampleLimit(name) && known.count < known.limit) {
      return known.count + known.added
    }
    const counted = yield* count(name, orgId)
    usage.counted(name, orgId, limitsOf(defaults, overrides ?? {})[name], counted)
    return counted
  })

  /** The amounts of an org, from its row with `columns`. */
  const used = Effect.fnUntraced(function* (sampled: Sampled) {
    const names: ReadonlyArray<CountedLimit> = [...countedNames, "pendingDeliveries"]
    const counted = yield* Effect.forEach(names, (name) =>
      Effect.map(exactCount(name, sampled), (n) => [name, n] as const),
    )
    const storedBytes = Math.max(0, sampled.storedBytes + usage.unwrittenBytes(sampled.orgId))
    return { ...Object.fromEntries(counted), storedBytes } as unknown as OrgAmounts
  })

  /** Reads the row of an org with `columns`, and any other columns; `undefined` without such an org. */
  const sample = Effect.fnUntraced(function* (orgId: string, others: Statement.Fragment) {
    const read = sql<Sampled>`SELECT ${others}, ${columns} FROM orgs org WHERE id = ${orgId}`
    const [row] = yield* read
    if (row === undefined || shardsOf(sql) === undefined) return row
    return sumOf(row, (yield* inOrg(sql, orgId)(read))[0])
  })

  return { sample, used }
})

/** Writes the bytes that this replica has stored, and renews the counts that were read since the last call. */
export const refresh = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const usage = yield* OrgUsage
  const defaults = yield* DefaultLimits
  const isRows = (name: CountedLimit): name is CountedRows => name in countedRows

  const recount = Effect.fnUntraced(function* (known: Counted, name: CountedRows) {
    const { orgId } = known
    const [org] = yield* orUnavailableWithin("sweep")(sql<{ limit: number }>`
      SELECT ${sql.literal(limitOf(name, defaults[name]))}::float8 AS "limit" FROM orgs org WHERE id = ${orgId}`)
    if (org === undefined || usage.confirm(known, org.limit)) return
    const rows = yield* inPlaceOf(sql, name, orgId)(countRows(sql, name, orgId, org.limit))
    usage.counted(name, orgId, org.limit, rows)
  })

  return Effect.gen(function* () {
    yield* writeStoredBytes(sql, usage)
    for (const known of usage.takeUsed()) {
      const { name } = known
      if (isRows(name)) yield* recount(known, name)
    }
  })
})
