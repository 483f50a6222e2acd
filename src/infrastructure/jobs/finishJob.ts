import { DateTime, Effect } from "effect"
import type { SecureRandom } from "effect/crypto"
import type { SqlClient } from "effect/sql"
import { callbackLane } from "../../domain/webhooks/lanes.ts"
import { eventBody, eventType } from "../../domain/webhooks/Event.ts"
import { receivers } from "../../domain/webhooks/Receivers.ts"
import type { Conflict } from "../../domain/Errors.ts"
import type { Job, JobStatus } from "../../domain/jobs/Job.ts"
import type { JobEnd, JobOutcome } from "../../domain/jobs/JobEnd.ts"
import { jobNotFound } from "../../domain/jobs/JobRepository.ts"
import { texts } from "../database/arrays.ts"
import { date, toJsonText } from "../database/fragments.ts"
import { insertDeliveries } from "../webhooks/insertDeliveries.ts"
import { inlineReceivers } from "../webhooks/insertEvents.ts"
import { wantsType } from "../webhooks/wantedEvents.ts"

interface JobRow {
  readonly status: JobStatus
  readonly workflow: string
  readonly deployment_id: string | null
  readonly callback_url: string | null
  readonly has_callback_secret: boolean
  readonly skip_callbacks: boolean
  readonly lease_expires_at: Date | null
  readonly endpoints: ReadonlyArray<string>
  readonly inactive: ReadonlyArray<string>
}

/** Reads a job, with the ids of the org's endpoints that want the event of its outcome. */
const findJob = (sql: SqlClient.SqlClient, { orgId, jobId }: JobEnd, outcome: JobOutcome) => sql<JobRow>`
  SELECT status, workflow, deployment_id, callback_url, callback_secret IS NOT NULL AS has_callback_secret,
    skip_callbacks, lease_expires_at,
    ARRAY(SELECT id FROM webhook_endpoints w WHERE w.org_id = jobs.org_id
      AND ${wantsType(sql, eventType(outcome.status))} ORDER BY id) AS endpoints,
    ARRAY(SELECT id FROM webhook_endpoints w WHERE w.org_id = jobs.org_id AND NOT active) AS inactive
  FROM jobs WHERE id = ${jobId} AND org_id = ${orgId}`

/**
 * Writes the outcome, the event and its deliveries in one statement. Writes nothing when the job has changed since it was
 * read, or when an endpoint that receives the event was deleted or deactivated since.
 */
const write = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  random: SecureRandom.SecureRandom["Service"],
  job: JobRow,
  { orgId, jobId, nonce, now }: JobEnd,
  outcome: JobOutcome,
) {
  const { status, result, error, mapped_stack } = outcome
  const { workflow, deployment_id } = job
  const body = eventBody({ job_id: jobId, workflow, deployment_id, ...outcome }, nonce)
  const at = date(now)
  const inactive = new Set(job.inactive)
  const to = receivers(
    { ...job, hasCallbackSecret: job.has_callback_secret },
    job.endpoints.map((id) => ({ id, active: !inactive.has(id) })),
  )
  const first = to.slice(0, inlineReceivers)
  const others = to.slice(inlineReceivers).map(({ endpointId }) => endpointId)
  const endpoints = texts(first.map(({ endpointId }) => endpointId))
  const states = texts(first.map(({ state }) => state))
  const callback = first[0]?.endpointId === null ? callbackLane(orgId, job.callback_url!) : null
  const eventId = yield* random.ulid
  const ids = texts(yield* Effect.forEach(first, () => random.ulid))
  const sweepId = yield* random.ulid
  const [written] = yield* sql<{ bytes: number }>`
    WITH endpoints AS (
      -- A shared lock: other events may hold it too, but nobody can deactivate an endpoint before its delivery is inserted.
      SELECT id, active, coalesce(lane, id) AS lane FROM webhook_endpoints
      WHERE org_id = ${orgId} AND id = ANY(${endpoints}) ORDER BY id FOR SHARE
    ), receivers AS (
      SELECT r.id, r.endpoint, r.state, coalesce(w.lane, ${callback}) AS lane
      FROM unnest(${ids}, ${endpoints}, ${states}) AS r (id, endpoint, state)
      LEFT JOIN endpoints w ON w.id = r.endpoint AND (w.active OR r.state = 'skipped')
      WHERE w.id IS NOT NULL OR r.endpoint IS NULL
    ), job AS (
      UPDATE jobs SET status = ${status}, result = ${toJsonText(result)}, error = ${error},
        mapped_stack = ${toJsonText(mapped_stack)}, lease_expires_at = NULL, finished_at = ${at}, updated_at = ${at}
      WHERE id = ${jobId} AND org_id = ${orgId} AND status IN ('queued', 'running')
        AND date_trunc('milliseconds', lease_expires_at) IS NOT DISTINCT FROM ${job.lease_expires_at}::timestamptz
        AND (SELECT count(*) FROM receivers) = ${first.length}::int
      RETURNING id, coalesce(octet_length(result), 0) + coalesce(octet_length(error), 0)
        + coalesce(octet_length(mapped_stack), 0) AS bytes
    ), event AS (
      INSERT INTO events (id, org_id, job_id, type, body, created_at)
      SELECT ${eventId}, ${orgId}, id, ${eventType(status)}, ${body}, ${at} FROM job
      RETURNING id, job_id, octet_length(body) AS bytes
    ), ${insertDeliveries(sql, orgId, now, false)}, sweep AS (
      INSERT INTO sweeps (id, org_id, kind, event_id, receivers, created_at)
      SELECT ${sweepId}, ${orgId}, 'deliver', ${eventId}, ${texts(others)}, ${at} FROM job WHERE ${others.length > 0}::boolean
    )
    SELECT job.bytes + event.bytes AS bytes FROM job, event`
  return written && { hasMore: others.length > 0, bytes: written.bytes }
})

/**
 * Finishes a job if `isOpen` allows it: writes the outcome, the event and its deliveries, all or nothing. Returns whether a
 * sweep inserts more deliveries, and how many bytes were stored. The event counts once, however many deliveries it has.
 */
export const finishJob = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  random: SecureRandom.SecureRandom["Service"],
  job: JobEnd,
  outcome: JobOutcome,
  isOpen: (row: Pick<Job, "status" | "lease_expires_at">) => Effect.Effect<boolean, Conflict>,
) {
  while (true) {
    const [row] = yield* findJob(sql, job, outcome)
    if (row === undefined) return yield* jobNotFound()
    const { status, lease_expires_at: lease } = row
    const open = yield* isOpen({ status, lease_expires_at: lease && DateTime.fromDateUnsafe(lease) })
    if (!open) return { hasMore: false, bytes: 0 }
    const finished = yield* write(sql, random, row, job, outcome)
    if (finished !== undefined) return finished
  }
})
