import type { Pool } from "pg"

interface Tenant {
  readonly orgId: string
  readonly projectId: string
  readonly hash: Buffer
  readonly endpoints: number
}

/** Creates the tables of the operations written by hand, with the service's columns and indexes, and a tenant. */
export const createTables = async (pool: Pool, { endpoints, hash, orgId, projectId }: Tenant): Promise<void> => {
  await pool.query(`
    CREATE TABLE orgs (id text COLLATE "C" PRIMARY KEY, name text NOT NULL, is_default boolean NOT NULL DEFAULT false,
      created_at timestamptz NOT NULL);
    CREATE UNIQUE INDEX ON orgs (is_default) WHERE is_default;
    CREATE TABLE projects (id text COLLATE "C" PRIMARY KEY, org_id text COLLATE "C" NOT NULL REFERENCES orgs (id),
      name text NOT NULL, subdomain text, current_deployment_id text COLLATE "C", default_branch text, host_owner text,
      host_repo text, repository_id text, created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL);
    CREATE INDEX ON projects (org_id, id);
    CREATE UNIQUE INDEX ON projects (subdomain);
    CREATE UNIQUE INDEX ON projects (repository_id);
    CREATE INDEX ON projects (lower(host_owner), lower(host_repo)) WHERE host_owner IS NOT NULL;
    CREATE TABLE api_keys (id text COLLATE "C" PRIMARY KEY, org_id text COLLATE "C" NOT NULL REFERENCES orgs (id),
      project_id text COLLATE "C" REFERENCES projects (id), name text NOT NULL, prefix text NOT NULL, hash bytea NOT NULL,
      created_at timestamptz NOT NULL, expires_at timestamptz, last_used_at timestamptz);
    CREATE UNIQUE INDEX ON api_keys (hash);
    CREATE INDEX ON api_keys (org_id, id);
    CREATE TABLE deployments (id text COLLATE "C" PRIMARY KEY, org_id text COLLATE "C" NOT NULL REFERENCES orgs (id),
      project_id text COLLATE "C" NOT NULL REFERENCES projects (id), provider text NOT NULL, branch text NOT NULL,
      ref text NOT NULL, sha text NOT NULL, preview boolean NOT NULL, pull_request integer, run_id text NOT NULL,
      run_attempt integer NOT NULL, workflow text, actor text, event_name text NOT NULL, environment text,
      created_at timestamptz NOT NULL);
    CREATE UNIQUE INDEX ON deployments (project_id, provider, run_id, run_attempt);
    CREATE INDEX ON deployments (project_id, id);
    CREATE TABLE webhook_endpoints (id text COLLATE "C" PRIMARY KEY,
      org_id text COLLATE "C" NOT NULL REFERENCES orgs (id), url text NOT NULL, description text, active boolean NOT NULL,
      secret text NOT NULL, created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL);
    CREATE INDEX ON webhook_endpoints (org_id, id);
    CREATE TABLE audit_log (id text COLLATE "C" PRIMARY KEY, org_id text COLLATE "C" NOT NULL REFERENCES orgs (id),
      at timestamptz NOT NULL, actor text NOT NULL, action text NOT NULL, target text NOT NULL, details text NOT NULL,
      request_id text);
    CREATE INDEX ON audit_log (org_id, id);`)
  await pool.query("INSERT INTO orgs VALUES ($1, 'bench', true, now())", [orgId])
  await pool.query(
    "INSERT INTO projects (id, org_id, name, created_at, updated_at) VALUES ($1, $2, 'bench', now(), now())",
    [projectId, orgId],
  )
  await pool.query("INSERT INTO api_keys VALUES ('key', $1, $2, 'bench', 'svc_', $3, now())", [orgId, projectId, hash])
  await pool.query(
    `INSERT INTO webhook_endpoints SELECT 'endpoint-' || n, $1, 'https://127.0.0.1/', null, true, 's', now(), now()
      FROM generate_series(1, $2::int) n`,
    [orgId, endpoints],
  )
  await pool.query("VACUUM ANALYZE")
}
