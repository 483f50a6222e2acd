import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * The queue of jobs: priorities, delays, attempts and the fence. Building them holds writes
 * to jobs for some seconds for each million of jobs. A replica of the version before goes on; it ignores priorities and
 * delays, and cannot read canceled jobs and paused schedules.
 */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient

  yield* sql`
    ALTER TABLE jobs
      ADD COLUMN priority smallint NOT NULL DEFAULT 0,
      ADD COLUMN max_attempts smallint NOT NULL DEFAULT 3,
      ADD COLUMN retry_delay_seconds integer NOT NULL DEFAULT 10,
      ADD COLUMN run_at timestamptz,
      -- A queued job whose run_at has not come; no index of claims has it.
      ADD COLUMN delayed boolean NOT NULL DEFAULT false,
      ADD COLUMN progress double precision,
      ADD COLUMN note text,
      ADD COLUMN finished_attempt integer,
      -- Bit n: attempt n + 1 failed with a retry.
      ADD COLUMN retried_attempts integer NOT NULL DEFAULT 0`
  // The check of the reference locks the row of the org, which all jobs of an org share. Jobs are inserted by a SELECT from orgs.
  yield* sql`ALTER TABLE jobs DROP CONSTRAINT jobs_org_id_fkey`

  // The last conditions are true of every job. A claim repeats the one of its index, so that no plan can use the other index,
  // which would read the whole queue of an org.
  yield* sql`
    CREATE INDEX jobs_queue ON jobs (org_id, priority DESC, id)
    WHERE status = 'queued' AND NOT delayed AND priority >= -100`
  yield* sql`
    CREATE INDEX jobs_queue_by_workflow ON jobs (org_id, workflow, priority DESC, id)
    WHERE status = 'queued' AND NOT delayed AND attempt >= 0`
  // By time for the head, and by org for the turns, as for leases.
  yield* sql`CREATE INDEX jobs_delayed ON jobs (run_at) WHERE status = 'queued' AND delayed`
  yield* sql`CREATE INDEX jobs_delayed_by_org ON jobs (org_id, run_at) WHERE status = 'queued' AND delayed`
  // Canceled jobs have no event, by which retention finds the others.
  yield* sql`
    CREATE INDEX jobs_canceled ON jobs (finished_at) WHERE status = 'canceled' AND idempotency_key IS NULL`

  // Partial: most jobs have no key, and no plan can read an org's jobs through it.
  yield* sql`
    CREATE UNIQUE INDEX jobs_idempotency ON jobs (org_id, idempotency_key) WHERE idempotency_key IS NOT NULL`
  yield* sql`DROP INDEX jobs_idempotency_key`
  // jobs_by_status serves the lists of an org, one range for each status.
  yield* sql`DROP INDEX jobs_by_org`

  yield* sql`
    ALTER TABLE job_schedules
      ADD COLUMN priority smallint NOT NULL DEFAULT 0,
      ADD COLUMN max_attempts smallint NOT NULL DEFAULT 3,
      ADD COLUMN retry_delay_seconds integer NOT NULL DEFAULT 10,
      ADD COLUMN overlap text NOT NULL DEFAULT 'allow',
      ADD COLUMN last_job_id text COLLATE "C",
      -- NULL while the schedule is paused, so that a replica of the version before does not fire it either.
      ALTER COLUMN next_at DROP NOT NULL`
  // The newest index of the table: without statistics all cost the same, and the newest is chosen. It finds one schedule.
  yield* sql`CREATE UNIQUE INDEX job_schedules_key ON job_schedules (org_id, id)`
  yield* sql`DROP INDEX job_schedules_by_org`
})
