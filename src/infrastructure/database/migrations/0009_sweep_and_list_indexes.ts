import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * Indexes for sweeps that take orgs in turn, and for every claim and list of jobs (ADR 14). Building them holds writes to
 * jobs and schedules for some seconds for each million of jobs.
 */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient

  // An entry for each row: jobs that are claimed together have one lease, and entries that they share stay until the last
  // of them has gone.
  yield* sql`
    CREATE INDEX jobs_leased_by_org ON jobs (org_id, lease_expires_at) WITH (deduplicate_items = off)
    WHERE status = 'running'`
  yield* sql`ALTER INDEX jobs_leased SET (deduplicate_items = off)`
  yield* sql`CREATE INDEX job_schedules_due_by_org ON job_schedules (org_id, next_at)`

  yield* sql`CREATE INDEX jobs_by_status ON jobs (org_id, status, id)`
  yield* sql`CREATE INDEX jobs_by_workflow ON jobs (org_id, workflow, status, id)`
  yield* sql`DROP INDEX jobs_queued`

  // The same constraints in another order: no plan can read an org's jobs, or a project's deployments, through them. Not
  // partial, for a replica of the version before names both columns in ON CONFLICT, and that finds no partial index.
  yield* sql`CREATE UNIQUE INDEX jobs_idempotency_key ON jobs (idempotency_key, org_id)`
  yield* sql`DROP INDEX jobs_idempotency`
  yield* sql`
    CREATE UNIQUE INDEX deployments_by_run ON deployments (run_id, run_attempt, provider, project_id)`
  yield* sql`DROP INDEX deployments_run`

  // Where one org has nearly all rows, statistics say that to read an org is to read the table, and a plan for every org
  // would go through the whole table for a small one. So each is planned as if it had a hundred rows, from the next
  // ANALYZE on.
  for (const table of ["jobs", "job_schedules", "projects", "api_keys", "audit_log"]) {
    yield* sql`ALTER TABLE ${sql(table)} ALTER COLUMN org_id SET (n_distinct = -0.01)`
  }
  yield* sql`ALTER TABLE deployments ALTER COLUMN project_id SET (n_distinct = -0.01)`
  yield* sql`ALTER TABLE jobs ALTER COLUMN workflow SET (n_distinct = 100)`
})
