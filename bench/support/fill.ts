import type { Query } from "./postgres.ts"

/**
 * What the bench writes into the service's own tables, past its interface: all of its knowledge of the schema is here.
 * Ids are made of a name and a number, as nothing reads more of them than their order.
 */

/** The body of an event of about 570 bytes, as the service makes it. */
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

/** Points an org's endpoints to a receiver: in guarded mode the service itself takes https urls only. */
export const pointEndpoints = (query: Query, orgId: string, url: string) =>
  query("UPDATE webhook_endpoints SET url = $2 || '/' || id WHERE org_id = $1", [orgId, url])

/** Points them beside what the receiver counts. */
export const pointAside = (query: Query, orgId: string, url: string) =>
  query("UPDATE webhook_endpoints SET url = $2 || '/aside' WHERE org_id = $1", [orgId, url])

/**
 * Adds so many events of the org with a delivery to each of its endpoints: due at once, and parked as the service keeps
 * a backlog (what `deliveries/recover` brings back, and what comes behind it), delivered with an attempt, or failed.
 * What is pending is put into the queue by a transaction that is left open, for the caller to commit when it is to be
 * seen.
 */
export const addDeliveries = async (
  query: Query,
  orgId: string,
  events: number,
  state: "pending" | "delivered" | "failed",
): Promise<void> => {
  // As the service's ids begin, so that they are in the order of their time.
  const name = `${ulidTime(Date.now())}-${state}-`
  await query(
    `INSERT INTO jobs (id, org_id, workflow, skip_callbacks, status, created_at, updated_at)
      SELECT $2 || n, $1, 'bench', false, 'completed', now(), now() FROM generate_series(1, $3::int) n`,
    [orgId, name, events],
  )
  await query(
    `INSERT INTO events (id, org_id, job_id, type, body, created_at)
      SELECT $2 || n, $1, $2 || n, 'job.completed', $4, now() FROM generate_series(1, $3::int) n`,
    [orgId, name, events, eventBody],
  )
  await query(
    `INSERT INTO deliveries (id, org_id, event_id, job_id, endpoint_id, lane, state, created_at, updated_at, attempts,
        attempt_started_at, attempt_duration_ms, attempt_status, attempt_body)
      SELECT $2 || n || '-' || w.id, $1, $2 || n, $2 || n, w.id, w.id, $4, now(), now(), made.*
      FROM (SELECT 1, now(), 3, 200, '' WHERE $4 = 'delivered' UNION ALL
        SELECT 0, NULL, NULL, NULL, NULL WHERE $4 <> 'delivered') AS made,
        generate_series(1, $3::int) n, webhook_endpoints w WHERE w.org_id = $1`,
    [orgId, name, events, state],
  )
  // As after the peers' fills: no upkeep is left for the time that is measured.
  await query("VACUUM ANALYZE")
  if (state === "pending") {
    await query("BEGIN")
    await query(
      `INSERT INTO pending_deliveries (lane, delivery_id, event_id, attempts, tries, due_at, parked, org_id, bytes)
        SELECT lane, id, event_id, 0, 0, now(), true, org_id, $2::int FROM deliveries WHERE id LIKE $1 || '%'`,
      [name, eventBody.length],
    )
    await query("ANALYZE pending_deliveries")
  }
}

/** How many deliveries are not at their end. */
export const countPending = async (query: Query): Promise<number> =>
  Number((await query("SELECT count(*)::int AS count FROM pending_deliveries"))[0]!["count"])

/** How many sweeps have not come to their end. */
export const countSweeps = async (query: Query): Promise<number> =>
  Number((await query("SELECT count(*)::int AS count FROM sweeps"))[0]!["count"])

/** Adds so many queued jobs of a workflow that nobody claims. */
export const addQueuedJobs = (query: Query, orgId: string, count: number) =>
  query(
    `INSERT INTO jobs (id, org_id, workflow, skip_callbacks, status, created_at, updated_at)
      SELECT 'queued-' || n, $1, 'another', false, 'queued', now(), now() FROM generate_series(1, $2::int) n`,
    [orgId, count],
  )

/** Adds so many keys that nobody has to a project. */
export const addKeys = (query: Query, orgId: string, projectId: string, count: number) =>
  query(
    `INSERT INTO api_keys (id, org_id, project_id, name, prefix, hash, created_at)
      SELECT 'key-' || n, $1, $2, 'bench', 'svc_' || n, sha256(('bench ' || n)::bytea), now()
      FROM generate_series(1, $3::int) n`,
    [orgId, projectId, count],
  )

/** Adds so many projects, each linked to a repository of its own, to an org. */
export const addProjects = (query: Query, orgId: string, count: number) =>
  query(
    `INSERT INTO projects (id, org_id, name, subdomain, default_branch, host_owner, host_repo, repository_id, created_at,
        updated_at)
      SELECT 'project-' || n, $1, 'bench', 'bench-' || n, 'main', 'owner-' || n, 'repo', (1000000 + n)::text, now(), now()
      FROM generate_series(1, $2::int) n`,
    [orgId, count],
  )

/** Forgets the registered deployments, so that the same runs are new again. */
export const forgetDeployments = (query: Query) => query("TRUNCATE deployments")

/** Tells the planner what is there, and leaves no upkeep for the time that is measured. */
export const settle = async (query: Query): Promise<void> => {
  await query("VACUUM ANALYZE")
  await query("CHECKPOINT")
}

/** Adds so many queued jobs with an input to an org. */
export const addJobs = async (query: Query, orgId: string, count: number, input: string | null): Promise<void> => {
  await query(
    `INSERT INTO jobs (id, org_id, workflow, input, skip_callbacks, status, created_at, updated_at)
      SELECT 'job-' || lpad(n::text, 22, '0'), $1, 'bench', $3::text, true, 'queued', now(), now()
      FROM generate_series(1, $2::int) n`,
    [orgId, count, input],
  )
}

/** Adds so many schedules with an input to an org, which never fire while the bench runs. */
export const addSchedules = async (query: Query, orgId: string, count: number, input: string): Promise<void> => {
  await query(
    `INSERT INTO job_schedules (id, org_id, workflow, cron, timezone, input, skip_callbacks, next_at, created_at)
      SELECT 'schedule-' || lpad(n::text, 17, '0'), $1, 'bench', '0 4 1 1 *', 'UTC', $3::text, true, '2100-01-01', now()
      FROM generate_series(1, $2::int) n`,
    [orgId, count, input],
  )
}
