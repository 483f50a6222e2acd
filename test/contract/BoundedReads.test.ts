import { assert } from "@effect/vitest"
import { DateTime, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { maxFilteredRows } from "#src/domain/Page.ts"
import { ApiKeyRepository } from "#src/domain/keys/ApiKeyRepository.ts"
import { AuditRepository } from "#src/domain/audit/AuditLog.ts"
import { DeploymentRepository } from "#src/domain/deployments/Deployments.ts"
import { JobRepository } from "#src/domain/jobs/JobRepository.ts"
import { JobScheduleRepository } from "#src/domain/jobs/JobScheduleRepository.ts"
import { KeyUsageRepository } from "#src/domain/keys/KeyUsage.ts"
import { OrgRepository } from "#src/domain/orgs/Orgs.ts"
import { ProjectRepository } from "#src/domain/projects/Projects.ts"
import * as ApiKeysSql from "#src/infrastructure/keys/apiKeysSql.ts"
import * as AuditLogSql from "#src/infrastructure/audit/auditLogSql.ts"
import * as DeploymentsSql from "#src/infrastructure/deployments/deploymentsSql.ts"
import * as JobsSql from "#src/infrastructure/jobs/jobsSql.ts"
import * as JobSchedulesSql from "#src/infrastructure/jobs/jobSchedulesSql.ts"
import * as KeyUsageSql from "#src/infrastructure/keys/keyUsageSql.ts"
import * as OrgsSql from "#src/infrastructure/orgs/orgsSql.ts"
import * as ProjectsSql from "#src/infrastructure/projects/projectsSql.ts"
import * as crypto from "../fakes/crypto.ts"
import { databases } from "../support/databases.ts"
import { layer } from "../support/it.ts"
import { rowsRead, withoutAutovacuum } from "./boundedReads.ts"
import { at, everyOrg, insertOrg, insertProject, newEntry, oneOrg } from "./support.ts"
import { cancelJob, completed, finish, heartbeat, insertJob } from "./webhooks/webhookSupport.ts"

/** Promise (Bounded work): A filtered list of keys reads at most 2,000 keys for a page, with any statistics. */

const repositories = Layer.mergeAll(
  ApiKeysSql.layer,
  AuditLogSql.layer,
  DeploymentsSql.layer,
  JobsSql.layer,
  JobSchedulesSql.layer,
  KeyUsageSql.layer,
  OrgsSql.layer,
  ProjectsSql.layer,
).pipe(Layer.provide(crypto.layer))

const tables = [
  "jobs",
  "finished_jobs",
  "job_keys",
  "job_schedules",
  "projects",
  "api_keys",
  "key_counters",
  "key_usage",
  "deployments",
  "audit_log",
  "events",
  "deliveries",
]
/** The length of a page or batch. */
const limit = 20
/**
 * The most rows and index entries that a statement may read per page. A row that is read, locked and changed counts
 * each time.
 */
const maxRows = 12 * limit
/** The same for a claim of several workflows, which reads the head of each workflow. */
const maxRowsOfWorkflows = 2 * maxRows

/**
 * Fills an org by SQL: jobs of every status but `failed`, delayed jobs, schedules and leases that are not due, and old
 * events of one job each.
 */
const fill = Effect.fnUntraced(function* (org: string, project: string, count: number) {
  const sql = yield* SqlClient.SqlClient
  const [now, later] = [DateTime.toDateUtc(at(0)), DateTime.toDateUtc(at(86_400))]
  const rows = sql`generate_series(1, ${count}::int) AS n, lpad(n::text, 8, '0') AS id`
  yield* sql`
    INSERT INTO jobs (id, org_id, workflow, skip_callbacks, status, lease_expires_at, idempotency_key, priority, run_at, delayed,
      created_at, updated_at)
    SELECT 'j' || id, ${org}, 'many', true, CASE WHEN n % 8 = 1 THEN 'running' ELSE 'queued' END,
      CASE WHEN n % 8 = 1 THEN ${later}::timestamptz END, CASE WHEN n % 2 = 0 THEN id END, n % 3,
      CASE WHEN n % 8 = 4 THEN ${later}::timestamptz END, n % 8 = 4, ${now}, ${now} FROM ${rows} WHERE n % 8 IN (0, 1, 4)`
  yield* sql`
    INSERT INTO finished_jobs (id, end_id, org_id, workflow, skip_callbacks, idempotency_key, priority, max_attempts,
      retry_delay_seconds, status, attempt, retried_attempts, created_at, finished_at)
    SELECT 'j' || id, 'j' || id, ${org}, 'many', true, CASE WHEN n % 2 = 0 THEN id END, n % 3, 3, 10,
      CASE WHEN n % 8 = 5 THEN 'canceled' ELSE 'completed' END, 1, '{}', ${now}, ${now} FROM ${rows} WHERE n % 8 NOT IN (0, 1, 4)`
  yield* sql`
    INSERT INTO job_schedules (id, org_id, workflow, cron, timezone, skip_callbacks, next_at, created_at)
    SELECT 's' || id, ${org}, 'w', '* * * * *', 'UTC', true, ${later}, ${now} FROM ${rows}`
  yield* sql`
    INSERT INTO projects (id, org_id, name, created_at, updated_at) SELECT 'p' || id, ${org}, 'p', ${now}, ${now} FROM ${rows}`
  yield* sql`
    INSERT INTO api_keys (id, org_id, name, prefix, hash, created_at, rate_limit, rate_window, external_id, counter_id,
      project_id)
    SELECT 'k' || id, ${org}, 'k', 'svc_', decode(md5(id), 'hex'), ${now}, 10, 10, CASE WHEN n % 2 = 0 THEN 'many' END,
      CASE WHEN n % 2 = 0 THEN 'k' || lpad((n - 1)::text, 8, '0') END, CASE WHEN n % 4 = 0 THEN ${project} END FROM ${rows}`
  yield* sql`
    INSERT INTO key_counters (id, org_id, version, rate_limit, rate_window, rate_used, rate_current, rate_previous, rate_at)
    SELECT 'k' || id, ${org}, 0, 10, 10, 0, 0, 0, 0 FROM ${rows} WHERE n % 2 = 1`
  yield* sql`
    INSERT INTO key_usage (org_id, key_id, hour, valid, forbidden, limited, cost)
    SELECT ${org}, 'k' || lpad((n % 100)::text, 8, '0'), n, 1, 0, 0, 1 FROM ${rows}`
  yield* sql`
    INSERT INTO deployments (id, org_id, project_id, provider, branch, ref, sha, preview, run_id, run_attempt, event_name, created_at)
    SELECT 'd' || id, ${org}, ${project}, 'github', 'main', 'r', 's', true, id, 1, 'push', ${now} FROM ${rows}`
  yield* sql`
    INSERT INTO audit_log (id, org_id, at, actor, action, target, details)
    SELECT 'a' || id, ${org}, ${now}, 'administrator', 'key.create', 't', '{}' FROM ${rows}`
  yield* sql`
    INSERT INTO events (id, org_id, job_id, type, body, created_at)
    SELECT 'e' || id, ${org}, 'j' || id, 'job.completed', '{}', ${now} FROM ${rows} WHERE n <= 1000`
})

const usedHour = (orgId: string) => ({
  orgId,
  keyId: "k00000001",
  hour: 1,
  valid: 1,
  forbidden: 0,
  limited: 0,
  cost: 1,
})

type Operation = [string, Effect.Effect<unknown, unknown, JobRepository>]

/** Each list and claim, of the full org and of an almost empty one. */
const operations = Effect.fnUntraced(function* (
  { emptyProject, org, project, small }: Readonly<Record<"org" | "small" | "project" | "emptyProject", string>>,
  count: number,
) {
  const jobs = yield* JobRepository
  const schedules = yield* JobScheduleRepository
  const keys = yield* ApiKeyRepository
  const usages = yield* KeyUsageRepository
  const projects = yield* ProjectRepository
  const deployments = yield* DeploymentRepository
  const audit = yield* AuditRepository
  const orgs = yield* OrgRepository
  const page = { limit: limit - 1 }
  const someId = String(count / 2).padStart(8, "0")
  const middle = (prefix: string) => ({ ...page, cursor: prefix + someId })
  const lease = { limit, now: at(0), leaseUntil: at(60) }
  const of = { org, small }
  const each = Object.entries(of).flatMap(([name, id]): Array<Operation> => [
    [`${name}: jobs`, jobs.list(id, {}, page)],
    [`${name}: jobs, next page`, jobs.list(id, {}, middle("j"))],
    [`${name}: jobs of a status`, jobs.list(id, { status: "running" }, middle("j"))],
    [`${name}: jobs of a status that none has`, jobs.list(id, { status: "failed" }, page)],
    [`${name}: jobs of a workflow`, jobs.list(id, { workflow: "many" }, middle("j"))],
    [`${name}: jobs of a workflow that none has`, jobs.list(id, { workflow: "none" }, page)],
    [`${name}: jobs of both`, jobs.list(id, { workflow: "many", status: "failed" }, page)],
    [`${name}: claim`, jobs.claim(id, { ...lease, workflows: undefined })],
    [`${name}: claim of a workflow`, jobs.claim(id, { ...lease, workflows: ["many"] })],
    [`${name}: claim of two workflows`, jobs.claim(id, { ...lease, workflows: ["many", "none"] })],
    [`${name}: cancel a job`, Effect.ignore(cancelJob(id, `j${String(count / 2).padStart(8, "0")}`, at(1)))],
    [
      `${name}: complete a job`,
      Effect.ignore(finish(id, `j${String(count / 2 + 1).padStart(8, "0")}`, completed(), at(1))),
    ],
    [`${name}: claim of a workflow that none has`, jobs.claim(id, { ...lease, workflows: ["none"] })],
    [`${name}: job`, Effect.ignore(jobs.find(id, `j${someId}`))],
    [
      `${name}: heartbeat`,
      Effect.ignore(jobs.extendLease(id, `j${String(count / 2 + 1).padStart(8, "0")}`, heartbeat(at(1), at(0)))),
    ],
    [`${name}: keys`, keys.list(id, page)],
    [`${name}: keys, next page`, keys.list(id, middle("k"))],
    [`${name}: keys of an external id`, keys.list(id, middle("k"), { externalId: "many" })],
    [`${name}: keys of a name`, keys.list(id, middle("k"), { name: "k" })],
    [`${name}: keys of a project`, keys.list(id, middle("k"), { projectId: project })],
    [`${name}: checked keys, of a state that none has`, keys.list(id, middle("k"), { state: "leaked" })],
    [`${name}: checked keys, of a project with two names`, keys.list(id, page, { projectId: project, name: "k" })],
    [`${name}: checked keys, of a name that few have`, keys.list(id, page, { externalId: "many", name: "none" })],
    [`${name}: checked keys, of a text that none has`, keys.list(id, page, { text: "none", order: "newest" })],
    [`${name}: keys, newest first`, keys.list(id, middle("k"), { order: "newest" })],
    [`${name}: keys of a name, newest first`, keys.list(id, page, { name: "k", order: "newest" })],
    [`${name}: keys of an external id that none has`, keys.list(id, page, { externalId: "none" })],
    [`${name}: change a key`, Effect.ignore(keys.update(id, `k${someId}`, { rateLimit: null }, newEntry()))],
    [`${name}: remove a key`, Effect.ignore(keys.remove(id, `k${someId}`, newEntry()))],
    [`${name}: usage of a key in 19 hours`, usages.find(id, "k00000001", { from: 1, to: 1_901, every: 24 })],
    [`${name}: projects`, projects.list(oneOrg(id), page)],
    [`${name}: projects, next page`, projects.list(oneOrg(id), middle("p"))],
    [`${name}: deployments of the project with many`, deployments.list(oneOrg(id), project, middle("d"))],
    [`${name}: deployments`, deployments.list(oneOrg(id), emptyProject, page)],
    [`${name}: audit log`, audit.list(id, page)],
    [`${name}: audit log, next page`, audit.list(id, middle("a"))],
  ])
  const rest: ReadonlyArray<Operation> = [
    ["small: schedules", schedules.list(small, { limit: 100 })],
    ["job by its idempotency key", insertJob(org, { idempotencyKey: someId })],
    ["every project", projects.list(everyOrg, middle("p"))],
    ["every org", orgs.list(everyOrg, page)],
    ["the org of an id", orgs.list(everyOrg, page, { owns: `k${someId}` })],
    ["keys by their hashes", keys.findByHashes(["00", "01"])],
    ["written uses of a key", usages.add([usedHour(org)])],
    ["old usage of keys", usages.removeOld(10, limit)],
    ["usage of keys", keys.touch(new Map([[`k${someId}`, at(0)]]))],
    ["leases", jobs.expireLeases({ ...lease, after: null })],
    ["leases in turns", jobs.expireLeases({ ...lease, after: "" })],
    ["expired leases", jobs.expireLeases({ ...lease, now: at(86_400), after: null })],
    ["expired leases in turns", jobs.expireLeases({ ...lease, now: at(86_400), after: "" })],
    ["delayed jobs", jobs.queueDelayed({ limit, now: at(0), after: null })],
    ["delayed jobs in turns", jobs.queueDelayed({ limit, now: at(0), after: "" })],
    ["due delayed jobs", jobs.queueDelayed({ limit, now: at(86_400), after: null })],
    ["due delayed jobs in turns", jobs.queueDelayed({ limit, now: at(86_400), after: "" })],
    ["job", insertJob(org)],
    ["schedule that runs now", Effect.ignore(schedules.run(org, `s${someId}`, "new", at(0)))],
    ["schedule with its last job", Effect.ignore(schedules.find(org, `s${someId}`))],
    ["schedules", schedules.runDue({ limit, now: at(0), after: null })],
    ["schedules in turns", schedules.runDue({ limit, now: at(0), after: "" })],
    ["due schedules", schedules.runDue({ limit, now: at(86_400), after: null })],
    ["due schedules in turns", schedules.runDue({ limit, now: at(86_400), after: "" })],
  ]
  return [...each, ...rest]
})

// Beside a claim of jobs that took long, a look reads the beginning of its queue.
const maxRowsOf = (operation: string) => {
  // The index entry and the row of each, first for the last of them and then for the page.
  if (operation.includes(": checked keys")) return 4 * maxFilteredRows + maxRows
  return operation.endsWith("of two workflows") || operation.includes(": claim") ? maxRowsOfWorkflows : maxRows
}

// The embedded database gets fewer rows, because it takes three times as long to fill.
const counts = { embedded: 20_000, postgres: 100_000 }

for (const [name, database] of Object.entries(databases)) {
  const count = counts[name as keyof typeof counts]
  layer(Layer.provideMerge(repositories, database), { excludeTestServices: true })(name, (it) => {
    it.effect(`each list, claim and sweep reads a bounded number of rows beside ${count}`, function* () {
      const sql = yield* SqlClient.SqlClient
      // Statistics stay empty, as right after a table is filled.
      yield* withoutAutovacuum(tables)
      const [{ orgId: org }, { orgId: small }] = [yield* insertOrg("a"), yield* insertOrg("b")]
      const { projectId } = yield* insertProject(org)
      const { projectId: emptyProject } = yield* insertProject(org)
      for (let n = 0; n < 5; n++) yield* insertJob(small)
      // The first job of an org in a process counts its jobs, and an operation below is undone with its count.
      yield* insertJob(org)
      const all = yield* operations({ org, small, project: projectId, emptyProject }, count)
      const check = Effect.fnUntraced(function* (when: string) {
        const tooMany: Array<string> = []
        for (const [operation, effect] of all) {
          const { rows } = yield* rowsRead(tables, effect)
          if (rows > maxRowsOf(operation)) tooMany.push(`${operation}: ${rows}`)
        }
        assert.deepStrictEqual(tooMany, [], when)
      })
      yield* check("empty")
      yield* fill(org, projectId, count)
      yield* check("as planned when the tables were empty")
      yield* sql`DISCARD PLANS`
      yield* check("as planned without statistics")
      yield* sql`ANALYZE`
      yield* check("as planned with statistics")
    })
  })
}
