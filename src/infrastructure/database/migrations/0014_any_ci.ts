import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * Runs of any CI provider, pins, owners of orgs, and orgs and projects that can be deleted. A replica of the version before
 * goes on: what it links has no provider, which is GitHub.
 */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient

  yield* sql`
    ALTER TABLE projects
      ADD COLUMN issuer text,
      ADD COLUMN host_provider text,
      ADD COLUMN repository_owner_id text,
      ADD COLUMN pin_workflow text,
      ADD COLUMN pin_environment text,
      ADD COLUMN newest_run_id text,
      ADD COLUMN newest_run_attempt integer,
      ADD COLUMN newest_run_at timestamptz`
  yield* sql`
    ALTER TABLE deployments
      ADD COLUMN issuer text,
      ADD COLUMN repository_id text,
      ADD COLUMN issued_at timestamptz`

  // Two issuers may use the same id for different repositories.
  yield* sql`CREATE UNIQUE INDEX projects_repository ON projects (repository_id, (coalesce(issuer, '')))`
  yield* sql`DROP INDEX projects_repository_id`

  // By a digest, because a branch may be longer than an index entry.
  yield* sql`CREATE INDEX deployments_by_branch ON deployments (project_id, md5(branch), id)`
  yield* sql`CREATE INDEX deployments_by_preview ON deployments (project_id, preview, id)`

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

  // The row of a deleted org or project goes at once, and what belongs to it follows in a sweep.
  for (const [table, columns] of Object.entries({
    projects: ["org_id"],
    api_keys: ["org_id", "project_id"],
    deployments: ["org_id", "project_id"],
    webhook_endpoints: ["org_id"],
    jobs: ["org_id"],
    job_schedules: ["org_id"],
    events: ["org_id"],
    deliveries: ["org_id"],
    audit_log: ["org_id"],
    org_usage: ["org_id"],
  })) {
    for (const column of columns) {
      yield* sql`ALTER TABLE ${sql(table)} DROP CONSTRAINT IF EXISTS ${sql(`${table}_${column}_fkey`)}`
    }
  }
  yield* sql`ALTER TABLE sweeps ADD COLUMN project_id text COLLATE "C"`
  yield* sql`CREATE INDEX deployments_by_org ON deployments (org_id, id)`
  yield* sql`CREATE INDEX IF NOT EXISTS events_by_org ON events (org_id, id)`
})
