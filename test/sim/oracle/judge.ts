import type { History, Violation } from "../history.ts"
import { deliveries } from "./deliveries.ts"
import { deployments, holders, portals } from "./deployments.ts"
import { docs } from "./docs.ts"
import { erased, quiet, settled, tables as misfits, valid } from "./end.ts"
import { jobs } from "./jobs.ts"
import { keys, roles, tokens } from "./keys.ts"
import { once } from "./once.ts"
import { alerts, audit, fullOrgs, orgLimits, strict } from "./orgs.ts"
import { people } from "./people.ts"
import { retention } from "./retention.ts"
import { schedules } from "./schedules.ts"
import { tenants } from "./tenants.ts"
import { workflows } from "./workflows.ts"

/** An oracle: what of a history it does not allow. */
export type Oracle = (history: History) => ReadonlyArray<Violation>

/** The tables with rows of orgs. The audit log of a deleted org stays for the administrator. */
const tables = [
  ...["org_owners", "org_usage", "org_signing_keys", "api_keys", "key_counters", "key_usage", "roles", "sessions"],
  ...["projects", "deployments", "project_docs", "docs_pages", "docs_questions", "idempotency_keys"],
  ...["jobs", "finished_jobs", "job_keys", "job_schedules", "workflows", "webhook_endpoints", "endpoint_throttles"],
  ...[
    "failing_callbacks",
    "events",
    "event_keys",
    "event_types",
    "deliveries",
    "delivery_attempts",
    "pending_deliveries",
    "sweeps",
  ],
  ...["activity_counts", "alerts", "endpoint_attempts", "org_moves", "moved_rows"],
]

/** What the oracles ask the database for at the end. */
export const queries: Readonly<Record<string, string>> = {
  clock: "SELECT extract(epoch FROM clock_timestamp()) * 1000 AS now",
  unsettled: `SELECT 'pending delivery' AS what, delivery_id AS id FROM pending_deliveries
    UNION ALL SELECT 'running job', id FROM jobs WHERE status = 'running' UNION ALL SELECT kind, id::text FROM sweeps`,
  misfits: `SELECT 'a counter without a key' AS what, id FROM key_counters c
      WHERE NOT EXISTS (SELECT FROM api_keys WHERE coalesce(counter_id, id) = c.id)
    UNION ALL SELECT 'a key without its counter', id FROM api_keys k
      WHERE counter_id IS NOT NULL AND NOT EXISTS (SELECT FROM key_counters WHERE id = k.counter_id)
    UNION ALL SELECT 'credits below zero', id FROM key_counters WHERE credits < 0
    UNION ALL SELECT 'a delivery without its event', id FROM deliveries d
      WHERE NOT EXISTS (SELECT FROM events WHERE id = d.event_id)
    UNION ALL SELECT 'a pending delivery without its event', delivery_id FROM pending_deliveries p
      WHERE NOT EXISTS (SELECT FROM events WHERE id = p.event_id)
    UNION ALL SELECT 'a delivery in two places', id FROM deliveries JOIN pending_deliveries ON delivery_id = id
    UNION ALL SELECT 'an ended delivery that is pending', id FROM deliveries WHERE state = 'pending'
    UNION ALL SELECT 'an attempt without its delivery', delivery_id FROM delivery_attempts a
      WHERE NOT EXISTS (SELECT FROM deliveries WHERE id = a.delivery_id)
        AND NOT EXISTS (SELECT FROM pending_deliveries WHERE delivery_id = a.delivery_id)
    UNION ALL SELECT 'a key without its event', event_id FROM event_keys k
      WHERE NOT EXISTS (SELECT FROM events WHERE id = k.event_id)
    UNION ALL SELECT 'an event without its idempotency key', id FROM events e WHERE idempotency_key IS NOT NULL
      AND NOT EXISTS (SELECT FROM event_keys k WHERE k.org_id = e.org_id AND key = idempotency_key AND event_id = e.id)
      -- An org that has moved leaves its last events behind for a while.
      AND EXISTS (SELECT FROM orgs WHERE id = e.org_id AND node IS NULL)
    UNION ALL SELECT 'a delivery to another org', d.id FROM deliveries d JOIN events e ON e.id = d.event_id
      WHERE d.org_id <> e.org_id
    UNION ALL SELECT 'two deliveries of an event to an endpoint', min(id) FROM deliveries
      GROUP BY event_id, endpoint_id HAVING count(*) > 1
    UNION ALL SELECT 'attempts that are miscounted', d.id FROM deliveries d
      WHERE (SELECT count(*) FROM delivery_attempts WHERE delivery_id = d.id) + (attempt_started_at IS NOT NULL)::int
        <> d.attempts
    UNION ALL SELECT 'attempts that are miscounted', delivery_id FROM pending_deliveries p
      WHERE (SELECT count(*) FROM delivery_attempts WHERE delivery_id = p.delivery_id) <> p.attempts
    UNION ALL SELECT 'a current deployment that is missing', p.id FROM projects p WHERE current_deployment_id IS NOT NULL
      AND NOT EXISTS (SELECT FROM deployments WHERE id = p.current_deployment_id AND project_id = p.id)
    UNION ALL SELECT 'a page without its documentation', project_id FROM docs_pages p
      WHERE NOT EXISTS (SELECT FROM project_docs d WHERE d.org_id = p.org_id AND d.project_id = p.project_id)
    UNION ALL SELECT 'a finished job that is still queued', id FROM jobs
      WHERE status NOT IN ('queued', 'running') OR id IN (SELECT id FROM finished_jobs)
    UNION ALL SELECT 'a job that finished twice', id FROM finished_jobs GROUP BY id HAVING count(*) > 1
    UNION ALL SELECT 'a job without its idempotency key', id FROM (
        SELECT id, org_id, idempotency_key FROM jobs UNION ALL SELECT id, org_id, idempotency_key FROM finished_jobs
      ) AS j WHERE idempotency_key IS NOT NULL
        AND NOT EXISTS (SELECT FROM job_keys k WHERE k.org_id = j.org_id AND key = idempotency_key AND job_id = j.id)`,
  projects: "SELECT id, current_deployment_id FROM projects",
  deployments: "SELECT id, project_id, run_id FROM deployments",
  events: "SELECT id, org_id, job_id, type, body FROM events",
  deliveries: `SELECT id, org_id, event_id, endpoint_id, state, attempts FROM deliveries
    UNION ALL SELECT delivery_id, org_id, event_id,
      CASE WHEN substr(lane, 27, 1) <> ' ' THEN left(lane, 26) END, 'pending', attempts FROM pending_deliveries`,
  jobs: `SELECT id, org_id, workflow, status, attempt, max_attempts, NULL AS finished_attempt, NULL AS end_id,
      NULL AS result, error, input, lines, steps,
      extract(epoch FROM created_at) * 1000 AS created, NULL AS finished FROM jobs
    UNION ALL SELECT id, org_id, workflow, status, attempt, max_attempts, finished_attempt, end_id, result, error, input,
      lines, steps, extract(epoch FROM created_at) * 1000, extract(epoch FROM finished_at) * 1000 FROM finished_jobs`,
  names: `SELECT 'key' AS kind, id, name FROM api_keys UNION ALL SELECT 'project', id, name FROM projects
    UNION ALL SELECT 'org', id, name FROM orgs UNION ALL SELECT 'endpoint', id, url FROM webhook_endpoints
    UNION ALL SELECT 'schedule', id, workflow FROM job_schedules
    UNION ALL SELECT 'event', id, substring(body FROM '"mark":"([^"]+)"') FROM events WHERE job_id IS NULL AND body LIKE '%"mark":%'
    UNION ALL SELECT 'job', id, substring(input FROM '"mark":"([^"]+)"') FROM (
      SELECT id, workflow, input FROM jobs UNION ALL SELECT id, workflow, input FROM finished_jobs
    ) AS j WHERE workflow LIKE '%-work'`,
  leftovers: tables
    .map(
      (name) => `SELECT '${name}' AS name, count(*) AS count FROM ${name}
        WHERE org_id <> '' AND org_id NOT IN (SELECT id FROM orgs) HAVING count(*) > 0`,
    )
    .join(" UNION ALL "),
}

const oracles: ReadonlyArray<Oracle> = [
  valid,
  tenants,
  keys,
  roles,
  tokens,
  deliveries,
  jobs,
  workflows,
  schedules,
  retention,
  once,
  alerts,
  audit,
  orgLimits,
  fullOrgs,
  strict,
  people,
  docs,
  deployments,
  portals,
  holders,
  erased,
  settled,
  misfits,
  quiet,
]

/** All violations of a history, the first first. */
export const judge: Oracle = (history) =>
  oracles.flatMap((oracle) => oracle(history)).toSorted((one, other) => one.at - other.at)
