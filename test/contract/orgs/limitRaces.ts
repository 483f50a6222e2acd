import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { JobRepository } from "#src/domain/jobs/JobRepository.ts"
import { maxWorkflows } from "#src/domain/jobs/WorkflowSettings.ts"
import { EventTypeRepository, maxEventTypes } from "#src/domain/webhooks/EventTypes.ts"
import { outcomeOf } from "../../domain/support.ts"
import { meanwhile, meet } from "../meet.ts"
import { at, insertOrg, newEntry, newId } from "../support.ts"
import { setWorkflow } from "../jobs/workflows.ts"
import { insertEndpoint, insertJob } from "../webhooks/webhookSupport.ts"
import { updateOrg } from "./orgLimits.ts"

const startSweep = (orgId: string) =>
  Effect.flatMap(newId, (target) =>
    JobRepository.use((jobs) =>
      jobs.startSweep(orgId, { kind: "cancel", filter: { workflow: "w" }, count: 1 }, newEntry({ target })),
    ),
  )

const insertEventType = (orgId: string, name: string) => {
  const values = { description: null, schemas: {}, example: null, deprecated: false, group: null }
  const type = { name, ...values, created_at: at(0), updated_at: at(0) }
  return EventTypeRepository.use((types) => types.insert(orgId, type, newEntry()))
}

/** Asserts that of two creations for the last place one has it. */
const assertLast = (outcomes: ReadonlyArray<string>) =>
  assert.strictEqual(outcomes.filter((outcome) => outcome === "ok").length, 1)

/** Pairs of creations that meet at the last place of an org. */
export const limitRaces = {
  // Seen failing without the lock: both had counted nine.
  "start a sweep, start another": Effect.gen(function* () {
    const { orgId } = yield* insertOrg()
    for (let n = 0; n < 9; n++) yield* startSweep(orgId)
    const outcomes = yield* meet(startSweep(orgId), startSweep(orgId))
    assertLast(outcomes)
    const sql = yield* SqlClient.SqlClient
    yield* sql`DELETE FROM sweeps WHERE org_id = ${orgId}`
    return outcomes
  }),

  // Seen failing without the lock.
  "set a workflow, set another": Effect.gen(function* () {
    const { orgId } = yield* insertOrg()
    const sql = yield* SqlClient.SqlClient
    yield* sql`
      INSERT INTO workflows (org_id, workflow, concurrency, created_at, updated_at)
      SELECT ${orgId}, 'w' || n, 1, now(), now() FROM generate_series(2, ${maxWorkflows}::int) AS n`
    const outcomes = yield* meet(
      setWorkflow(orgId, { workflow: "a", concurrency: 1 }, at(0)),
      setWorkflow(orgId, { workflow: "b", concurrency: 1 }, at(0)),
    )
    assertLast(outcomes)
    return outcomes
  }),

  // Seen failing with a count in the statement that waits for the lock.
  "create an event type, create the last one": Effect.gen(function* () {
    const { orgId } = yield* insertOrg()
    const sql = yield* SqlClient.SqlClient
    yield* sql`
      INSERT INTO event_types (org_id, id, schemas, deprecated, created_at, updated_at)
      SELECT ${orgId}, 'a.' || n, '{}', false, now(), now() FROM generate_series(2, ${maxEventTypes}::int) AS n`
    const [one, two] = [insertEventType(orgId, "b.one"), insertEventType(orgId, "b.two")]
    const outcomes = yield* Effect.orDie(meanwhile(outcomeOf(one), outcomeOf(two)))
    assertLast(outcomes)
    return outcomes
  }),

  "create an endpoint, create the last one": Effect.gen(function* () {
    const { orgId } = yield* insertOrg()
    yield* updateOrg(orgId, { limits: { endpoints: 2 } })
    yield* insertEndpoint(orgId)
    const outcomes = yield* meet(insertEndpoint(orgId), insertEndpoint(orgId))
    assertLast(outcomes)
    return outcomes
  }),

  "create a job, create the last one": Effect.gen(function* () {
    const { orgId } = yield* insertOrg()
    yield* updateOrg(orgId, { limits: { unfinishedJobs: 2 } })
    yield* insertJob(orgId)
    const outcomes = yield* meet(insertJob(orgId), insertJob(orgId, { idempotencyKey: "k" }))
    assertLast(outcomes)
    return outcomes
  }),
}
