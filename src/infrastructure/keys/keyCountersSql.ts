import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { type KeyCounter, type Lease, lease, type LeaseAsk } from "../../domain/keys/keyLimits.ts"
import type { Refill } from "../../domain/keys/KeySettings.ts"
import { type CounterId, KeyCounterRepository } from "../../domain/keys/LeasedQuotas.ts"
import { noOrg, RequestOrg } from "../../domain/Principal.ts"
import * as Batches from "../database/Batches.ts"
import { texts } from "../database/fragments.ts"
import { answerOrUnavailable, orUnavailable } from "../database/orUnavailable.ts"

interface Question {
  readonly counter: CounterId
  readonly ask: LeaseAsk
}

/** Counters that one transaction locks. */
const maxLeasesPerBatch = 256

/** Answers questions in order. Several may ask the same counter. */
const answer = (
  counters: Map<string, StoredCounter & { readonly now: number }>,
  questions: ReadonlyArray<Question>,
): Map<Question, Lease> => {
  const answers = new Map<Question, Lease>()
  for (const question of questions) {
    const { counterId, orgId } = question.counter
    const stored = counters.get(counterId)
    if (stored?.orgId !== orgId) continue
    const leased = lease(stored.counter, question.ask, stored.now)
    counters.set(counterId, { ...stored, counter: leased.counter })
    answers.set(question, leased.lease)
  }
  return answers
}

/** Counters in PostgreSQL. */
export const layer = Layer.effect(
  KeyCounterRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient

    const leaseTogether = (questions: ReadonlyArray<Question>) =>
      Effect.gen(function* () {
        const asked = new Map(
          questions.map(({ counter: { counterId: id, orgId } }) => [`${orgId} ${id}`, { orgId, id }] as const),
        )
        const locked = yield* lockCounters(sql, [...asked.values()])
        const counters = new Map(locked.map((stored) => [stored.id, stored]))
        const answers = answer(counters, questions)
        if (answers.size > 0) yield* writeCounters(sql, [...counters.values()])
        return answers
      }).pipe(
        sql.withTransaction,
        orUnavailable,
        // Counted as a request, not as background work: requests wait for the answer.
        Effect.provideService(RequestOrg, noOrg),
        Effect.withSpan("KeyCounters.lease"),
      )

    const ask = yield* Batches.make(leaseTogether, maxLeasesPerBatch)

    return KeyCounterRepository.of({
      lease: (counter, asked) => answerOrUnavailable((done) => ask({ counter, ask: asked }, done)),
    })
  }),
)

/** The database's clock in milliseconds since 1970, as SQL: the start of the transaction. */
export const nowMillis = "floor(extract(epoch FROM now()) * 1000)"

/** A row of key_counters. Numbers are exact: none is above 2^53. */
interface CounterRow {
  readonly org_id: string
  readonly id: string
  readonly version: number
  readonly rate_limit: number | null
  readonly rate_window: number | null
  readonly rate_used: number
  readonly rate_current: number
  readonly rate_previous: number
  readonly rate_at: number
  readonly credits: number | null
  readonly credits_since: number | null
  readonly refill_amount: number | null
  readonly refill_every: Refill["every"] | null
}

const bigints = ["rate_used", "rate_at", "credits", "credits_since", "refill_amount"]
const integers = ["version", "rate_limit", "rate_window", "rate_current", "rate_previous"]
const columns = [...integers, ...bigints, "refill_every"]
const definitions = [
  "org_id text, id text",
  ...integers.map((name) => `${name} integer`),
  ...bigints.map((name) => `${name} bigint`),
  "refill_every text",
].join(", ")

const refillOf = ({ refill_amount: amount, refill_every: every }: CounterRow) =>
  amount === null || every === null ? null : { amount, every }

const toCounter = (row: CounterRow): KeyCounter => ({
  version: row.version,
  rateLimit:
    row.rate_limit === null || row.rate_window === null ? null : { limit: row.rate_limit, window: row.rate_window },
  bucket: { used: row.rate_used, current: row.rate_current, previous: row.rate_previous, at: row.rate_at },
  credits:
    row.credits === null ? null : { remaining: row.credits, refill: refillOf(row), since: row.credits_since ?? 0 },
})

const toRow = ({ orgId: org_id, id, counter }: StoredCounter): CounterRow => ({
  org_id,
  id,
  version: counter.version,
  rate_limit: counter.rateLimit?.limit ?? null,
  rate_window: counter.rateLimit?.window ?? null,
  rate_used: counter.bucket.used,
  rate_at: counter.bucket.at,
  rate_current: counter.bucket.current,
  rate_previous: counter.bucket.previous,
  credits: counter.credits?.remaining ?? null,
  credits_since: counter.credits?.since ?? null,
  refill_amount: counter.credits?.refill?.amount ?? null,
  refill_every: counter.credits?.refill?.every ?? null,
})

interface StoredCounter extends CounterKey {
  readonly counter: KeyCounter
}

/** A counter of an org. */
interface CounterKey {
  readonly orgId: string
  readonly id: string
}

const idsOf = (keys: ReadonlyArray<CounterKey>) => texts(keys.map(({ id }) => id))
const orgsOf = (keys: ReadonlyArray<CounterKey>) => texts(new Set(keys.map(({ orgId }) => orgId)))

/** In a transaction: reads counters and locks them until it ends, in the order of their ids. */
export const lockCounters = (sql: SqlClient.SqlClient, keys: ReadonlyArray<CounterKey>) => {
  const read = sql.literal(
    [...integers, ...bigints.map((name) => `${name}::float8 AS ${name}`), "refill_every"].join(", "),
  )
  return sql<CounterRow & { readonly now: number }>`
    SELECT org_id, id, ${read}, ${sql.literal(nowMillis)}::float8 AS now
    FROM key_counters WHERE id = ANY(${idsOf(keys)}) AND org_id = ANY(${orgsOf(keys)}) ORDER BY id FOR UPDATE`.pipe(
    Effect.map((rows) => rows.map((row) => ({ orgId: row.org_id, id: row.id, counter: toCounter(row), now: row.now }))),
  )
}

/** Writes counters that are locked, or new. */
export const writeCounters = (sql: SqlClient.SqlClient, counters: ReadonlyArray<StoredCounter>) => {
  const sets = columns.map((name) => `${name} = excluded.${name}`).join(", ")
  const names = ["org_id", "id", ...columns].join(", ")
  return sql`
    INSERT INTO key_counters (${sql.literal(names)})
    SELECT ${sql.literal(names)} FROM json_to_recordset(${JSON.stringify(counters.map(toRow))})
      AS changed (${sql.literal(definitions)})
    ORDER BY id
    ON CONFLICT (id, org_id) DO UPDATE SET ${sql.literal(sets)}`
}
