import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { countReached, DefaultLimits } from "../../domain/orgs/OrgLimits.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import { texts } from "../database/arrays.ts"
import { limitOf } from "../orgs/orgCounts.ts"
import * as StoredBytes from "../orgs/storedBytes.ts"

/** The room of an org for more jobs. */
interface Room {
  readonly orgId: string
  readonly unfinishedJobs: number
  readonly bytesLeft: number
}

/**
 * Finds which orgs have room for another unfinished job, in one statement for a few hundred orgs. Unfinished jobs are
 * counted in the background: until the first count, the jobs of other replicas are unknown.
 */
export const make = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const usage = yield* OrgUsage
  const unfinishedJobs = sql.literal(limitOf("unfinishedJobs", (yield* DefaultLimits).unfinishedJobs))
  const { left } = yield* StoredBytes.make

  return (orgIds: ReadonlySet<string>) =>
    sql<Room>`
      SELECT org.id AS "orgId", ${unfinishedJobs}::float8 AS "unfinishedJobs", (${left})::float8 AS "bytesLeft"
      FROM orgs org WHERE org.id = ANY(${texts(orgIds)})`.pipe(
      Effect.map((rows) => {
        const rooms = new Map(rows.map((room) => [room.orgId, room]))
        /** Takes the room of one job and returns `true`; without room, counts the limit that the org has reached. */
        return (orgId: string) => {
          const room = rooms.get(orgId)
          // The org was deleted; its schedules go with the rest of it.
          if (room === undefined) return Effect.succeed(false)
          const { bytesLeft, unfinishedJobs } = room
          if (bytesLeft <= usage.unwrittenBytes(orgId)) return Effect.as(countReached("storedBytes"), false)
          if (usage.addWatched("unfinishedJobs", orgId, unfinishedJobs)) return Effect.succeed(true)
          return Effect.as(countReached("unfinishedJobs"), false)
        }
      }),
    )
})

/** Finds which orgs have room for another job. */
export type JobRoom = Effect.Success<typeof make>
