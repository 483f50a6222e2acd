import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** Webhook endpoints, jobs and their schedules, and the outbox: events, deliveries and attempts. */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient

  yield* sql`
    CREATE TABLE webhook_endpoints (
      id text COLLATE "C" PRIMARY KEY,
      org_id text COLLATE "C" NOT NULL REFERENCES orgs (id),
      url text NOT NULL,
      description text,
      active boolean NOT NULL,
      secret text NOT NULL,
      previous_secret text,
      previous_secret_until timestamptz,
      failing_since timestamptz,
      created_at timestamptz NOT NULL,
      updated_at timestamptz NOT NULL
    )`
  yield* sql`CREATE INDEX webhook_endpoints_by_org ON webhook_endpoints (org_id, id)`

  yield* sql`
    CREATE TABLE jobs (
      id text COLLATE "C" PRIMARY KEY,
      org_id text COLLATE "C" NOT NULL REFERENCES orgs (id),
      workflow text NOT NULL,
      input text,
      deployment_id text,
      callback_url text,
      callback_secret text,
      callback_secret_owner text COLLATE "C",
      skip_callbacks boolean NOT NULL,
      idempotency_key text,
      status text NOT NULL,
      attempt integer NOT NULL DEFAULT 0,
      lease_expires_at timestamptz,
      result text,
      error text,
      mapped_stack text,
      created_at timestamptz NOT NULL,
      updated_at timestamptz NOT NULL,
      finished_at timestamptz
    )`
  yield* sql`CREATE INDEX jobs_by_org ON jobs (org_id, id)`
  yield* sql`CREATE UNIQUE INDEX jobs_idempotency ON jobs (org_id, idempotency_key)`
  yield* sql`CREATE INDEX jobs_queued ON jobs (org_id, id) WHERE status = 'queued'`
  yield* sql`CREATE INDEX jobs_leased ON jobs (lease_expires_at) WHERE status = 'running'`

  yield* sql`
    CREATE TABLE job_schedules (
      id text COLLATE "C" PRIMARY KEY,
      org_id text COLLATE "C" NOT NULL REFERENCES orgs (id),
      workflow text NOT NULL,
      cron text NOT NULL,
      timezone text NOT NULL,
      input text,
      deployment_id text,
      callback_url text,
      callback_secret text,
      skip_callbacks boolean NOT NULL,
      next_at timestamptz NOT NULL,
      created_at timestamptz NOT NULL
    )`
  yield* sql`CREATE INDEX job_schedules_by_org ON job_schedules (org_id, id)`
  yield* sql`CREATE INDEX job_schedules_due ON job_schedules (next_at)`

  yield* sql`
    CREATE TABLE events (
      id text COLLATE "C" PRIMARY KEY,
      org_id text COLLATE "C" NOT NULL REFERENCES orgs (id),
      job_id text COLLATE "C" NOT NULL REFERENCES jobs (id),
      type text NOT NULL,
      body text NOT NULL,
      created_at timestamptz NOT NULL
    )`
  yield* sql`CREATE UNIQUE INDEX events_one_per_job ON events (job_id)`

  // No reference to the endpoint: what became of its events outlives it.
  yield* sql`
    CREATE TABLE deliveries (
      id text COLLATE "C" PRIMARY KEY,
      org_id text COLLATE "C" NOT NULL REFERENCES orgs (id),
      event_id text COLLATE "C" NOT NULL REFERENCES events (id),
      job_id text COLLATE "C" NOT NULL,
      endpoint_id text COLLATE "C",
      lane text COLLATE "C" NOT NULL,
      state text NOT NULL,
      attempts integer NOT NULL DEFAULT 0,
      tries integer NOT NULL DEFAULT 0,
      next_attempt_at timestamptz,
      parked boolean NOT NULL DEFAULT false,
      claim_id text COLLATE "C",
      created_at timestamptz NOT NULL,
      updated_at timestamptz NOT NULL
    )`
  // A claim reads the head of the first; what a full lane cannot take yet is parked in the second, out of its way.
  yield* sql`CREATE INDEX deliveries_due ON deliveries (next_attempt_at) WHERE state = 'pending' AND NOT parked`
  yield* sql`CREATE INDEX deliveries_parked ON deliveries (lane, next_attempt_at) WHERE state = 'pending' AND parked`
  yield* sql`CREATE INDEX deliveries_pending_by_lane ON deliveries (lane) WHERE state = 'pending'`
  yield* sql`CREATE INDEX deliveries_by_org ON deliveries (org_id, id)`
  yield* sql`CREATE INDEX deliveries_by_endpoint ON deliveries (endpoint_id, id)`
  yield* sql`CREATE INDEX deliveries_by_job ON deliveries (job_id)`

  yield* sql`
    CREATE TABLE delivery_attempts (
      delivery_id text COLLATE "C" NOT NULL REFERENCES deliveries (id),
      org_id text COLLATE "C" NOT NULL,
      number integer NOT NULL,
      started_at timestamptz NOT NULL,
      duration_ms integer NOT NULL,
      status integer,
      failure text,
      error text,
      body text,
      PRIMARY KEY (delivery_id, number)
    )`
})
