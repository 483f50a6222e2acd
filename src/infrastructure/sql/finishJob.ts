import { DateTime, Effect } from "effect"
import type { SecureRandom } from "effect/crypto"
import type { SqlClient } from "effect/sql"
import { eventBody, eventType, receivers } from "../../domain/Deliveries.ts"
import type { JobOutcome } from "../../domain/Jobs.ts"
import { jobNotFound, notRunning, otherOutcome } from "../../domain/Jobs.ts"
import { texts } from "./arrays.ts"
import { date, toJsonText } from "./fragments.ts"

interface Finish {
  readonly orgId: string
  readonly jobId: string
  readonly outcome: JobOutcome
  readonly nonce: string
  readonly now: DateTime.Utc
  readonly onlyIfExpired: boolean
}

interface JobRow {
  readonly status: string
  readonly workflow: string
  readonly deployment_id: string | null
  readonly callback_url: string | null
  readonly has_callback_secret: boolean
  readonly skip_callbacks: boolean
  readonly lease_expires_at: Date | null
}

/** The outbox: a job's outcome, its event and its deliveries. To be run in a transaction. */
export const finishJob = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  random: SecureRandom.SecureRandom["Service"],
  { orgId, jobId, outcome, nonce, now, onlyIfExpired }: Finish,
) {
  const [job] = yield* sql<JobRow>`
    SELECT status, workflow, deployment_id, callback_url, callback_secret IS NOT NULL AS has_callback_secret,
      skip_callbacks, lease_expires_at
    FROM jobs WHERE id = ${jobId} AND org_id = ${orgId} FOR UPDATE`
  if (job === undefined) return yield* jobNotFound()
  if (job.status === outcome.status) return
  if (job.status === "completed" || job.status === "failed") return yield* otherOutcome()
  const leaseRunsOut = job.lease_expires_at?.getTime() ?? Number.POSITIVE_INFINITY
  if (onlyIfExpired && leaseRunsOut > DateTime.toEpochMillis(now)) return yield* notRunning()

  const { result, error, mapped_stack } =
    outcome.status === "completed"
      ? { result: outcome.result, error: null, mapped_stack: null }
      : { result: null, error: outcome.error, mapped_stack: outcome.mapped_stack }
  const at = date(now)
  yield* sql`
    UPDATE jobs SET status = ${outcome.status}, result = ${toJsonText(result)}, error = ${error},
      mapped_stack = ${toJsonText(mapped_stack)}, lease_expires_at = NULL, finished_at = ${at}, updated_at = ${at}
    WHERE id = ${jobId} AND org_id = ${orgId}`

  const { workflow, deployment_id } = job
  const { status } = outcome
  const body = eventBody({ job_id: jobId, workflow, deployment_id, status, result, error, mapped_stack }, nonce)
  const eventId = yield* random.ulid
  yield* sql`
    INSERT INTO events (id, org_id, job_id, type, body, created_at)
    VALUES (${eventId}, ${orgId}, ${jobId}, ${eventType(status)}, ${body}, ${at})`

  // Shared with other events, held against whoever would end an endpoint before its delivery is in.
  const endpoints = yield* sql<{ id: string; active: boolean }>`
    SELECT id, active FROM webhook_endpoints WHERE org_id = ${orgId} ORDER BY id FOR SHARE`
  const to = receivers({ ...job, hasCallbackSecret: job.has_callback_secret }, endpoints)
  const rows = to.endpoints.map(({ id, state }) => ({
    endpoint: id as string | null,
    lane: id,
    state: state as string,
  }))
  if (to.callback) {
    rows.push({ endpoint: null, lane: `${orgId} ${new URL(job.callback_url!).origin}`, state: "pending" })
  }
  if (rows.length === 0) return
  const ids = yield* Effect.forEach(rows, () => random.ulid)
  yield* sql`
    INSERT INTO deliveries (id, org_id, event_id, job_id, endpoint_id, lane, state, next_attempt_at, created_at, updated_at)
    SELECT d.id, ${orgId}, ${eventId}, ${jobId}, d.endpoint, d.lane, d.state,
      CASE WHEN d.state = 'pending' THEN ${at}::timestamptz END, ${at}, ${at}
    FROM unnest(${texts(ids)}, ${texts(rows.map((row) => row.endpoint))}, ${texts(rows.map((row) => row.lane))},
      ${texts(rows.map((row) => row.state))}) AS d (id, endpoint, lane, state)`
})
