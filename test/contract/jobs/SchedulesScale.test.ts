import { assert } from "@effect/vitest"
import { Layer } from "effect"
import { JobScheduleRepository } from "#src/domain/jobs/JobScheduleRepository.ts"
import * as JobSchedulesSql from "#src/infrastructure/jobs/jobSchedulesSql.ts"
import * as OrgsSql from "#src/infrastructure/orgs/orgsSql.ts"
import * as crypto from "../../fakes/crypto.ts"
import { databases } from "../../support/databases.ts"
import { layer } from "../../support/it.ts"
import { insertSchedule } from "./schedules.ts"
import { insertOrg } from "../support.ts"
import { epoch } from "../webhooks/webhookSupport.ts"

const sql = Layer.mergeAll(JobSchedulesSql.layer, OrgsSql.layer).pipe(Layer.provide(crypto.layer))

for (const [name, database] of Object.entries(databases)) {
  layer(Layer.provideMerge(sql, database), { excludeTestServices: true })(name, (it) => {
    // Seen failing with a batch that only limits the number of rows.
    it.effect(
      "a batch copies at most 16 MiB of inputs, and takes one schedule of each org before a second of any",
      function* () {
        const { runDue } = yield* JobScheduleRepository
        const [{ orgId: large }, { orgId: other }] = [yield* insertOrg(), yield* insertOrg()]
        const now = epoch()
        const input = "x".repeat(1024 * 1024)
        for (let n = 0; n < 20; n++) yield* insertSchedule(large, now, { input })
        yield* insertSchedule(other, now)
        const batch = { now, limit: 100, after: null }
        const first = yield* runDue(batch)
        assert.strictEqual(first.next, "")
        assert.deepStrictEqual(
          [first.orgs.filter((org) => org === other).length, first.orgs.filter((org) => org === large).length],
          [1, 16],
        )
        assert.deepStrictEqual(yield* runDue(batch), { orgs: Array(4).fill(large), moved: 4, next: null })
      },
    )
  })
}
