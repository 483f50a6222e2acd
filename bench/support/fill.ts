import type { Query } from "./postgres.ts"

/**
 * Writes rows into the service's own tables, past its interface. Everything that the bench knows of the schema is here.
 * Ids consist of a name and a number, because only their order matters.
 */

/** The body of an event of about 570 bytes, as the service writes it. */
export const eventBody = JSON.stringify({
  event: "job.completed",
  job_id: "01KAHBMKZ3D2X7S5QN8W4V6R9T",
  nonce: "0123456789abcdef0123456789abcdef",
  workflow: "bench",
  deployment_id: null,
  status: "completed",
  result: { rows: 3, text: "x".repeat(330) },
  error: null,
  mapped_stack: null,
})

const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
/** The first ten characters of the ULIDs of a millisecond. */
const ulidTime = (millis: number) =>
  Array.from({ length: 10 }, (_, n) => digits[Math.floor(millis / 32 ** (9 - n)) % 32]).join("")

/** Points an org's endpoints to a receiver by SQL: in guarded mode the service accepts only https urls. */
export const pointEndpoints = (query: Query, orgId: string, url: string) =>
  query("UPDATE webhook_endpoints SET url = $2 || '/' || id WHERE org_id = $1", [orgId, url])

/** Points them to a path of the receiver that is not counted. */
export const pointAside = (query: Query, orgId: string, url: string) =>
  query("UPDATE webhook_endpoints SET url = $2 || '/aside' WHERE org_id = $1", [orgId, url])

/**
 * Adds events of the org with a delivery to each of its endpoints: due and backlogged like a backlog of the service,
 * delivered with an attempt, or failed. Pending deliveries are queued by a transaction that stays open; the caller
 * commits it when they must become visible.
 */
export const addDeliveries = async (
  query: Query,
  orgId: string,
  events: number,
  state: "pending" | "delivered" | "failed",
): Promise<void> => {
  // Starts like the service's ids, so that they are ordered by time.
  const name = `${ulidTime(Date.now())}-${state}-`
  await query(
    `INSERT INTO finished_jobs (id, end_id, org_id, workflow, skip_callbacks, priority, max_attempts, retry_delay_seconds,
        status, attempt, retried_attempts, created_at, finished_at)
      SELECT $2 || n, $2 || n, $1, 'bench', false, 0, 3, 10, 'completed', 0, '{}', now(), now()
        FROM generate_series(1, $3::int) n`,
    [orgId, name, events],
  )
  await query(
    `INSERT INTO events (id, org_id, job_id, type, body, created_at)
      SELECT $2 || n, $1, $2 || n, 'job.completed', $4, now() FROM generate_series(1, $3::int) n`,
    [orgId, name, events, eventBody],
  )
  if (state !== "pending") {
    await query(
      `INSERT INTO deliveries (id, org_id, event_id, endpoint_id, state, created_at, updated_at, attempts,
          attempt_started_at, attempt_duration_ms, attempt_status, attempt_body)
        SELECT $2 || n || '-' || w.id, $1, $2 || n, w.id, $4, now(), now(), made.*
        FROM (SELECT 1, now(), 3, 200, '' WHERE $4 = 'delivered' UNION ALL
          SELECT 0, NULL, NULL, NULL, NULL WHERE $4 <> 'delivered') AS made,
          generate_series(1, $3::int) n, webhook_endpoints w WHERE w.org_id = $1`,
      [orgId, name, events, state],
    )
  }
  // As after the fills of the peers: no maintenance is left for the measured time.
  await query("VACUUM ANALYZE")
  if (state === "pending") {
    await query("BEGIN")
    await query(
      `INSERT INTO pending_deliveries (lane, delivery_id, event_id, attempts, tries, due_at, backlogged, org_id, bytes,
          created_at, updated_at)
        SELECT w.lane, $2 || n || '-' || w.id, $2 || n, 0, 0, now(), true, $1, $4::int, now(), now()
        FROM generate_series(1, $3::int) n, webhook_endpoints w WHERE w.org_id = $1`,
      [orgId, name, events, eventBody.length],
    )
    await query("ANALYZE pending_deliveries")
  }
}

/** The number of deliveries that are not finished. */
export const countPending = async (query: Query): Promise<number> =>
  Number((await query("SELECT count(*)::int AS count FROM pending_deliveries"))[0]!["count"])

/** The number of sweeps that are not finished. */
export const countSweeps = async (query: Query): Promise<number> =>
  Number((await query("SELECT count(*)::int AS count FROM sweeps"))[0]!["count"])

/** Adds queued jobs of a workflow that nobody claims. */
export const addQueuedJobs = (query: Query, orgId: string, count: number) =>
  query(
    `INSERT INTO jobs (id, org_id, workflow, skip_callbacks, status, created_at, updated_at)
      SELECT 'queued-' || n, $1, 'another', false, 'queued', now(), now() FROM generate_series(1, $2::int) n`,
    [orgId, count],
  )

/** Adds keys to a project; nobody knows them. */
export const addKeys = (query: Query, orgId: string, projectId: string, count: number) =>
  query(
    `INSERT INTO api_keys (id, org_id, project_id, name, prefix, hash, created_at)
      SELECT 'key-' || n, $1, $2, 'bench', 'svc_' || n, sha256(('bench ' || n)::bytea), now()
      FROM generate_series(1, $3::int) n`,
    [orgId, projectId, count],
  )

/** Adds projects to an org, each linked to a repository of its own. */
export const addProjects = (query: Query, orgId: string, count: number) =>
  query(
    `INSERT INTO projects (id, org_id, name, subdomain, default_branch, host_owner, host_repo, repository_id, created_at,
        updated_at)
      SELECT 'project-' || n, $1, 'bench', 'bench-' || n, 'main', 'owner-' || n, 'repo', (1000000 + n)::text, now(), now()
      FROM generate_series(1, $2::int) n`,
    [orgId, count],
  )

/** Removes the registered deployments, so that the same runs are new again. */
export const forgetDeployments = (query: Query) => query("TRUNCATE deployments")

/** Updates the statistics of the planner, and leaves no maintenance for the measured time. */
export const settle = async (query: Query): Promise<void> => {
  await query("VACUUM ANALYZE")
  await query("CHECKPOINT")
}

/** Adds queued jobs with an input to an org. */
export const addJobs = async (query: Query, orgId: string, count: number, input: string | null): Promise<void> => {
  await query(
    `INSERT INTO jobs (id, org_id, workflow, input, skip_callbacks, status, created_at, updated_at)
      SELECT 'job-' || lpad(n::text, 22, '0'), $1, 'bench', $3::text, true, 'queued', now(), now()
      FROM generate_series(1, $2::int) n`,
    [orgId, count, input],
  )
}

/** Adds schedules with an input to an org, which never fire while the bench runs. */
export const addSchedules = async (query: Query, orgId: string, count: number, input: string): Promise<void> => {
  await query(
    `INSERT INTO job_schedules (id, org_id, workflow, cron, timezone, input, skip_callbacks, next_at, created_at)
      SELECT 'schedule-' || lpad(n::text, 17, '0'), $1, 'bench', '0 4 1 1 *', 'UTC', $3::text, true, '2100-01-01', now()
      FROM generate_series(1, $2::int) n`,
    [orgId, count, input],
  )
}
