import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** Orgs, projects, API keys and deployments. Ids are ULIDs, sorted byte by byte. */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient

  yield* sql`
    CREATE TABLE orgs (
      id text COLLATE "C" PRIMARY KEY,
      name text NOT NULL,
      is_default boolean NOT NULL DEFAULT false,
      created_at timestamptz NOT NULL
    )`
  yield* sql`CREATE UNIQUE INDEX orgs_one_default ON orgs (is_default) WHERE is_default`

  yield* sql`
    CREATE TABLE projects (
      id text COLLATE "C" PRIMARY KEY,
      org_id text COLLATE "C" NOT NULL REFERENCES orgs (id),
      name text NOT NULL,
      subdomain text,
      current_deployment_id text COLLATE "C",
      default_branch text,
      host_owner text,
      host_repo text,
      repository_id text,
      created_at timestamptz NOT NULL,
      updated_at timestamptz NOT NULL
    )`
  yield* sql`CREATE INDEX projects_by_org ON projects (org_id, id)`
  yield* sql`CREATE UNIQUE INDEX projects_subdomain ON projects (subdomain)`
  yield* sql`CREATE UNIQUE INDEX projects_repository_id ON projects (repository_id)`
  // Not unique: after a rename, a name can stand on the project of the repository that gave it up, too.
  yield* sql`CREATE INDEX projects_by_host ON projects (lower(host_owner), lower(host_repo)) WHERE host_owner IS NOT NULL`

  yield* sql`
    CREATE TABLE api_keys (
      id text COLLATE "C" PRIMARY KEY,
      org_id text COLLATE "C" NOT NULL REFERENCES orgs (id),
      project_id text COLLATE "C" REFERENCES projects (id),
      name text NOT NULL,
      prefix text NOT NULL,
      hash bytea NOT NULL,
      created_at timestamptz NOT NULL,
      expires_at timestamptz,
      last_used_at timestamptz
    )`
  yield* sql`CREATE UNIQUE INDEX api_keys_hash ON api_keys (hash)`
  yield* sql`CREATE INDEX api_keys_by_org ON api_keys (org_id, id)`

  yield* sql`
    CREATE TABLE deployments (
      id text COLLATE "C" PRIMARY KEY,
      org_id text COLLATE "C" NOT NULL REFERENCES orgs (id),
      project_id text COLLATE "C" NOT NULL REFERENCES projects (id),
      provider text NOT NULL,
      branch text NOT NULL,
      ref text NOT NULL,
      sha text NOT NULL,
      preview boolean NOT NULL,
      pull_request integer,
      run_id text NOT NULL,
      run_attempt integer NOT NULL,
      workflow text,
      actor text,
      event_name text NOT NULL,
      environment text,
      created_at timestamptz NOT NULL
    )`
  yield* sql`CREATE UNIQUE INDEX deployments_run ON deployments (project_id, provider, run_id, run_attempt)`
  yield* sql`CREATE INDEX deployments_by_project ON deployments (project_id, id)`
})
