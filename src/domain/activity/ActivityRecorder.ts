import { Clock, Context, Effect, Layer } from "effect"
import type { Unavailable } from "../Errors.ts"
import {
  type ActivityKind,
  type ActivityOutcome,
  bucketOf,
  type CountedCause,
  type Every,
  startOf,
} from "./Activity.ts"
import { type ActivityCount, ActivityRepository, type AttemptCount } from "./ActivityRepository.ts"

/** Counts that wait to be written. What would exceed it is counted for every org, but not for its own. */
const maxUnwrittenCounts = 20_000
/** Rows of one statement. */
const addBatchSize = 1_000

interface Tick {
  readonly orgId: string
  readonly kind: ActivityKind
  readonly outcome: ActivityOutcome
  readonly minute: number
  count: number
}

const intervals: ReadonlyArray<Every> = ["minute", "hour", "day"]
const attemptIntervals = ["hour", "day"] as const

interface EndpointAttempt {
  readonly orgId: string
  readonly endpointId: string
  readonly cause: CountedCause
  readonly durationMillis: number
  readonly status: number | null
  readonly failure: string | null
}

/** Replicas lock rows in one order. */
const inOrder = <A>(rows: Map<string, A>) => [...rows].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, row]) => row)

const add = <A extends { readonly count: number }>(rows: Map<string, A>, key: string, row: A) => {
  const before = rows.get(key)?.count ?? 0
  rows.set(key, { ...row, count: row.count + before })
}

/** Counts what happens; where nothing writes the counts, it does nothing. */
export const Counter = Context.Reference<Pick<ActivityRecorder["Service"], "attempt" | "count">>(
  "gatehouse/domain/ActivityRecorder/Counter",
  { defaultValue: () => ({ attempt: () => {}, count: () => {} }) },
)

/** A batch writer: counts what happens in memory, and writes it in batches. Counting never waits and never fails. */
export class ActivityRecorder extends Context.Service<ActivityRecorder>()("gatehouse/domain/ActivityRecorder", {
  make: Effect.gen(function* () {
    const repository = yield* ActivityRepository
    const clock = yield* Clock.Clock
    /** Counts of a minute. One string and one look-up, because every validation of a key is counted. */
    const ticks = new Map<string, Tick>()
    const counts = new Map<string, ActivityCount>()
    const attempts = new Map<string, AttemptCount>()

    const addCount = (row: ActivityCount) => {
      const key = `${row.orgId} ${row.every} ${row.at} ${row.kind} ${row.outcome}`
      if (row.orgId === "" || counts.has(key) || counts.size < maxUnwrittenCounts) add(counts, key, row)
    }
    const addAttempts = (row: AttemptCount) => {
      const key = `${row.orgId} ${row.endpointId} ${row.every} ${row.at} ${row.cause} ${row.bucket}`
      if (attempts.has(key) || attempts.size < maxUnwrittenCounts) add(attempts, key, row)
    }

    const expandTicks = Effect.sync(() => {
      for (const { count, kind, minute, orgId, outcome } of ticks.values()) {
        for (const every of intervals) {
          const row = { every, at: startOf(every, minute), kind, outcome, count }
          addCount({ orgId: "", ...row })
          if (orgId !== "") addCount({ orgId, ...row })
        }
      }
      ticks.clear()
    })

    /** Takes a batch out of the map; puts it back when it is not written. */
    const write = <A extends { readonly count: number }>(
      waiting: Map<string, A>,
      again: (row: A) => void,
      insert: (rows: ReadonlyArray<A>) => Effect.Effect<void, Unavailable>,
    ) =>
      Effect.gen(function* () {
        const rows = inOrder(waiting)
        waiting.clear()
        for (let from = 0; from < rows.length; from += addBatchSize) {
          yield* Effect.onError(insert(rows.slice(from, from + addBatchSize)), () =>
            Effect.sync(() => rows.slice(from).forEach(again)),
          )
        }
      })

    return {
      /** @param given an org; `undefined` counts for no org, only for all of them together */
      count: (given: string | undefined, kind: ActivityKind, outcome: ActivityOutcome) => {
        const minute = startOf("minute", clock.currentTimeMillisUnsafe())
        const keyOf = (orgId: string) => `${orgId} ${kind} ${outcome} ${minute}`
        const own = given ?? ""
        const known = ticks.get(keyOf(own))
        if (known !== undefined) return void known.count++
        const orgId = ticks.size < maxUnwrittenCounts ? own : ""
        const common = ticks.get(keyOf(orgId))
        if (common !== undefined) return void common.count++
        ticks.set(keyOf(orgId), { orgId, kind, outcome, minute, count: 1 })
      },

      attempt: ({ cause, durationMillis, endpointId, failure, orgId, status }: EndpointAttempt) => {
        const now = clock.currentTimeMillisUnsafe()
        const last = { lastAt: now, lastStatus: status, lastFailure: failure }
        const row = { orgId, endpointId, cause, bucket: bucketOf(durationMillis), count: 1, ...last }
        for (const every of attemptIntervals) addAttempts({ ...row, every, at: startOf(every, now) })
      },

      /** Writes what was counted since the last call. What could not be written is written by the next call. */
      flush: Effect.gen(function* () {
        yield* expandTicks
        yield* write(counts, addCount, repository.add)
        yield* write(attempts, addAttempts, repository.addAttempts)
      }),
    }
  }),
}) {
  static readonly layer = Layer.effect(Counter, this).pipe(Layer.provideMerge(Layer.effect(this, this.make)))
}
