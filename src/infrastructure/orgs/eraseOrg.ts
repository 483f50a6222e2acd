import { Effect } from "effect"
import { texts } from "../database/arrays.ts"
import { inOrg } from "../database/buckets.ts"
import {
  byId,
  type Erasure,
  erasedRows,
  eraseOfKeys,
  type NamedStep,
  type Sql,
  type Step,
  table,
  unordered,
} from "./erasureSteps.ts"

/** Erases jobs by the index of their states; they have none by org and id. Their events go with them. */
const jobs: Step = (sql, { orgId }, after, limit) =>
  Effect.gen(function* () {
    const [status = "", id = ""] = after.split("\n")
    const rows = yield* sql<{ status: string; id: string }>`
      SELECT status, id FROM jobs WHERE org_id = ${orgId} AND (status, id) > (${status}, ${id})
      ORDER BY status, id LIMIT ${limit} FOR UPDATE SKIP LOCKED`
    const ids = rows.map((row) => row.id)
    if (ids.length === 0) return { rows: 0, last: null }
    yield* sql`DELETE FROM events WHERE org_id = ${orgId} AND job_id = ANY(${texts(ids)})`
    yield* byId(sql, "jobs", { orgId, projectId: null }, ids)
    const last = rows.at(-1)!
    return { rows: ids.length, last: ids.length === limit ? `${last.status}\n${last.id}` : null }
  })

const eraseAttempts = Effect.fnUntraced(function* (sql: Sql, { orgId }: Erasure, ids: ReadonlyArray<string>) {
  // By the primary key: the lane of a delivery is the one that it is pending in.
  yield* sql`
    DELETE FROM pending_deliveries p USING unnest(${texts(ids)}) AS gone (id)
    JOIN deliveries d ON d.id = gone.id WHERE p.lane = d.lane AND p.delivery_id = d.id AND d.org_id = ${orgId}`
  yield* sql`DELETE FROM delivery_attempts WHERE org_id = ${orgId} AND delivery_id = ANY(${texts(ids)})`
})

/** The lanes of an org's callbacks begin with its id and a space. */
const failingCallbacks: Step = (sql, { orgId }, _, limit) =>
  erasedRows(
    sql`
      DELETE FROM failing_callbacks WHERE org_id = ${orgId} AND lane = ANY(ARRAY(
        SELECT lane FROM failing_callbacks WHERE lane > ${`${orgId} `} AND lane < ${`${orgId}!`} LIMIT ${limit}
      )) RETURNING 1`,
    limit,
  )

/** The other sweeps of the org. Its erasure is the last row of it. */
const otherSweeps: Step = (sql, { orgId }, _, limit) =>
  erasedRows(
    sql`
      DELETE FROM sweeps WHERE org_id = ${orgId} AND id = ANY(ARRAY(
        SELECT id FROM sweeps WHERE org_id = ${orgId} AND NOT (kind = 'erase' AND project_id IS NULL)
        ORDER BY id LIMIT ${limit} FOR UPDATE SKIP LOCKED
      )) RETURNING 1`,
    limit,
  )

/** A step on a table of tenants, which is in the bucket of the org. */
const there =
  (step: Step): Step =>
  (sql, erasure, after, limit) =>
    inOrg(sql, erasure.orgId)(step(sql, erasure, after, limit))

/**
 * The steps of an org's erasure. Every table with a column `org_id` is here or goes with one that is, but for the audit log,
 * which stays for the administrator, and `org_owners`, which goes last: `test/contract/orgs/erasure.ts` reads the catalog.
 * First what makes new rows, and what others want: names, then schedules, then the jobs before their events.
 */
export const orgSteps: ReadonlyArray<NamedStep> = [
  ["projects", table("projects")],
  ["docs", unordered("project_docs")],
  ["docsPages", unordered("docs_pages")],
  ["docsQuestions", unordered("docs_questions")],
  ["keys", table("api_keys", eraseOfKeys)],
  ["keyUsage", unordered("key_usage")],
  ["schedules", there(table("job_schedules"))],
  ["endpoints", there(table("webhook_endpoints"))],
  ["paces", there(unordered("endpoint_paces"))],
  ["signingKeys", there(unordered("org_signing_keys"))],
  ["deliveries", there(table("deliveries", eraseAttempts))],
  ["events", there(table("events"))],
  ["jobs", there(jobs)],
  ["deployments", table("deployments")],
  ["callbacks", there(failingCallbacks)],
  ["usage", there(unordered("org_usage"))],
  ["sessions", unordered("sessions")],
  ["activity", unordered("activity_counts")],
  ["endpointFailures", unordered("endpoint_failures")],
  ["sweeps", otherSweeps],
  ["sweepsOfBucket", there(otherSweeps)],
]
