import { Clock, Duration, Effect } from "effect"
import type { SqlClient } from "effect/sql"
import { LRUCache } from "lru-cache"
import type { SweepRepository } from "../../domain/sweeps/Sweeps.ts"
import { bucketsOf, eachBucket, inBucket } from "../database/buckets.ts"
import { orUnavailable } from "../database/orUnavailable.ts"

/** How long the sweeps of a bucket that this process has not changed stay unread: another replica may have started some. */
const pollMillis = Duration.toMillis("5 seconds")
/** Sweeps whose bucket is remembered until they advance. */
const maxRemembered = 1_000

/** A bucket, or the platform, which has the sweeps that erase orgs and projects. */
type Place = number | undefined

/** The sweeps of a distributed database: those of the platform, and those of each bucket, in turn. */
export const sweepsOverBuckets = (
  sql: SqlClient.SqlClient,
  repository: SweepRepository["Service"],
): SweepRepository["Service"] => {
  const buckets = bucketsOf(sql)
  if (buckets === undefined) return repository
  const places: ReadonlyArray<Place> = [undefined, ...buckets.all]
  const touched = buckets.touched.follow()
  const pollAt = new Map<Place, number>()
  const placeOf = new LRUCache<string, { readonly place: Place }>({ max: maxRemembered })
  let first = 0
  // Citus keeps the plan of this statement, and plans that of `next` each time.
  const isEmpty = sql`SELECT 1 FROM sweeps LIMIT 1`.pipe(
    Effect.map((rows) => rows.length === 0),
    orUnavailable,
  )

  const next: SweepRepository["Service"]["next"] = (afterOrg, setAside) =>
    Effect.gen(function* () {
      const now = yield* Clock.currentTimeMillis
      for (const n of places.keys()) {
        const at = (first + n) % places.length
        const place = places[at]
        // The platform is read always: it is one statement.
        const isDue = place === undefined || touched.has(place) || (pollAt.get(place) ?? 0) <= now
        if (!isDue) continue
        if (place !== undefined) touched.delete(place)
        pollAt.set(place, now + pollMillis)
        const find = Effect.flatMap(isEmpty, (empty) =>
          empty ? Effect.succeed(null) : repository.next(afterOrg, setAside),
        )
        const sweep = yield* Effect.catch(inBucket(sql, place)(find), () => Effect.succeed(null))
        if (sweep === null) continue
        if (place !== undefined) touched.add(place)
        placeOf.set(sweep.sweepId, { place })
        first = (at + 1) % places.length
        return sweep
      }
      return null
    })

  const advance: SweepRepository["Service"]["advance"] = (sweepId, now, limit) =>
    Effect.gen(function* () {
      const known = placeOf.get(sweepId)
      for (const place of known === undefined ? places : [known.place]) {
        const swept = yield* inBucket(sql, place)(repository.advance(sweepId, now, limit))
        if (swept === null) continue
        // What the sweep has made is due, and is claimed at once.
        if (place !== undefined) buckets.touched.touch(place)
        return swept
      }
      return null
    })

  return {
    next,
    advance,
    count: (limit) =>
      Effect.zipWith(repository.count(limit), eachBucket(sql, repository.count(limit)), (one, others) =>
        Math.min(
          limit,
          others.reduce((sum, count) => sum + count, one),
        ),
      ),
  }
}
