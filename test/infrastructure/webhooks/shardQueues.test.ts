import { assert, describe, it } from "@effect/vitest"
import { Context, DateTime, Effect } from "effect"
import type { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import type { Claim, DeliveryQueue } from "#src/domain/webhooks/DeliveryQueue.ts"
import { Shard, makeShards } from "#src/infrastructure/database/shards.ts"
import { overShards } from "#src/infrastructure/webhooks/shardQueues.ts"

/** A queue over two empty shards, and what it asks them. */
const makeQueue = () => {
  const asked: Array<string> = []
  const ask = <A>(what: string, answer: A) =>
    Effect.gen(function* () {
      asked.push(`${what} ${yield* Shard}`)
      return answer
    })
  const sql = { shards: makeShards(2), transactionService: Context.Service<never>("none") }
  let nextDueAt: DateTime.Utc | null = null
  let hasDue = false
  const queues = {
    claim: () => ask("claim", { deliveries: [], more: false, short: false, pacedUntil: null }),
    nextDueAt: Effect.suspend(() => ask("nextDueAt", nextDueAt)),
  }
  const queue = overShards(
    sql as unknown as SqlClient.SqlClient,
    () => queues as unknown as DeliveryQueue["Service"],
    () => Effect.suspend(() => ask("hasDue", hasDue)),
  )
  const claim = Effect.gen(function* () {
    asked.length = 0
    yield* queue.claim({ now: yield* DateTime.now } as Claim)
    return asked.toSorted()
  })
  const setNextDueAt = (time: DateTime.Utc) => {
    nextDueAt = time
  }
  const setHasDue = () => {
    hasDue = true
  }
  return { claim, queue, setHasDue, setNextDueAt, touch: sql.shards.dirty.mark }
}

const [claims, polls, times] = [
  ["claim 0", "claim 1"],
  ["hasDue 0", "hasDue 1"],
  ["nextDueAt 0", "nextDueAt 1"],
]

describe("the queue over shards", () => {
  it.effect("a poll only asks whether an empty shard has something due; a changed shard is claimed", () =>
    Effect.gen(function* () {
      const { claim, setHasDue, touch } = makeQueue()
      assert.deepStrictEqual(yield* claim, [...claims, ...times])
      yield* TestClock.adjust("4 seconds")
      assert.deepStrictEqual(yield* claim, polls)
      setHasDue()
      yield* TestClock.adjust("4 seconds")
      assert.deepStrictEqual(yield* claim, [...claims, ...polls])
      yield* TestClock.adjust("1 second")
      touch(1)
      assert.deepStrictEqual(yield* claim, ["claim 1", "nextDueAt 1"])
    }),
  )

  it.effect("a poll keeps the due times that are known", () =>
    Effect.gen(function* () {
      const { claim, queue, setNextDueAt } = makeQueue()
      const due = DateTime.add(yield* DateTime.now, { seconds: 6 })
      setNextDueAt(due)
      yield* claim
      yield* TestClock.adjust("4 seconds")
      assert.deepStrictEqual(yield* claim, polls)
      assert.deepStrictEqual(yield* queue.nextDueAt, due)
      yield* TestClock.adjust("2 seconds")
      assert.deepStrictEqual(yield* claim, [...claims, ...times])
    }),
  )
})
