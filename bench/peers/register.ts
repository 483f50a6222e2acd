import type { Pool, PoolClient } from "pg"
import { ulid } from "./ulid.ts"

/** The claims of a CI token that are used. */
export interface Claims {
  readonly [claim: string]: unknown
  readonly repository: string
  readonly repository_id: string
  readonly repository_owner: string
  readonly ref: string
  readonly sha: string
  readonly event_name: string
  readonly run_id: string
  readonly run_attempt: string
  readonly workflow?: string
  readonly actor?: string
}

const forms: Readonly<Record<string, RegExp>> = {
  repository: /^[\w./-]{1,201}$/,
  repository_id: /^[1-9][0-9]{0,18}$/,
  repository_owner: /^[\w.-]{1,100}$/,
  ref: /^[^\p{Cc} ]{0,1024}$/u,
  sha: /^(?:[0-9a-f]{40}|[0-9a-f]{64})$/,
  event_name: /^[a-z][a-z0-9_]{0,63}$/,
  run_id: /^[1-9][0-9]{0,18}$/,
  run_attempt: /^[1-9][0-9]{0,8}$/,
}

const inTransaction = async <A>(pool: Pool, run: (client: PoolClient) => Promise<A>): Promise<A> => {
  const client = await pool.connect()
  try {
    await client.query("BEGIN")
    const made = await run(client)
    await client.query("COMMIT")
    return made
  } catch (error) {
    await client.query("ROLLBACK")
    throw error
  } finally {
    client.release()
  }
}

const lock = (client: PoolClient, what: string) =>
  client.query({ name: "lock", text: "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", values: [what] })

/** The repository's project: by its id, else by its name, else a new one under its subdomain. */
const findOrCreate = async (client: PoolClient, claims: Claims, owner: string, repo: string) => {
  const columns = "id, org_id, default_branch"
  const byId = await client.query({
    name: "project-by-id",
    text: `SELECT ${columns} FROM projects WHERE repository_id = $1 FOR NO KEY UPDATE`,
    values: [claims.repository_id],
  })
  if (byId.rows.length > 0) return byId.rows[0]
  const byName = await client.query({
    name: "project-by-name",
    text: `SELECT ${columns} FROM projects WHERE lower(host_owner) = lower($1) AND lower(host_repo) = lower($2)
      FOR NO KEY UPDATE`,
    values: [owner, repo],
  })
  if (byName.rows.length > 0) return byName.rows[0]
  const made = await client.query({
    name: "project-new",
    text: `INSERT INTO projects (id, org_id, name, subdomain, created_at, updated_at)
      SELECT $1, id, $2, $3, $4, $4 FROM orgs WHERE is_default RETURNING ${columns}`,
    values: [ulid(), repo, `${repo}-${owner}`.toLowerCase(), new Date()],
  })
  return made.rows[0]
}

/**
 * Registers a push in a transaction: its project, linked and locked, and its deployment. Returns undefined for other
 * claims.
 */
export const register = async (pool: Pool, claims: Claims) => {
  for (const [name, form] of Object.entries(forms)) if (!form.test(String(claims[name] ?? " "))) return undefined
  const [owner, repo] = claims.repository.split("/") as [string, string]
  if (owner !== claims.repository_owner || claims.event_name !== "push") return undefined
  const branch = claims.ref.replace(/^refs\/(heads|tags)\//, "")
  return inTransaction(pool, async (client) => {
    await lock(client, `id:${claims.repository_id}`)
    await lock(client, `name:${claims.repository.toLowerCase()}`)
    const project = await findOrCreate(client, claims, owner, repo)
    const id = ulid()
    const now = new Date()
    const { rowCount } = await client.query({
      name: "deployment",
      text: `INSERT INTO deployments (id, org_id, project_id, provider, branch, ref, sha, preview, run_id, run_attempt,
          workflow, actor, event_name, created_at)
        VALUES ($1, $2, $3, 'github', $4, $5, $6, false, $7, $8, $9, $10, 'push', $11)
        ON CONFLICT (project_id, provider, run_id, run_attempt) DO NOTHING`,
      values: [
        id,
        project.org_id,
        project.id,
        branch,
        claims.ref,
        claims.sha,
        claims.run_id,
        Number(claims.run_attempt),
        claims.workflow ?? null,
        claims.actor ?? null,
        now,
      ],
    })
    if (rowCount === 1) {
      const defaultBranch = project.default_branch ?? branch
      await client.query({
        name: "link",
        text: `UPDATE projects SET repository_id = $1, host_owner = $2, host_repo = $3, default_branch = $4,
            updated_at = $5, current_deployment_id = CASE WHEN $6 THEN $7 ELSE current_deployment_id END
          WHERE id = $8 AND org_id = $9`,
        values: [
          claims.repository_id,
          owner,
          repo,
          defaultBranch,
          now,
          branch === defaultBranch,
          id,
          project.id,
          project.org_id,
        ],
      })
    }
    return { ok: true, projectId: project.id, branch }
  })
}
