import { assert, describe } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { existsSync, globSync, readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { databases } from "../../support/databases.ts"
import { it } from "../../support/it.ts"

const folder = fileURLToPath(new URL("../../../src/infrastructure/", import.meta.url))
const tests = new URL("../../../test/", import.meta.url)

/** A trick: what exists so that the planner has no choice (docs/architecture.md). */
interface Trick {
  /** The tests, below `test`, that fail without it. */
  readonly tests: ReadonlyArray<string>
  /** Indexes with its expression or condition. */
  readonly indexes?: ReadonlyArray<string>
  /** What it is in other statements: an expression or a setting, and the files. */
  readonly uses?: Readonly<Record<string, ReadonlyArray<string>>>
}

const statementPlans = "infrastructure/database/StatementPlans.test.ts"
const claimPlan = "infrastructure/webhooks/ClaimPlan.test.ts"
const queuePlans = "infrastructure/webhooks/QueuePlans.test.ts"
const boundedReads = "contract/BoundedReads.test.ts"
const settings = "database/planSettings.ts"
const schema = "database/migrations/0001_schema.ts"

/** Each begins with `Planner (name)` in a comment at its place, which says what a plan would do without it. */
const tricks: Readonly<Record<string, Trick>> = {
  "no sequential scans": { tests: [statementPlans], uses: { enable_seqscan: [settings] } },
  "no bitmap scans": { tests: [statementPlans, claimPlan], uses: { enable_bitmapscan: [settings] } },
  "no compiler": { tests: ["infrastructure/database/PlannerTricks.test.ts"], uses: { jit: [settings] } },
  "one plan for all parameters": { tests: [statementPlans], uses: { plan_cache_mode: [settings] } },
  "a move finds rows by their keys": {
    tests: [statementPlans],
    uses: { enable_hashjoin: ["sweeps/moveOrg.ts"], enable_mergejoin: ["sweeps/moveOrg.ts"] },
  },
  "the first rows are deleted by place": { tests: [statementPlans], uses: { ctid: ["database/fragments.ts"] } },
  "locked rows are found again by place": {
    tests: [queuePlans, claimPlan, statementPlans],
    uses: {
      ctid: [
        "queue/lanes.ts",
        "webhooks/claimDeliveries.ts",
        "webhooks/deliveryLogSql.ts",
        "webhooks/deliveryQueueSql.ts",
        "webhooks/recordAttempts.ts",
      ],
    },
  },
  "lists by an expression of the id": {
    tests: [statementPlans],
    indexes: ["jobs_by_status", "finished_jobs_by_status"],
    uses: { "id || ''": ["database/fragments.ts"] },
  },
  "the org of jobs and keys is an expression": {
    tests: [statementPlans, boundedReads],
    indexes: ["api_keys_by_external_id", "api_keys_by_project"],
    uses: { "${} || ''": ["database/fragments.ts"], "org_id || ''": ["jobs/reportJobs.ts"] },
  },
  "the name of a key with its org": {
    tests: [statementPlans],
    indexes: ["api_keys_by_name"],
  },
  "the filter of deployments with its project": {
    tests: [statementPlans],
    indexes: ["deployments_by_branch", "deployments_by_preview"],
    uses: {
      "project_id || ''": ["deployments/deploymentsSql.ts"],
      "project_id || ' '": ["deployments/deploymentsSql.ts"],
      "${} || ' '": ["deployments/deploymentsSql.ts"],
    },
  },
  "a workflow with its org": {
    tests: [statementPlans],
    indexes: ["jobs_by_workflow", "finished_jobs_by_workflow", "jobs_running_by_key"],
  },
  "due rows by time or by org": {
    tests: [statementPlans],
    indexes: [
      "jobs_leased",
      "jobs_leased_by_org",
      "jobs_delayed",
      "jobs_delayed_by_org",
      "jobs_expiring",
      "jobs_expiring_by_org",
      "job_schedules_due",
      "job_schedules_due_by_org",
    ],
    uses: { "org_id || ''": ["queue/pickDue.ts"], "status || ''": ["jobs/jobsSql.ts"] },
  },
  "each claim has the condition of its index": {
    tests: [statementPlans, boundedReads],
    indexes: ["jobs_queue", "jobs_queue_by_workflow", "jobs_keyed", "jobs_queue_by_key"],
  },
  "deliveries of an endpoint by expressions": {
    tests: [statementPlans],
    indexes: ["deliveries_by_endpoint"],
    uses: { "id || ''": ["queue/lanes.ts"], "org_id || ''": ["queue/lanes.ts"] },
  },
  "unsuccessful deliveries by expressions": {
    tests: [statementPlans],
    indexes: ["deliveries_unsuccessful", "deliveries_unsuccessful_by_endpoint"],
    uses: { "id || ''": ["webhooks/deliveryLogSql.ts"], "org_id || ''": ["webhooks/deliveryLogSql.ts"] },
  },
  "the lane of a backlog is an expression": {
    tests: [claimPlan, queuePlans, statementPlans],
    indexes: ["pending_deliveries_in_order"],
    uses: {
      "org_id || ''": ["queue/lanes.ts", "webhooks/deliveryQueueSql.ts"],
      "lane || ''": ["queue/lanes.ts"],
    },
  },
  "an org has few rows": { tests: [statementPlans], uses: { n_distinct: [schema] } },
  "expressions without statistics": { tests: [boundedReads, statementPlans], uses: { "SET STATISTICS": [schema] } },
  "the index that finds one row is the newest": { tests: [statementPlans] },
}

/** The code of the files, without comments of TypeScript. */
const code = new Map(
  globSync("**/*.ts", { cwd: folder }).map((file) => {
    const text = readFileSync(folder + file, "utf8")
    const lines = text.split("\n").filter((line) => !/^\s*(\/\/|\/?\*)/.test(line))
    return [file, { text, code: lines.join("\n") }] as const
  }),
)

/** What looks like a trick outside of indexes: `file: expression`. */
const found = [...code].flatMap(([file, { code }]) => {
  const statements = code
    .replaceAll(/CREATE (UNIQUE )?INDEX [^`]*/g, "")
    .replaceAll(/\$\{[^{}]*(\{[^{}]*\}[^{}]*)*\}/g, "${}")
  const expressions = statements.matchAll(
    /\bctid\b|\bOFFSET 0\b|(\w+|\$\{\}) \|\| ' ?'|\benable_\w+|\bplan_cache_mode\b|\bjit\b|\bn_distinct\b|SET STATISTICS/g,
  )
  return [...expressions].map(([expression]) => `${file}: ${expression}`)
})

/** The indexes with an expression of strings, or with a condition that is true of every row. */
const indexes = [...code.values()].flatMap(({ code }) =>
  [...code.matchAll(/CREATE (?:UNIQUE )?INDEX (\w+)\s+ON ([^`]*)/g)]
    .filter(([, , definition]) => /\|\||(priority|attempt|max_attempts) >=? /.test(definition!))
    .map(([, name]) => name!),
)

const sorted = (all: Iterable<string>) => [...new Set(all)].toSorted()

describe("tricks for the planner", () => {
  it("are at most 20, and each has its comment and its plan test", () => {
    const comments = [...code.values()].flatMap(({ text }) =>
      [...text.matchAll(/Planner \(([^)]+)\)/g)].flatMap(([, name]) => (name === "name" ? [] : [name!])),
    )
    assert.deepStrictEqual(comments.toSorted(), Object.keys(tricks).toSorted())
    assert.isAtMost(comments.length, 20)
    for (const { tests: files } of Object.values(tricks)) {
      for (const file of files) assert.isTrue(existsSync(new URL(file, tests)), file)
    }
  })

  it("are those of the table, and no others", () => {
    const all = Object.values(tricks)
    const uses = all.flatMap(({ uses = {} }) =>
      Object.entries(uses).flatMap(([expression, files]) => files.map((file) => `${file}: ${expression}`)),
    )
    assert.deepStrictEqual(sorted(found), sorted(uses))
    assert.deepStrictEqual(sorted(indexes), sorted(all.flatMap(({ indexes = [] }) => indexes)))
  })

  it.live("the compiler is off in each session", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      assert.deepStrictEqual(yield* sql`SELECT current_setting('jit') AS jit`, [{ jit: "off" }])
    }).pipe(Effect.provide(databases.postgres)),
  )
})
