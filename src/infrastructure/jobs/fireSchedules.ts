import { Effect, Result } from "effect"
import type { SecureRandom } from "effect/crypto"
import type { SqlClient } from "effect/sql"
import { type FireBatch, nextFiring } from "../../domain/jobs/JobSchedules.ts"
import { texts, times } from "../database/arrays.ts"
import { date } from "../database/fragments.ts"
import { insertJobs, templateColumns } from "./insertJobs.ts"
import type { JobRoom } from "./jobRoom.ts"
import { nextOrg, orgsInTurn, share } from "../orgs/orgsInTurn.ts"

/** How many bytes of inputs and callbacks one batch copies at most, the last schedule's excepted. */
const maxBytes = 16 * 1024 * 1024

interface DueSchedule {
  readonly id: string
  readonly orgId: string
  readonly cron: string
  readonly timezone: string
}

/** The schedules of a batch, locked, as the CTE `picked`; and what the next batch comes after. */
const pick = (sql: SqlClient.SqlClient, batch: FireBatch) => {
  const { after, limit, now } = batch
  const columns = sql.literal(`id, org_id, cron, timezone, next_at,
    coalesce(octet_length(input), 0) + coalesce(octet_length(callback_url), 0) AS bytes`)
  if (after === null) {
    return {
      picked: sql`
        WITH picked AS MATERIALIZED (
          SELECT ${columns} FROM job_schedules WHERE next_at <= ${date(now)}
          ORDER BY next_at LIMIT ${limit} FOR UPDATE SKIP LOCKED
        )`,
      next: sql`
        CASE WHEN (SELECT count(*) FROM picked) = ${limit}::int
          OR (SELECT count(*) FROM picked) > (SELECT count(*) FROM fits) THEN '' END`,
    }
  }
  return {
    picked: sql`
      WITH RECURSIVE ${orgsInTurn(sql, { table: "job_schedules", time: "next_at" }, batch)}, picked AS MATERIALIZED (
        SELECT schedule.* FROM due CROSS JOIN LATERAL (
          SELECT ${columns} FROM job_schedules WHERE org_id = due.org_id AND next_at <= ${date(now)}
          ORDER BY next_at LIMIT ${share(sql, batch)} FOR UPDATE SKIP LOCKED
        ) AS schedule
      )`,
    next: nextOrg(sql, batch),
  }
}

/** Locks the schedules of a batch; where their inputs are too large for one, the first of each org come first. */
const lockDue = (sql: SqlClient.SqlClient, batch: FireBatch) => {
  const { next, picked } = pick(sql, batch)
  return sql<{ schedules: ReadonlyArray<DueSchedule>; next: string | null }>`
    ${picked}, ranked AS (
      SELECT *, row_number() OVER (PARTITION BY org_id ORDER BY next_at, id) AS rank FROM picked
    ), summed AS (
      SELECT *, sum(bytes) OVER (ORDER BY rank, next_at, id) - bytes AS bytes_before FROM ranked
    ), fits AS MATERIALIZED (
      SELECT id, org_id, cron, timezone FROM summed WHERE bytes_before < ${maxBytes}
    )
    SELECT ${next} AS next,
      (SELECT coalesce(json_agg(json_build_object('id', id, 'orgId', org_id, 'cron', cron, 'timezone', timezone)), '[]')
       FROM fits) AS schedules`.pipe(Effect.map(([row]) => row!))
}

/**
 * One batch, in a transaction: a job for each schedule, and the schedule's next time, counted from now, so that firings
 * that were missed come as one. A schedule that never fires again is deleted. One whose org has no room for a job goes on
 * without one. Returns by how many bytes each org has stored more, too.
 */
export const fireSchedules = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  random: SecureRandom.SecureRandom["Service"],
  batch: FireBatch,
  findRoom: JobRoom,
) {
  const { now } = batch
  const { next, schedules } = yield* lockDue(sql, batch)
  if (schedules.length === 0) return { orgs: [], moved: 0, stored: [], next }

  const known = new Map<string, ReturnType<typeof nextFiring>>()
  const nextAt = ({ cron, timezone }: DueSchedule) => {
    const key = `${timezone} ${cron}`
    const found = known.get(key) ?? nextFiring(cron, timezone, now)
    known.set(key, found)
    return Result.getOrNull(found)
  }
  const nexts = schedules.map(nextAt)
  const ids = texts(schedules.map(({ id }) => id))
  const hasRoom = yield* findRoom(new Set(schedules.map(({ orgId }) => orgId)))
  const jobIds = yield* Effect.forEach(schedules, ({ orgId }) =>
    Effect.flatMap(hasRoom(orgId), (room) => (room ? random.ulid : Effect.succeed(null))),
  )
  const rows = sql`
    SELECT fired.job_id, s.org_id, NULL, s.id, ${templateColumns(sql)}
    FROM fired CROSS JOIN LATERAL (SELECT * FROM job_schedules WHERE id = fired.id OFFSET 0) AS s
    WHERE fired.job_id IS NOT NULL`
  const stored = yield* sql<{ orgId: string; bytes: number }>`
    WITH fired AS (
      SELECT * FROM unnest(${ids}, ${texts(jobIds)}, ${times(nexts)}) AS fired (id, job_id, next_at)
    ), made AS (
      ${insertJobs(sql, rows, date(now))} RETURNING org_id, coalesce(octet_length(input), 0) AS bytes
    ), ended AS (
      DELETE FROM job_schedules WHERE id = ANY(ARRAY(SELECT id FROM fired WHERE next_at IS NULL))
      RETURNING org_id, coalesce(octet_length(input), 0) AS bytes
    ), moved AS (
      UPDATE job_schedules SET next_at = fired.next_at FROM fired
      WHERE job_schedules.id = ANY(${ids}) AND job_schedules.id = fired.id AND fired.next_at IS NOT NULL
    )
    SELECT org_id AS "orgId", sum(bytes)::float8 AS bytes FROM (
      SELECT org_id, bytes FROM made UNION ALL SELECT org_id, -bytes FROM ended
    ) AS changed GROUP BY org_id`
  const orgs = schedules.flatMap(({ orgId }, at) => (jobIds[at] === null ? [] : [orgId]))
  return { orgs, moved: schedules.length, stored, next }
})
