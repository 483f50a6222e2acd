import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/*
 * The schema of release 1.0. It never changes: a change is a migration of its own.
 *
 * - Ids are ULIDs, sorted byte by byte.
 * - No table has a foreign key: its check locks the row of the org, which all writes of an org share, and a deletion
 *   would read through whole tables. The row of a deleted org or project goes at once, and what belongs to it follows
 *   in a sweep.
 * - Planner (the index that finds one row is the newest): without statistics several cost the same, and the planner
 *   takes the newest. By another one it reads all rows of an org.
 * - What expires by age is in partitions by the time in the id (ADR 32). The first two are here; retention adds others.
 */

// Planner (an org has few rows): when one org has nearly all rows, the statistics say that reading an org means reading
// the whole table, and the plan for a small org would do that too. So a hundred are assumed, from the next ANALYZE on.
const ofOrg = "org_id SET (n_distinct = -0.01)"

/** Creates the first partitions: one for old rows that stay, and one for all others. */
const firstPartitions = Effect.fnUntraced(function* (table: string, settings: ReadonlyArray<string>) {
  const sql = yield* SqlClient.SqlClient
  for (const [name, from, to] of [
    [`${table}_old`, "MINVALUE", "'0'"],
    [`${table}_0`, "'0'", "MAXVALUE"],
  ] as const) {
    yield* sql.unsafe(`CREATE TABLE ${name} PARTITION OF ${table} FOR VALUES FROM (${from}) TO (${to})`)
    for (const setting of settings) yield* sql.unsafe(`ALTER TABLE ${name} ALTER COLUMN ${setting}`)
  }
})

const orgs = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient

  // limits: only those that differ from the defaults: { "keys": 20000 }.
  yield* sql`
    CREATE TABLE orgs (
      id text COLLATE "C" PRIMARY KEY,
      name text NOT NULL,
      is_default boolean NOT NULL DEFAULT false,
      limits jsonb,
      -- The prefix of new keys; NULL the default.
      key_prefix text,
      -- How many days the org's events and finished jobs are kept; NULL as long as those of others.
      retention_days integer,
      -- NULL: any event is published. Else an id that changes with the catalogue of event types.
      strict_events text COLLATE "C",
      node text COLLATE "C",
      created_at timestamptz NOT NULL
    )`
  yield* sql`CREATE INDEX orgs_with_retention ON orgs (id) WHERE retention_days IS NOT NULL`
  yield* sql`CREATE UNIQUE INDEX orgs_one_default ON orgs (is_default) WHERE is_default`
  yield* sql`CREATE INDEX orgs_by_node ON orgs (node) WHERE node IS NOT NULL`

  // The nodes that get new orgs. An org with a node has its jobs, events, deliveries, endpoints and schedules there,
  // with a copy of its own row.
  yield* sql`CREATE TABLE open_nodes (name text COLLATE "C" PRIMARY KEY)`

  // An owner belongs to one org, so the key is global.
  yield* sql`
    CREATE TABLE org_owners (
      provider text COLLATE "C" NOT NULL,
      owner_key text COLLATE "C" NOT NULL,
      owner text NOT NULL,
      owner_id text,
      org_id text COLLATE "C" NOT NULL,
      position integer NOT NULL,
      PRIMARY KEY (provider, owner_key)
    )`
  yield* sql`CREATE INDEX org_owners_by_org ON org_owners (org_id)`

  // What each org has, for its limits: the bytes that are counted as they change, those that are measured later, and
  // rows. Removed rows count until the next count; null is not known.
  yield* sql`
    CREATE TABLE org_usage (
      org_id text COLLATE "C" PRIMARY KEY,
      stored_bytes bigint NOT NULL DEFAULT 0,
      measured_bytes bigint NOT NULL DEFAULT 0,
      projects bigint,
      keys bigint,
      endpoints bigint,
      schedules bigint,
      unfinished_jobs bigint
    )`

  // The Ed25519 keys of orgs.
  yield* sql`
    CREATE TABLE org_signing_keys (
      org_id text COLLATE "C" PRIMARY KEY,
      public_key text NOT NULL,
      private_key text NOT NULL,
      previous_public_key text,
      previous_private_key text,
      previous_until timestamptz,
      created_at timestamptz NOT NULL
    )`

  yield* sql`
    CREATE TABLE audit_log (
      id text COLLATE "C" PRIMARY KEY,
      org_id text COLLATE "C" NOT NULL,
      at timestamptz NOT NULL,
      actor text NOT NULL,
      action text NOT NULL,
      target text NOT NULL,
      details text NOT NULL,
      request_id text,
      -- Who made the change, if a person did: subject, name and email as they were then, as JSON.
      person text
    ) PARTITION BY RANGE (id)`
  yield* sql`CREATE INDEX audit_log_by_person ON audit_log (org_id, actor, id) WHERE person IS NOT NULL`
  yield* sql`CREATE INDEX audit_log_by_org ON audit_log (org_id, id)`
  // What was written down stays: nothing here updates it, and nobody else is to.
  yield* sql`
    CREATE FUNCTION audit_log_stays() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      RAISE EXCEPTION 'The audit log is never changed';
    END $$`
  yield* sql`
    CREATE TRIGGER audit_log_stays BEFORE UPDATE ON audit_log
    FOR EACH ROW EXECUTE FUNCTION audit_log_stays()`
  yield* firstPartitions("audit_log", [ofOrg])
})

const keys = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient

  // counter_id: the counter of the key's limits; null is the key's own id. A replacement has the counter of the old
  // key.
  yield* sql`
    CREATE TABLE api_keys (
      id text COLLATE "C" PRIMARY KEY,
      org_id text COLLATE "C" NOT NULL,
      project_id text COLLATE "C",
      name text NOT NULL,
      prefix text NOT NULL,
      hash bytea NOT NULL,
      enabled boolean NOT NULL DEFAULT true,
      leaked_at timestamptz,
      permissions json,
      roles json,
      external_id text COLLATE "C",
      metadata json,
      allowed_ips json,
      rate_limit integer,
      rate_window integer,
      counter_id text COLLATE "C",
      replaced_by text COLLATE "C",
      created_at timestamptz NOT NULL,
      expires_at timestamptz,
      last_used_at timestamptz,
      -- Of a key that was made elsewhere: its hash as it was imported, and, while that is a slow one, what the key
      -- begins with.
      import_hash bytea,
      import_start text COLLATE "C",
      -- Made by its holder in a portal: Gatehouse validates it, and does not take it as a credential.
      of_holder boolean NOT NULL DEFAULT false
    )`
  yield* sql`CREATE UNIQUE INDEX api_keys_imported ON api_keys (import_hash) WHERE import_hash IS NOT NULL`
  yield* sql`CREATE INDEX api_keys_by_start ON api_keys (import_start) WHERE import_start IS NOT NULL`
  yield* sql`CREATE UNIQUE INDEX api_keys_hash ON api_keys (hash)`
  yield* sql`CREATE INDEX api_keys_by_org ON api_keys (org_id, id)`
  yield* sql`
    CREATE INDEX api_keys_by_external_id ON api_keys ((org_id || ''), external_id, (id || ''))
    WHERE external_id IS NOT NULL`
  yield* sql`CREATE INDEX api_keys_by_name ON api_keys ((org_id || ':' || name), (id || ''))`
  yield* sql`
    CREATE INDEX api_keys_by_project ON api_keys ((org_id || ''), project_id, (id || ''))
    WHERE project_id IS NOT NULL`
  yield* sql`CREATE INDEX api_keys_by_counter ON api_keys (counter_id) WHERE counter_id IS NOT NULL`

  // The Ed25519 keys that sign tokens, in their order.
  yield* sql`
    CREATE TABLE token_keys (
      n integer NOT NULL UNIQUE,
      id text COLLATE "C" PRIMARY KEY,
      public_key text NOT NULL,
      private_key text NOT NULL,
      signs_from timestamptz NOT NULL
    )`

  // Named sets of permissions; api_keys.roles has names.
  yield* sql`
    CREATE TABLE roles (
      org_id text COLLATE "C" NOT NULL,
      name text COLLATE "C" NOT NULL,
      permissions json NOT NULL,
      PRIMARY KEY (org_id, name)
    )`

  // Limits, and what is taken of them. Created with the first limit of a key; then rate_limit and rate_window count
  // here. Times are milliseconds since 1970, as the arithmetic has them. By id first: a list of ids is a list of index
  // entries, whatever the orgs. Updated often: there is space for updates in the same page.
  yield* sql`
    CREATE TABLE key_counters (
      org_id text COLLATE "C" NOT NULL,
      id text COLLATE "C" NOT NULL,
      version integer NOT NULL,
      rate_limit integer,
      rate_window integer,
      rate_used bigint NOT NULL,
      rate_current integer NOT NULL,
      rate_previous integer NOT NULL,
      rate_at bigint NOT NULL,
      credits bigint,
      credits_since bigint,
      refill_amount bigint,
      refill_every text,
      PRIMARY KEY (id, org_id)
    ) WITH (fillfactor = 70)`

  // Validations by key and hour (hours since 1970). Rows without a key are the sums of their org.
  yield* sql`
    CREATE TABLE key_usage (
      org_id text COLLATE "C" NOT NULL,
      key_id text COLLATE "C" NOT NULL,
      hour integer NOT NULL,
      valid bigint NOT NULL,
      forbidden bigint NOT NULL,
      limited bigint NOT NULL,
      cost bigint NOT NULL,
      PRIMARY KEY (org_id, key_id, hour)
    ) WITH (fillfactor = 70)`
  yield* sql`CREATE INDEX key_usage_by_hour ON key_usage (hour)`

  // The answers of keyed operations. org_id is '' for an operation that is no org's.
  yield* sql`
    CREATE TABLE idempotency_keys (
      org_id text COLLATE "C" NOT NULL,
      caller text COLLATE "C" NOT NULL,
      operation text COLLATE "C" NOT NULL,
      key text COLLATE "C" NOT NULL,
      record text NOT NULL,
      expires_at timestamptz NOT NULL,
      PRIMARY KEY (org_id, caller, operation, key)
    )`
  yield* sql`CREATE INDEX idempotency_keys_expired ON idempotency_keys (expires_at)`

  // Sessions of people and portal links. org_id is '' for the administrator's.
  yield* sql`
    CREATE TABLE sessions (
      org_id text COLLATE "C" NOT NULL,
      hash bytea NOT NULL,
      id text COLLATE "C" NOT NULL,
      kind text NOT NULL,
      credential_hash bytea NOT NULL,
      -- Who signed in with the company's identity: subject, name, email, role, as JSON; and their session there.
      person text,
      sid text COLLATE "C",
      -- What a portal may use, as JSON; who made its link, and the hash of the session in which they did.
      portal text,
      made_by text,
      made_in bytea,
      created_at timestamptz NOT NULL,
      expires_at timestamptz NOT NULL
    )`
  yield* sql`CREATE INDEX sessions_by_sid ON sessions (org_id, sid) WHERE sid IS NOT NULL`
  yield* sql`CREATE INDEX sessions_by_credential ON sessions (org_id, credential_hash, kind, id)`
  yield* sql`CREATE INDEX sessions_by_end ON sessions (expires_at)`
  yield* sql`CREATE INDEX sessions_of_links ON sessions (org_id, id) WHERE made_by IS NOT NULL`
  // The newest index of the table: it finds one session.
  yield* sql`ALTER TABLE sessions ADD PRIMARY KEY (org_id, hash)`
})

const projects = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient

  yield* sql`
    CREATE TABLE projects (
      id text COLLATE "C" PRIMARY KEY,
      org_id text COLLATE "C" NOT NULL,
      name text NOT NULL,
      subdomain text,
      current_deployment_id text COLLATE "C",
      default_branch text,
      host_provider text,
      host_owner text,
      host_repo text,
      key_prefix text,
      issuer text,
      repository_id text,
      repository_owner_id text,
      pin_workflow text,
      pin_environment text,
      newest_run_id text,
      newest_run_attempt integer,
      newest_run_at timestamptz,
      created_at timestamptz NOT NULL,
      updated_at timestamptz NOT NULL
    )`
  yield* sql`CREATE INDEX projects_by_org ON projects (org_id, id)`
  yield* sql`CREATE UNIQUE INDEX projects_subdomain ON projects (subdomain)`
  // Not unique: after a rename, the project of the repository that had the name before may still have it.
  yield* sql`CREATE INDEX projects_by_host ON projects (lower(host_owner), lower(host_repo)) WHERE host_owner IS NOT NULL`
  // Two issuers may use the same id for different repositories.
  yield* sql`CREATE UNIQUE INDEX projects_repository ON projects (repository_id, issuer)`

  yield* sql`
    CREATE TABLE deployments (
      id text COLLATE "C" PRIMARY KEY,
      org_id text COLLATE "C" NOT NULL,
      project_id text COLLATE "C" NOT NULL,
      provider text NOT NULL,
      issuer text,
      repository_id text,
      branch text NOT NULL,
      ref text NOT NULL,
      sha text NOT NULL,
      preview boolean NOT NULL,
      preview_reason text,
      pull_request integer,
      run_id text NOT NULL,
      run_attempt integer NOT NULL,
      workflow text,
      actor text,
      event_name text NOT NULL,
      environment text,
      issued_at timestamptz,
      created_at timestamptz NOT NULL
    )`
  yield* sql`CREATE INDEX deployments_by_project ON deployments (project_id, id)`
  // The run first: no plan can read a project's deployments through it.
  yield* sql`
    CREATE UNIQUE INDEX deployments_by_run ON deployments (run_id, run_attempt, provider, project_id)`
  // By a digest, because a branch may be longer than an index entry. Each fits one filter, and no other statement (ADR
  // 14).
  yield* sql`CREATE INDEX deployments_by_branch ON deployments (md5(project_id || ' ' || branch), (id || ''))`
  yield* sql`CREATE INDEX deployments_by_preview ON deployments ((project_id || ''), preview, (id || ''))`
  yield* sql`CREATE INDEX deployments_by_org ON deployments (org_id, id)`
})

const documentation = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient

  // docs_zip_url is null: the documentation was removed, and its rows are being erased. edition: the id of the pages
  // that are read.
  yield* sql`
    CREATE TABLE project_docs (
      org_id text COLLATE "C" NOT NULL,
      project_id text COLLATE "C" NOT NULL,
      docs_zip_url text,
      docs_url text,
      is_public boolean NOT NULL,
      keep_questions boolean NOT NULL,
      revision integer NOT NULL,
      updated_at timestamptz NOT NULL,
      lease text COLLATE "C",
      leased_until timestamptz,
      unclean_since timestamptz,
      edition text COLLATE "C",
      digest text,
      stored_target text,
      stored_deployment_id text,
      pages integer,
      bytes bigint,
      characters bigint,
      stored_at timestamptz,
      failed_target text,
      attempts integer,
      error text,
      failed_at timestamptz,
      PRIMARY KEY (org_id, project_id)
    )`

  yield* sql`
    CREATE TABLE docs_pages (
      org_id text COLLATE "C" NOT NULL,
      project_id text COLLATE "C" NOT NULL,
      edition text COLLATE "C" NOT NULL,
      slug text COLLATE "C" NOT NULL,
      title text NOT NULL,
      description text NOT NULL,
      markdown text NOT NULL,
      PRIMARY KEY (org_id, project_id, edition, slug)
    )`

  // topic: the question without case and punctuation, by which equal questions are counted.
  yield* sql`
    CREATE TABLE docs_questions (
      org_id text COLLATE "C" NOT NULL,
      project_id text COLLATE "C" NOT NULL,
      id text COLLATE "C" NOT NULL,
      asked_at timestamptz NOT NULL,
      question text NOT NULL,
      topic text NOT NULL,
      found boolean NOT NULL,
      thumb text,
      PRIMARY KEY (org_id, project_id, id)
    )`
  yield* sql`CREATE INDEX docs_questions_by_age ON docs_questions (asked_at)`
})

/** The queue of jobs, and their schedules. */
const jobs = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient

  // What is queued or running. A job that ends leaves the table (ADR 34), so its claims read no others.
  yield* sql`
    CREATE TABLE jobs (
      id text COLLATE "C" NOT NULL,
      org_id text COLLATE "C" NOT NULL,
      workflow text NOT NULL,
      input text,
      deployment_id text,
      callback_url text,
      callback_secret text,
      callback_secret_owner text COLLATE "C",
      skip_callbacks boolean NOT NULL,
      idempotency_key text,
      unique_key text,
      concurrency_key text COLLATE "C",
      priority smallint NOT NULL DEFAULT 0,
      max_attempts smallint NOT NULL DEFAULT 3,
      retry_delay_seconds integer NOT NULL DEFAULT 10,
      run_at timestamptz,
      -- A queued job whose run_at has not come; no index of claims has it.
      delayed boolean NOT NULL DEFAULT false,
      expires_in_seconds integer,
      -- When the job fails, if nobody has claimed it.
      expires_at timestamptz,
      status text NOT NULL,
      attempt integer NOT NULL DEFAULT 0,
      lease_expires_at timestamptz,
      progress double precision,
      note text,
      -- Bit n: attempt n + 1 failed with a retry.
      retried_attempts integer[] NOT NULL DEFAULT '{}',
      -- The attempts before somebody retried the failed job: their number, which is the fence, goes on (ADR 40).
      attempts_before smallint NOT NULL DEFAULT 0,
      -- The last attempts that have ended without finishing the job.
      attempt_log jsonb,
      -- What workers have logged, and the results of finished steps: a JSON object in each line.
      lines text,
      steps text,
      error text,
      mapped_stack text,
      created_at timestamptz NOT NULL,
      updated_at timestamptz NOT NULL
    )`
  // By time for the head, and by org for the turns; each statement fits one of them (ADR 14). An entry for each row:
  // jobs that are claimed together have one lease, and entries that they share stay until the last of them has gone.
  yield* sql`
    CREATE INDEX jobs_leased ON jobs (lease_expires_at) WITH (deduplicate_items = off) WHERE status || '' = 'running'`
  yield* sql`
    CREATE INDEX jobs_leased_by_org ON jobs ((org_id || ''), lease_expires_at) WITH (deduplicate_items = off)
    WHERE status = 'running'`
  // The lists of an org, one range for each status; each fits one of them (ADR 14).
  yield* sql`CREATE INDEX jobs_by_status ON jobs (org_id, status, (id || ''))`
  yield* sql`CREATE INDEX jobs_by_workflow ON jobs ((org_id || workflow), status, (id || ''))`
  // Planner (each claim has the condition of its index): the last conditions are true of every job, and a claim repeats
  // the one of its index. By another index, a plan would read the whole queue of an org.
  yield* sql`
    CREATE INDEX jobs_queue ON jobs ((org_id || ''), priority DESC, id)
    WHERE status = 'queued' AND NOT delayed AND priority >= -100`
  yield* sql`
    CREATE INDEX jobs_queue_by_workflow ON jobs ((org_id || ''), workflow, priority DESC, id)
    WHERE status = 'queued' AND NOT delayed AND attempt >= 0 AND concurrency_key IS NULL`
  // Jobs with a concurrency key: by workflow, by key, and the running ones by key (ADR 39). Other jobs have no entries
  // here.
  yield* sql`
    CREATE INDEX jobs_keyed ON jobs ((org_id || ''), workflow, priority DESC, id)
    WHERE status = 'queued' AND NOT delayed AND attempt >= 0 AND concurrency_key IS NOT NULL`
  yield* sql`
    CREATE INDEX jobs_queue_by_key ON jobs ((org_id || ''), workflow, concurrency_key, priority DESC, id)
    WHERE status = 'queued' AND NOT delayed AND concurrency_key IS NOT NULL AND max_attempts > 0`
  yield* sql`
    CREATE INDEX jobs_running_by_key ON jobs ((org_id || workflow || concurrency_key))
    WHERE concurrency_key IS NOT NULL AND lease_expires_at IS NOT NULL`
  yield* sql`CREATE INDEX jobs_delayed ON jobs (run_at) WHERE status || '' = 'queued' AND delayed`
  yield* sql`
    CREATE INDEX jobs_delayed_by_org ON jobs ((org_id || ''), run_at) WHERE status = 'queued' AND delayed`
  yield* sql`
    CREATE INDEX jobs_expiring ON jobs (expires_at)
    WHERE status || '' = 'queued' AND attempt = 0 AND expires_at IS NOT NULL`
  yield* sql`
    CREATE INDEX jobs_expiring_by_org ON jobs ((org_id || ''), expires_at)
    WHERE status = 'queued' AND attempt = 0 AND expires_at IS NOT NULL`
  // The newest index of the table, which finds a job by its id. Beside an old snapshot, statistics of an almost empty
  // table make PostgreSQL take each index for one page, however many dead entries it has; of those that cost the same,
  // it takes the newest.
  yield* sql`ALTER TABLE jobs ADD PRIMARY KEY (id)`

  // The jobs that have ended. end_id is the id of the job's event, or of its cancellation, and is never before the
  // job's: retention counts from the end, and removes a job with its event.
  yield* sql`
    CREATE TABLE finished_jobs (
      id text COLLATE "C" NOT NULL,
      end_id text COLLATE "C" NOT NULL,
      org_id text COLLATE "C" NOT NULL,
      workflow text NOT NULL,
      input text,
      deployment_id text,
      callback_url text,
      skip_callbacks boolean NOT NULL,
      idempotency_key text,
      unique_key text,
      concurrency_key text COLLATE "C",
      priority smallint NOT NULL,
      max_attempts smallint NOT NULL,
      retry_delay_seconds integer NOT NULL,
      run_at timestamptz,
      status text NOT NULL,
      attempt integer NOT NULL,
      progress double precision,
      note text,
      -- The attempt whose report ended the job.
      finished_attempt integer,
      retried_attempts integer[] NOT NULL,
      attempts_before smallint NOT NULL DEFAULT 0,
      attempt_log jsonb,
      lines text,
      steps text,
      result text,
      error text,
      mapped_stack text,
      created_at timestamptz NOT NULL,
      finished_at timestamptz NOT NULL,
      PRIMARY KEY (id, end_id)
    ) PARTITION BY RANGE (end_id)`
  yield* sql`CREATE INDEX finished_jobs_by_status ON finished_jobs (org_id, status, (id || ''))`
  yield* sql`CREATE INDEX finished_jobs_by_workflow ON finished_jobs ((org_id || workflow), status, (id || ''))`
  yield* firstPartitions("finished_jobs", [ofOrg])

  // The idempotency keys of jobs, whose workflow is '', and the newest job of each unique key of a workflow. A key
  // outlives the row in jobs, and goes with the finished job.
  yield* sql`
    CREATE TABLE job_keys (
      org_id text COLLATE "C" NOT NULL,
      workflow text NOT NULL DEFAULT '',
      key text NOT NULL,
      job_id text COLLATE "C" NOT NULL,
      PRIMARY KEY (org_id, workflow, key)
    )`

  // The settings of workflows. version: how often a claim or a request has changed the row. last_key: the key after
  // which the next claim begins. start_times, start_counts: the jobs that were started in the last window of the rate.
  // Each claim changes the row: with room for that on its page, its index stays as it is.
  yield* sql`
    CREATE TABLE workflows (
      org_id text COLLATE "C" NOT NULL,
      workflow text NOT NULL,
      concurrency integer,
      concurrency_per_key integer,
      rate_limit integer,
      rate_window_seconds integer,
      retry jsonb,
      expires_in_seconds integer,
      created_at timestamptz NOT NULL,
      updated_at timestamptz NOT NULL,
      version bigint NOT NULL DEFAULT 0,
      last_key text COLLATE "C" NOT NULL DEFAULT '',
      start_times timestamptz[] NOT NULL DEFAULT '{}',
      start_counts integer[] NOT NULL DEFAULT '{}',
      PRIMARY KEY (org_id, workflow)
    ) WITH (fillfactor = 20)`

  // next_at is NULL while the schedule is paused.
  yield* sql`
    CREATE TABLE job_schedules (
      id text COLLATE "C" PRIMARY KEY,
      org_id text COLLATE "C" NOT NULL,
      workflow text NOT NULL,
      cron text NOT NULL,
      timezone text NOT NULL,
      input text,
      deployment_id text,
      callback_url text,
      callback_secret text,
      skip_callbacks boolean NOT NULL,
      concurrency_key text COLLATE "C",
      priority smallint NOT NULL DEFAULT 0,
      max_attempts smallint NOT NULL DEFAULT 3,
      retry_delay_seconds integer NOT NULL DEFAULT 10,
      expires_in_seconds integer,
      overlap text NOT NULL DEFAULT 'allow',
      last_job_id text COLLATE "C",
      next_at timestamptz,
      created_at timestamptz NOT NULL
    )`
  // The conditions are true of every schedule: a statement repeats the one of its index, and fits no other.
  yield* sql`CREATE INDEX job_schedules_due ON job_schedules (next_at) WHERE priority >= -100`
  yield* sql`
    CREATE INDEX job_schedules_due_by_org ON job_schedules ((org_id || ''), next_at) WHERE max_attempts >= 0`
  // The newest index of the table: it finds one schedule.
  yield* sql`CREATE UNIQUE INDEX job_schedules_key ON job_schedules (org_id, id)`
})

const endpoints = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient

  // The lane of an endpoint changes when the endpoint is deactivated: what is pending in another lane is canceled.
  yield* sql`
    CREATE TABLE webhook_endpoints (
      id text COLLATE "C" PRIMARY KEY,
      org_id text COLLATE "C" NOT NULL,
      lane text COLLATE "C" NOT NULL,
      url text NOT NULL,
      description text,
      active boolean NOT NULL,
      event_types text[],
      headers text,
      header_names text[],
      auth text,
      -- What answers may show of it.
      auth_shown json,
      max_per_second integer,
      ordered boolean NOT NULL DEFAULT false,
      batch_max smallint,
      batch_within_ms integer,
      retry_delays integer[],
      signature text NOT NULL DEFAULT 'hmac',
      external_id text COLLATE "C",
      metadata json,
      channels text[],
      filter json,
      -- The filter as what decides: a path that is always true or false.
      filter_path jsonpath,
      payload text NOT NULL DEFAULT 'envelope',
      -- header_names are those of the extra headers.
      header_style text NOT NULL DEFAULT 'webhook',
      secret text NOT NULL,
      previous_secret text,
      previous_secret_until timestamptz,
      failures integer NOT NULL DEFAULT 0,
      failing_since timestamptz,
      deactivated_at timestamptz,
      deactivated_reason text,
      created_at timestamptz NOT NULL,
      updated_at timestamptz NOT NULL
    )`
  yield* sql`CREATE INDEX webhook_endpoints_by_org ON webhook_endpoints (org_id, id)`
  yield* sql`
    CREATE UNIQUE INDEX webhook_endpoints_by_external_id ON webhook_endpoints (org_id, external_id)
    WHERE external_id IS NOT NULL`
  // Few endpoints have patterns, and only these can name an event of the service's own.
  yield* sql`
    CREATE INDEX webhook_endpoints_with_patterns ON webhook_endpoints (org_id, id) WHERE event_types IS NOT NULL`

  // What alerts of the administrator read. Statements on one org have other conditions.
  yield* sql`
    CREATE INDEX webhook_endpoints_failing ON webhook_endpoints (failing_since)
    WHERE active AND failing_since IS NOT NULL`
  yield* sql`
    CREATE INDEX webhook_endpoints_deactivated ON webhook_endpoints (deactivated_at)
    WHERE deactivated_reason IN ('gone', 'failing')`

  // When an endpoint with a limit per second may send its next delivery. A table of its own: an event locks the
  // endpoint's row, and a claim must not wait for it.
  yield* sql`
    CREATE TABLE endpoint_throttles (
      org_id text COLLATE "C" NOT NULL,
      endpoint_id text COLLATE "C" NOT NULL,
      next_at timestamptz NOT NULL,
      PRIMARY KEY (org_id, endpoint_id)
    )`

  // Lanes of callbacks whose last attempt failed.
  yield* sql`
    CREATE TABLE failing_callbacks (
      lane text COLLATE "C" PRIMARY KEY,
      org_id text COLLATE "C" NOT NULL,
      failing_since timestamptz NOT NULL
    )`
})

/** The outbox: events, deliveries and attempts (ADR 3). */
const deliveries = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient

  yield* sql`
    CREATE TABLE events (
      id text COLLATE "C" PRIMARY KEY,
      org_id text COLLATE "C" NOT NULL,
      job_id text COLLATE "C",
      type text COLLATE "C" NOT NULL,
      body text NOT NULL,
      idempotency_key text,
      channels text[] NOT NULL DEFAULT '{}',
      -- Those of its job, which has left the table of jobs.
      callback_url text,
      callback_secret text,
      callback_secret_owner text COLLATE "C",
      created_at timestamptz NOT NULL
    ) PARTITION BY RANGE (id)`
  yield* sql`CREATE INDEX events_by_org ON events (org_id, id)`
  yield* sql`CREATE INDEX events_by_type ON events (org_id, type, id)`
  // Partial, so that an event without a job has no entry in it.
  yield* sql`CREATE INDEX events_by_job ON events (job_id) WHERE job_id IS NOT NULL`
  yield* firstPartitions("events", [ofOrg, "type SET (n_distinct = 100)"])

  // The body of an event for the filters of endpoints; null if it is no jsonb, as with a NUL character.
  yield* sql`
    CREATE FUNCTION event_json(body text) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
    BEGIN
      RETURN body::jsonb;
    EXCEPTION WHEN data_exception THEN
      RETURN NULL;
    END $$`

  // The idempotency keys of events. A table of its own: an index of a partitioned table cannot hold them unique.
  yield* sql`
    CREATE TABLE event_keys (
      org_id text COLLATE "C" NOT NULL,
      key text NOT NULL,
      event_id text COLLATE "C" NOT NULL,
      PRIMARY KEY (org_id, key)
    )`
  // The catalogues of event types; the id is the type. schemas, example: JSON.
  yield* sql`
    CREATE TABLE event_types (
      org_id text COLLATE "C" NOT NULL,
      id text COLLATE "C" NOT NULL,
      description text,
      group_name text,
      schemas text NOT NULL,
      example text,
      deprecated boolean NOT NULL,
      created_at timestamptz NOT NULL,
      updated_at timestamptz NOT NULL,
      PRIMARY KEY (org_id, id)
    )`
  yield* sql`CREATE INDEX event_keys_by_event ON event_keys (event_id)`

  // The deliveries that have ended; a pending one is in `pending_deliveries` alone (ADR 55). Those to an endpoint stay
  // when it is deleted. The id begins like that of the event, so that both are in the same partition, and the
  // deliveries of an event are a range of the primary key. The last attempt stands in the row (ADR 11); times and
  // numbers come first, which leaves no gaps in a row. unsuccessful is null for those that were delivered.
  yield* sql`
    CREATE TABLE deliveries (
      created_at timestamptz NOT NULL,
      updated_at timestamptz NOT NULL,
      attempt_started_at timestamptz,
      attempt_duration_ms integer,
      attempt_status integer,
      attempts integer NOT NULL,
      id text COLLATE "C" PRIMARY KEY,
      org_id text COLLATE "C" NOT NULL,
      event_id text COLLATE "C" NOT NULL,
      endpoint_id text COLLATE "C",
      -- The lane of a callback, which has no endpoint.
      callback_lane text COLLATE "C",
      state text NOT NULL,
      unsuccessful text
        GENERATED ALWAYS AS (CASE WHEN state IN ('failed', 'canceled', 'skipped') THEN state END) STORED,
      attempt_failure text,
      attempt_error text,
      attempt_body text
    ) PARTITION BY RANGE (id)`
  yield* sql`CREATE INDEX deliveries_by_org ON deliveries (org_id, id)`
  // Of expressions, so that the statements that read them fit no other index, and no other statement fits them (ADR
  // 14). By columns, a plan whose statistics are old would read all deliveries of an org or of an endpoint, to find few
  // of a state.
  yield* sql`CREATE INDEX deliveries_by_endpoint ON deliveries (endpoint_id, (id || ''))`
  yield* sql`
    CREATE INDEX deliveries_unsuccessful ON deliveries ((unsuccessful || org_id), (id || ''))
    WHERE (unsuccessful || org_id) IS NOT NULL`
  yield* sql`
    CREATE INDEX deliveries_unsuccessful_by_endpoint
    ON deliveries ((unsuccessful || endpoint_id), (id || '')) INCLUDE (created_at)
    WHERE (unsuccessful || endpoint_id) IS NOT NULL`
  yield* firstPartitions("deliveries", [ofOrg])

  // The attempts of pending deliveries, and those before the last of deliveries that have ended.
  yield* sql`
    CREATE TABLE delivery_attempts (
      delivery_id text COLLATE "C" NOT NULL,
      org_id text COLLATE "C" NOT NULL,
      number integer NOT NULL,
      started_at timestamptz NOT NULL,
      duration_ms integer NOT NULL,
      status integer,
      failure text,
      error text,
      body text,
      PRIMARY KEY (org_id, delivery_id, number)
    ) PARTITION BY RANGE (delivery_id)`
  yield* firstPartitions("delivery_attempts", [])

  // The queue: a row for each pending delivery, and none for any other. A claim has a column of its own, so that one of
  // the backlog changes no index. Each row is changed by its claim: with room for that on its page, its indexes stay as
  // they are.
  yield* sql`
    CREATE TABLE pending_deliveries (
      due_at timestamptz NOT NULL,
      created_at timestamptz NOT NULL,
      updated_at timestamptz NOT NULL,
      lease_until timestamptz,
      bytes integer NOT NULL,
      attempts integer NOT NULL,
      tries integer NOT NULL,
      backlogged boolean NOT NULL,
      org_id text COLLATE "C" NOT NULL,
      lane text COLLATE "C" NOT NULL,
      delivery_id text COLLATE "C" NOT NULL,
      event_id text COLLATE "C" NOT NULL,
      claim_id text COLLATE "C",
      PRIMARY KEY (org_id, lane, delivery_id)
    ) WITH (fillfactor = 50)`
  // Each row is in one of the two. A claim reads the head of the first; what a full lane cannot take yet is backlogged
  // in the second, out of its way. An entry for each row: deliveries that are due at the same time (recover, a burst of
  // jobs) would share one, and PostgreSQL drops that only when all of them are gone, so that a claim would read again
  // what had long been delivered (ADR 11).
  yield* sql`
    CREATE INDEX pending_deliveries_due ON pending_deliveries (due_at) WITH (deduplicate_items = off)
    WHERE NOT backlogged`
  // With the id, for lanes that send in order: their rows are read in this order, and no two of them have the same
  // place. The org and the lane are expressions, so that a statement that wants the first rows of a lane does not fit
  // the primary key (ADR 14).
  yield* sql`
    CREATE INDEX pending_deliveries_in_order ON pending_deliveries ((org_id || ''), (lane || ''), due_at, delivery_id)
    WITH (deduplicate_items = off) WHERE backlogged`

  // Changes of many rows that are decided and not yet made to every row (ADR 13).
  yield* sql`
    CREATE TABLE sweeps (
      id text COLLATE "C" PRIMARY KEY,
      org_id text COLLATE "C" NOT NULL,
      kind text NOT NULL,
      project_id text COLLATE "C",
      endpoint_id text COLLATE "C",
      lane text COLLATE "C",
      event_id text COLLATE "C",
      receivers text[],
      since timestamptz,
      filter text,
      total integer,
      done integer NOT NULL DEFAULT 0,
      -- What an erasure has removed so far: rows by kind, as JSON.
      erased text,
      done_to text COLLATE "C" NOT NULL DEFAULT '',
      node text COLLATE "C",
      source text COLLATE "C",
      -- The sweeps of an org take turns, in this order.
      turn bigserial,
      created_at timestamptz NOT NULL
    )`
  yield* sql`CREATE INDEX sweeps_by_org ON sweeps (org_id, id)`
  yield* sql`CREATE INDEX sweeps_by_turn ON sweeps (org_id, turn)`
  yield* sql`CREATE UNIQUE INDEX sweeps_one_move ON sweeps (org_id) WHERE kind = 'move'`
  yield* sql`CREATE INDEX sweeps_by_endpoint ON sweeps (endpoint_id, id) WHERE endpoint_id IS NOT NULL`
})

/** Orgs that move between databases (ADR 36). */
const moves = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient

  // An org that leaves this database, or arrives here. state: copying (its rows are copied while it works), draining
  // (background work leaves it alone), frozen (it changes nothing), left; or arriving. step: of the copy that arrives.
  yield* sql`
    CREATE TABLE org_moves (
      org_id text COLLATE "C" PRIMARY KEY,
      id text COLLATE "C" NOT NULL,
      state text NOT NULL,
      step integer NOT NULL DEFAULT 0
    )`
  // Rows that changed after the move of their org began, by their primary keys.
  yield* sql`
    CREATE TABLE moved_rows (
      org_id text COLLATE "C" NOT NULL,
      number bigint GENERATED BY DEFAULT AS IDENTITY,
      table_name text NOT NULL,
      key json NOT NULL,
      PRIMARY KEY (org_id, number)
    )`
  // Triggers call it for the rows of an org that moves, with the org, the table, and the columns of its primary key.
  // The lock is shared by all changes of the org: who holds it alone sees every change that came before. A claim at the
  // old database takes no row of a frozen org, and does not fail because of it. What the platform writes for an org
  // on a node passes.
  yield* sql`
    CREATE FUNCTION note_moving() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE
      new_row json := CASE WHEN TG_OP <> 'DELETE' THEN row_to_json(NEW) END;
      old_row json := CASE WHEN TG_OP <> 'INSERT' THEN row_to_json(OLD) END;
      is_outbox boolean := TG_ARGV[1] IN ('idempotency_keys', 'audit_log') OR (
        TG_ARGV[1] = 'events' OR TG_ARGV[1] = 'sweeps' AND coalesce(new_row, old_row) ->> 'kind' = 'emit'
      ) AND EXISTS (SELECT FROM orgs WHERE id = TG_ARGV[0] AND node IS NOT NULL);
      move_state text;
    BEGIN
      IF current_setting('gatehouse.moves', true) IS DISTINCT FROM TG_ARGV[0] THEN
        PERFORM pg_advisory_xact_lock_shared(hashtextextended('gatehouse:move:' || TG_ARGV[0], 0));
        SELECT state INTO move_state FROM org_moves WHERE org_id = TG_ARGV[0];
        IF move_state IN ('frozen', 'left') AND TG_ARGV[1] = 'pending_deliveries' AND TG_OP = 'UPDATE' THEN
          RETURN NULL;
        ELSIF move_state = 'frozen' AND TG_ARGV[1] <> 'idempotency_keys' OR move_state = 'left' AND NOT is_outbox THEN
          RAISE EXCEPTION 'The org moves to another database' USING ERRCODE = 'GH001';
        END IF;
        INSERT INTO moved_rows (org_id, table_name, key)
        SELECT DISTINCT ON (key::text) TG_ARGV[0], TG_ARGV[1], key FROM (
          SELECT json_object_agg(c, r -> c ORDER BY c) AS key
          FROM (VALUES (new_row), (old_row)) AS v (r), unnest(TG_ARGV[2:]) AS c WHERE r IS NOT NULL GROUP BY r::text
        ) AS keys WHERE move_state IN ('copying', 'draining', 'frozen');
      END IF;
      RETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
    END $$`
})

/** Who is told when something is wrong. */
const alerts = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient

  // org_id is '' for the administrator's. alert: its settings and state, in JSON, which no statement looks into.
  // secret: the target. due_at: the next look, or the end of the lease of a claim, which is also its fence.
  yield* sql`
    CREATE TABLE alerts (
      id text COLLATE "C" PRIMARY KEY,
      org_id text COLLATE "C" NOT NULL,
      alert text NOT NULL,
      secret text NOT NULL,
      active boolean NOT NULL,
      due_at timestamptz NOT NULL
    )`
  yield* sql`CREATE INDEX alerts_by_org ON alerts (org_id, id)`
  yield* sql`CREATE INDEX alerts_due ON alerts (due_at) WHERE active`
})

/** What the console and its overview read. */
const activity = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient

  // How often something happened in a minute, an hour and a day: a row of each. Rows with the org '' count every org.
  yield* sql`
    CREATE TABLE activity_counts (
      org_id text COLLATE "C" NOT NULL,
      every text COLLATE "C" NOT NULL,
      at timestamptz NOT NULL,
      kind text COLLATE "C" NOT NULL,
      outcome text COLLATE "C" NOT NULL,
      count bigint NOT NULL,
      PRIMARY KEY (org_id, every, at, kind, outcome)
    ) WITH (fillfactor = 70)`
  yield* sql`CREATE INDEX activity_counts_by_age ON activity_counts (every, at)`
  // Without the minutes, which are most of the rows, and without the count: an update of it stays in its page.
  yield* sql`
    CREATE INDEX activity_counts_by_kind ON activity_counts (every, kind, at)
    WHERE every IN ('hour', 'day') AND org_id <> ''`

  // Attempts of endpoints in an hour and a day, by what they ended with and by how long they took, with the last of
  // them. cause: '' for those that delivered. bucket: the place in the histogram of durations.
  yield* sql`
    CREATE TABLE endpoint_attempts (
      org_id text COLLATE "C" NOT NULL,
      endpoint_id text COLLATE "C" NOT NULL,
      every text COLLATE "C" NOT NULL,
      at timestamptz NOT NULL,
      cause text COLLATE "C" NOT NULL,
      bucket smallint NOT NULL,
      count bigint NOT NULL,
      last_at timestamptz NOT NULL,
      last_status integer,
      last_failure text,
      PRIMARY KEY (org_id, endpoint_id, every, at, cause, bucket)
    ) WITH (fillfactor = 70)`
  yield* sql`CREATE INDEX endpoint_attempts_by_age ON endpoint_attempts (every, at)`
  // Without the attempts that delivered, which are most of the rows.
  yield* sql`
    CREATE INDEX endpoint_failures_by_age ON endpoint_attempts (every, at) INCLUDE (org_id, endpoint_id, count)
    WHERE cause <> ''`

  // figures: what the replica measured in the last minute, as JSON. nodes: those that it knows.
  yield* sql`
    CREATE TABLE replicas (
      id text COLLATE "C" PRIMARY KEY,
      started_at timestamptz NOT NULL,
      seen_at timestamptz NOT NULL,
      figures text,
      nodes text[],
      encryption_key_id text
    )`
})

/** What the planner assumes of tables that are not in partitions. */
const statistics = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  for (const table of ["jobs", "job_schedules", "projects", "api_keys"]) {
    yield* sql.unsafe(`ALTER TABLE ${table} ALTER COLUMN ${ofOrg}`)
  }
  yield* sql`ALTER TABLE deployments ALTER COLUMN project_id SET (n_distinct = -0.01)`
  yield* sql`ALTER TABLE jobs ALTER COLUMN workflow SET (n_distinct = 100)`
  // Planner (expressions without statistics): the same for an expression. Without statistics, an org or a project is
  // assumed to have a two-hundredth of all rows.
  const ofKeys = ["api_keys_by_external_id", "api_keys_by_name", "api_keys_by_project"]
  for (const index of [...ofKeys, "deployments_by_branch", "deployments_by_preview"]) {
    yield* sql`ALTER INDEX ${sql(index)} ALTER COLUMN 1 SET STATISTICS 0`
  }
})

export default Effect.all(
  [orgs, keys, projects, documentation, jobs, endpoints, deliveries, moves, alerts, activity, statistics],
  {
    discard: true,
  },
)
