import { drain, type Drain } from "../../support/drain.ts"
import { addDeliveries, settle } from "../../support/fill.ts"
import { growthBars, growthTable } from "../../support/growth.ts"
import { folder, startPostgres } from "../../support/postgres.ts"
import { startReceiver } from "../../support/receiver.ts"
import { amount, type Found, type RunOptions } from "../../support/result.ts"
import { type Scope, scoped } from "../../support/scope.ts"
import { gatehouse, secret } from "../../support/senders.ts"

const endpoints = 100

/** Deliveries that are claimed, sent and recorded, beside none and beside a million finished ones. */
export const claims = (_: Scope, { quick, rounds, say }: RunOptions): Promise<Found> =>
  scoped(async (scope) => {
    const sizes = quick ? [0, 10_000, 100_000] : [0, 100_000, 1_000_000]
    // These soon finish too, but are few beside the existing ones, and are removed with the database.
    const due = quick ? 2_000 : 5_000
    const postgres = await startPostgres(scope)
    const receiver = await startReceiver(scope, folder(scope), secret)
    const subjects = []
    for (const size of sizes) {
      const { orgId, query, sender } = await gatehouse({ scope, postgres, receiver }, `done${size}`, endpoints)
      if (size > 0) await addDeliveries(query, orgId, size / endpoints, "delivered")
      await drain(sender, receiver, due)
      await settle(query)
      subjects.push({ size: `${amount(size)} finished`, query, sender, rounds: [] as Array<Drain> })
      say(`${amount(size)} finished deliveries are there`)
    }
    for (let round = 1; round <= rounds; round++) {
      for (const { query, rounds, sender, size } of subjects) {
        const made = await drain(sender, receiver, due)
        rounds.push(made)
        await settle(query)
        say(`round ${round}: beside ${size}: ${made.perSecond.toFixed(0)} a second`)
      }
    }
    const operations = { "deliver, 100 endpoints": subjects }
    return { tables: [growthTable("Deliveries", operations)], bars: growthBars(operations), notes: [] }
  })
