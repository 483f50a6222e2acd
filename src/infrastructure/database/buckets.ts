import { Context, Effect, Exit, Option } from "effect"
import type { SqlClient } from "effect/sql"
import { createHash } from "node:crypto"
import type { Unavailable } from "../../domain/Errors.ts"
import type { SessionFunctions } from "./citus/sessionFunctions.ts"
import { planSettings } from "./planSettings.ts"

/**
 * The bucket whose schema the statements of this fiber use; `undefined`: the schema of the platform, which on one
 * PostgreSQL holds the tenants' tables too (ADR 24).
 */
export const Bucket = Context.Reference<number | undefined>("gatehouse/infrastructure/database/Bucket", {
  defaultValue: () => undefined,
})

/** The buckets of a distributed database. Each is a schema with the tables of its orgs. */
export interface Buckets {
  readonly count: number
  /** Their numbers, from 0. */
  readonly all: ReadonlyArray<number>
  /** Buckets in which this process has changed something since `takeTouched`; workers look there first. */
  readonly touched: Touched
}

/** The buckets that each reader has yet to look at. */
export interface Touched {
  readonly touch: (bucket: number) => void
  /** Starts a set of touched buckets, of which all are in it at first. */
  readonly follow: () => Set<number>
}

export const makeBuckets = (count: number): Buckets => {
  const all = Array.from({ length: count }, (_, bucket) => bucket)
  const followers: Array<Set<number>> = []
  return {
    count,
    all,
    touched: {
      touch: (bucket) => followers.forEach((set) => set.add(bucket)),
      follow: () => {
        const set = new Set(all)
        followers.push(set)
        return set
      },
    },
  }
}

/** The name of a bucket's schema. */
export const schemaOf = (bucket: number) => `gatehouse_b${String(bucket).padStart(2, "0")}`

/** The bucket of an org: `bucketSql` in JavaScript. */
export const bucketOf = (orgId: string, count: number) =>
  createHash("md5").update(orgId).digest().readUInt32BE(0) % count

/** SQL: the bucket of an org. */
export const bucketSql = (column: string, count: number) =>
  `((('x' || left(md5(${column}), 8))::bit(32)::bigint & 4294967295) % ${count})`

/** A client of a distributed database. It sends each statement to the bucket of its fiber. */
export interface DistributedClient extends SqlClient.SqlClient {
  readonly buckets: Buckets
  readonly functions: SessionFunctions
}

/** The buckets of a distributed database; `undefined` on one PostgreSQL. */
export const bucketsOf = (sql: SqlClient.SqlClient): Buckets | undefined =>
  "buckets" in sql ? (sql as DistributedClient).buckets : undefined

/** The functions of the connections to buckets; `undefined` on one PostgreSQL. */
export const functionsOf = (sql: SqlClient.SqlClient): SessionFunctions | undefined =>
  "functions" in sql ? (sql as DistributedClient).functions : undefined

/**
 * Citus plans some statements only with the values of their parameters; it tells PostgreSQL which by their cost. It
 * sends the last step of a statement with several steps to the workers in turn, unless the policy is another one.
 */
export const bucketPlanSettings = { plan_cache_mode: "auto", "citus.task_assignment_policy": "greedy" }

/**
 * The parameters of connections of a distributed database. Citus would copy the functions of a session to the other
 * nodes.
 */
export const sessionParameters = { "citus.enable_ddl_propagation": "off" }
/** The parameters of connections to buckets. */
export const bucketParameters = { ...bucketPlanSettings, ...sessionParameters }

const setPath = (sql: SqlClient.SqlClient, bucket: number | undefined) => {
  const { plan_cache_mode: mode } = bucket === undefined ? planSettings : bucketPlanSettings
  return sql`
    SELECT set_config('search_path', ${bucket === undefined ? "public" : schemaOf(bucket)}, true),
      set_config('plan_cache_mode', ${mode}, true), set_config('citus.task_assignment_policy', 'greedy', true)`
}

/**
 * Runs the statements of an effect in a bucket. In a transaction of the platform they are part of that transaction, and
 * Citus commits both places together.
 */
export const inBucket =
  (sql: SqlClient.SqlClient, bucket: number | undefined) =>
  <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.withFiber<A, E, R>(({ context }) => {
      const from = Context.get(context, Bucket)
      if (from === bucket) return effect
      const placed = Effect.provideService(effect, Bucket, bucket)
      if (Option.isNone(Context.getOption(context, sql.transactionService))) return placed
      return Effect.andThen(Effect.orDie(setPath(sql, bucket)), placed).pipe(
        // Ignored, because a transaction that has failed takes no other statement.
        Effect.ensuring(Effect.ignoreCause(setPath(sql, from))),
      )
    })

/** Runs the statements of an effect where the tables of an org are. */
export const inOrg = (sql: SqlClient.SqlClient, orgId: string) => {
  const buckets = bucketsOf(sql)
  if (buckets === undefined) return <A, E, R>(effect: Effect.Effect<A, E, R>) => effect
  const bucket = bucketOf(orgId, buckets.count)
  buckets.touched.touch(bucket)
  return inBucket(sql, bucket)
}

/** Buckets that an operation uses at the same time. */
const maxConcurrentBuckets = 4

/** In a transaction there is one connection. */
const concurrencyIn = (sql: SqlClient.SqlClient) =>
  Effect.map(Effect.serviceOption(sql.transactionService), (transaction) =>
    Option.isSome(transaction) ? 1 : maxConcurrentBuckets,
  )

/**
 * Splits items by the bucket of their org, and runs each part in its bucket. On one PostgreSQL all items are one part.
 *
 * @returns the result of each part
 */
export const byBucket = <Item, A, E, R>(
  sql: SqlClient.SqlClient,
  items: ReadonlyArray<Item>,
  orgOf: (item: Item) => string,
  run: (items: ReadonlyArray<Item>) => Effect.Effect<A, E, R>,
): Effect.Effect<ReadonlyArray<A>, E, R> => {
  const buckets = bucketsOf(sql)
  if (buckets === undefined) return Effect.map(run(items), (result) => [result])
  const parts = Map.groupBy(items, (item) => bucketOf(orgOf(item), buckets.count))
  return Effect.flatMap(concurrencyIn(sql), (concurrency) =>
    Effect.forEach(
      parts,
      ([bucket, part]) => {
        buckets.touched.touch(bucket)
        return inBucket(sql, bucket)(run(part))
      },
      { concurrency },
    ),
  )
}

/**
 * Runs background work in every bucket, or in the one of the fiber. A bucket that is unavailable does not stop the
 * others; it fails when none is available.
 *
 * @returns the results of the buckets that are available
 */
export const eachBucket = <A, R>(
  sql: SqlClient.SqlClient,
  effect: Effect.Effect<A, Unavailable, R>,
  only?: ReadonlyArray<number>,
): Effect.Effect<ReadonlyArray<A>, Unavailable, R> => {
  const buckets = bucketsOf(sql)
  const one = Effect.map(effect, (result) => [result])
  if (buckets === undefined) return one
  return Effect.withFiber<ReadonlyArray<A>, Unavailable, R>(({ context }) => {
    if (Context.get(context, Bucket) !== undefined) return one
    return Effect.flatMap(
      Effect.forEach(only ?? buckets.all, (bucket) => Effect.exit(inBucket(sql, bucket)(effect)), {
        concurrency: maxConcurrentBuckets,
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

/** Runs an effect on the platform and in every bucket, one after the other; once on one PostgreSQL. */
export const everywhere = <A, E, R>(sql: SqlClient.SqlClient, effect: Effect.Effect<A, E, R>) =>
  Effect.forEach([undefined, ...(bucketsOf(sql)?.all ?? [])], (bucket) => inBucket(sql, bucket)(effect))

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
  if (bucketsOf(sql) === undefined) return repository
  const routed = { ...repository } as Record<PropertyKey, unknown>
  for (const name of methods) {
    const method = repository[name] as (...args: ReadonlyArray<unknown>) => Effect.Effect<unknown, unknown, unknown>
    routed[name] = (org: string | { readonly orgId: string }, ...rest: ReadonlyArray<unknown>) =>
      inOrg(sql, typeof org === "string" ? org : org.orgId)(method(org, ...rest))
  }
  return routed as Repository
}
