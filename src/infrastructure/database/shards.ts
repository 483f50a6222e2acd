import { Context, Effect, Exit, Option } from "effect"
import type { SqlClient } from "effect/sql"
import { createHash } from "node:crypto"
import type { Unavailable } from "../../domain/Errors.ts"
import type { SessionFunctions } from "./citus/sessionFunctions.ts"
import { planSettings } from "./planSettings.ts"

/**
 * The shard whose schema the statements of this fiber use; `undefined`: the schema of the platform, which on one
 * PostgreSQL holds the tenants' tables too (ADR 24).
 */
export const Shard = Context.Reference<number | undefined>("gatehouse/infrastructure/database/Shard", {
  defaultValue: () => undefined,
})

/** The shards of a distributed database. Each is a schema with the tables of its orgs. */
export interface Shards {
  readonly count: number
  /** Their numbers, from 0. */
  readonly all: ReadonlyArray<number>
  /** The shards that this process has changed and a worker has not looked at since. Workers look there first. */
  readonly dirty: Dirty
}

/** A set of dirty shards for each worker. */
export interface Dirty {
  readonly mark: (shard: number) => void
  /** Makes the set of a worker. At first, all shards are dirty. */
  readonly follow: () => Set<number>
}

export const makeShards = (count: number): Shards => {
  const all = Array.from({ length: count }, (_, shard) => shard)
  const followers: Array<Set<number>> = []
  return {
    count,
    all,
    dirty: {
      mark: (shard) => followers.forEach((set) => set.add(shard)),
      follow: () => {
        const set = new Set(all)
        followers.push(set)
        return set
      },
    },
  }
}

/** The name of a shard's schema. */
export const schemaOf = (shard: number) => `gatehouse_b${String(shard).padStart(2, "0")}`

/** The shard of an org: `shardSql` in JavaScript. */
export const shardOf = (orgId: string, count: number) =>
  createHash("md5").update(orgId).digest().readUInt32BE(0) % count

/** SQL: the shard of an org. */
export const shardSql = (column: string, count: number) =>
  `((('x' || left(md5(${column}), 8))::bit(32)::bigint & 4294967295) % ${count})`

/** A client of a distributed database. It sends each statement to the shard of its fiber. */
export interface DistributedClient extends SqlClient.SqlClient {
  readonly shards: Shards
  readonly functions: SessionFunctions
}

/** The shards of a distributed database; `undefined` on one PostgreSQL. */
export const shardsOf = (sql: SqlClient.SqlClient): Shards | undefined =>
  "shards" in sql ? (sql as DistributedClient).shards : undefined

/** The functions of the connections to shards; `undefined` on one PostgreSQL. */
export const functionsOf = (sql: SqlClient.SqlClient): SessionFunctions | undefined =>
  "functions" in sql ? (sql as DistributedClient).functions : undefined

/**
 * Citus plans some statements only with the values of their parameters; it tells PostgreSQL which by their cost. It
 * sends the last step of a statement with several steps to the workers in turn, unless the policy is another one.
 */
export const shardPlanSettings = { plan_cache_mode: "auto", "citus.task_assignment_policy": "greedy" }

/**
 * The parameters of all connections of a distributed database. Without them, Citus copies the functions of a session to
 * the other nodes.
 */
export const sessionParameters = { "citus.enable_ddl_propagation": "off" }
/** The parameters of connections to shards. */
export const shardParameters = { ...shardPlanSettings, ...sessionParameters }

const setPath = (sql: SqlClient.SqlClient, shard: number | undefined) => {
  const { plan_cache_mode: mode } = shard === undefined ? planSettings : shardPlanSettings
  return sql`
    SELECT set_config('search_path', ${shard === undefined ? "public" : schemaOf(shard)}, true),
      set_config('plan_cache_mode', ${mode}, true), set_config('citus.task_assignment_policy', 'greedy', true)`
}

/**
 * Runs the statements of an effect in a shard. In a transaction of the platform they are part of that transaction, and
 * Citus commits both places together.
 */
export const inShard =
  (sql: SqlClient.SqlClient, shard: number | undefined) =>
  <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.withFiber<A, E, R>(({ context }) => {
      const from = Context.get(context, Shard)
      if (from === shard) return effect
      const placed = Effect.provideService(effect, Shard, shard)
      if (Option.isNone(Context.getOption(context, sql.transactionService))) return placed
      return Effect.andThen(Effect.orDie(setPath(sql, shard)), placed).pipe(
        // Ignored, because a transaction that has failed takes no other statement.
        Effect.ensuring(Effect.ignoreCause(setPath(sql, from))),
      )
    })

/** Runs the statements of an effect where the tables of an org are. */
export const inOrg = (sql: SqlClient.SqlClient, orgId: string) => {
  const shards = shardsOf(sql)
  if (shards === undefined) return <A, E, R>(effect: Effect.Effect<A, E, R>) => effect
  const shard = shardOf(orgId, shards.count)
  shards.dirty.mark(shard)
  return inShard(sql, shard)
}

/** Shards that an operation uses at the same time. */
const maxConcurrentShards = 4

/** In a transaction there is one connection. */
const concurrencyIn = (sql: SqlClient.SqlClient) =>
  Effect.map(Effect.serviceOption(sql.transactionService), (transaction) =>
    Option.isSome(transaction) ? 1 : maxConcurrentShards,
  )

/**
 * Splits items by the shard of their org, and runs each part in its shard. On one PostgreSQL all items are one part.
 *
 * @returns the result of each part
 */
export const byShard = <Item, A, E, R>(
  sql: SqlClient.SqlClient,
  items: ReadonlyArray<Item>,
  orgOf: (item: Item) => string,
  run: (items: ReadonlyArray<Item>) => Effect.Effect<A, E, R>,
): Effect.Effect<ReadonlyArray<A>, E, R> => {
  const shards = shardsOf(sql)
  if (shards === undefined) return Effect.map(run(items), (result) => [result])
  const parts = Map.groupBy(items, (item) => shardOf(orgOf(item), shards.count))
  return Effect.flatMap(concurrencyIn(sql), (concurrency) =>
    Effect.forEach(
      parts,
      ([shard, part]) => {
        shards.dirty.mark(shard)
        return inShard(sql, shard)(run(part))
      },
      { concurrency },
    ),
  )
}

/**
 * Runs background work in every shard, or in the one of the fiber. A shard that is unavailable does not stop the
 * others; it fails when none is available.
 *
 * @returns the results of the shards that are available
 */
export const eachShard = <A, R>(
  sql: SqlClient.SqlClient,
  effect: Effect.Effect<A, Unavailable, R>,
  only?: ReadonlyArray<number>,
): Effect.Effect<ReadonlyArray<A>, Unavailable, R> => {
  const shards = shardsOf(sql)
  const one = Effect.map(effect, (result) => [result])
  if (shards === undefined) return one
  return Effect.withFiber<ReadonlyArray<A>, Unavailable, R>(({ context }) => {
    if (Context.get(context, Shard) !== undefined) return one
    return Effect.flatMap(
      Effect.forEach(only ?? shards.all, (shard) => Effect.exit(inShard(sql, shard)(effect)), {
        concurrency: maxConcurrentShards,
      }),
      (exits) => {
        const failed = exits.find(Exit.isFailure)
        const available = exits.filter(Exit.isSuccess).map(({ value }) => value)
        const isDefect = exits.some((exit) => Exit.isFailure(exit) && !Exit.hasFails(exit))
        if (failed === undefined || (available.length > 0 && !isDefect)) return Effect.succeed(available)
        return Effect.failCause(failed.cause)
      },
    )
  })
}

/** Runs an effect on the platform and in every shard, one after the other; once on one PostgreSQL. */
export const everywhere = <A, E, R>(sql: SqlClient.SqlClient, effect: Effect.Effect<A, E, R>) =>
  Effect.forEach([undefined, ...(shardsOf(sql)?.all ?? [])], (shard) => inShard(sql, shard)(effect))

/** The names of the methods whose first argument is an org's id, or has one. */
type OrgMethod<Repository> = {
  [Name in keyof Repository]: Repository[Name] extends (org: infer Org, ...rest: never) => unknown
    ? Org extends string | { readonly orgId: string }
      ? Name
      : never
    : never
}[keyof Repository]

/**
 * Makes methods of a repository run where the tables of their org are: the org is the first argument, or a field of it.
 */
export const inOrgs = <Repository extends object>(
  sql: SqlClient.SqlClient,
  repository: Repository,
  methods: ReadonlyArray<OrgMethod<Repository>>,
): Repository => {
  if (shardsOf(sql) === undefined) return repository
  const routed = { ...repository } as Record<PropertyKey, unknown>
  for (const name of methods) {
    const method = repository[name] as (...args: ReadonlyArray<unknown>) => Effect.Effect<unknown, unknown, unknown>
    routed[name] = (org: string | { readonly orgId: string }, ...rest: ReadonlyArray<unknown>) =>
      inOrg(sql, typeof org === "string" ? org : org.orgId)(method(org, ...rest))
  }
  return routed as Repository
}
