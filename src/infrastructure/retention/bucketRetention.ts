import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import type { OldEvent, RetentionRepository } from "../../domain/Retention.ts"
import { Bucket, bucketsOf, eachBucket, inBucket } from "../database/buckets.ts"

/**
 * The retention of a distributed database: each batch has the oldest events of every bucket, and removes those of each bucket
 * in a transaction of its own.
 */
export const retentionOverBuckets = (
  sql: SqlClient.SqlClient,
  repository: RetentionRepository["Service"],
): RetentionRepository["Service"] => {
  const buckets = bucketsOf(sql)
  if (buckets === undefined) return repository
  /** The events of the last batch by bucket. */
  let found = new Map<number, ReadonlyArray<OldEvent>>()

  const findOld: RetentionRepository["Service"]["findOld"] = (batch) =>
    Effect.gen(function* () {
      const here = Effect.gen(function* () {
        const bucket = yield* Bucket
        return { bucket: bucket!, events: yield* repository.findOld(batch) }
      })
      const parts = (yield* eachBucket(sql, here)).filter(({ events }) => events.length > 0)
      if (parts.length === 0) return []
      // The cursor of the next batch is the last event of this one, so no bucket may have an older one left.
      const last = parts.map(({ events }) => events.at(-1)!.id).reduce((a, b) => (a < b ? a : b))
      const upTo = (events: ReadonlyArray<OldEvent>) => events.filter(({ id }) => id <= last)
      found = new Map(parts.map(({ bucket, events }) => [bucket, upTo(events)]))
      return [...found.values()].flat().toSorted((a, b) => (a.id < b.id ? -1 : 1))
    })

  const remove: RetentionRepository["Service"]["remove"] = (events) =>
    Effect.gen(function* () {
      const wanted = new Set(events.map(({ id }) => id))
      let removed: number | null = 0
      const parts = [...found].map(([bucket, own]) => [bucket, own.filter(({ id }) => wanted.has(id))] as const)
      const isKnown = parts.reduce((sum, [, own]) => sum + own.length, 0) === wanted.size
      for (const [bucket, own] of isKnown ? parts : buckets.all.map((bucket) => [bucket, events] as const)) {
        if (own.length === 0) continue
        const ofBucket: number | null = yield* inBucket(sql, bucket)(repository.remove(own))
        if (ofBucket === null) return null
        removed += ofBucket
      }
      return removed
    })

  return {
    findOld,
    remove,
    removeCanceled: (before, limit) =>
      Effect.map(eachBucket(sql, repository.removeCanceled(before, limit)), (parts) => {
        // A full batch of one bucket may have left jobs in it.
        if (parts.includes(limit)) return limit
        return Math.min(
          limit - 1,
          parts.reduce((sum, removed) => sum + removed, 0),
        )
      }),
  }
}
