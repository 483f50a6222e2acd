import { addKeys, settle } from "../../support/fill.ts"
import { growthBars, growthTable } from "../../support/growth.ts"
import { prepareLoad } from "../../support/load.ts"
import { folder, startPostgres } from "../../support/postgres.ts"
import { amount, type Found, type RunOptions } from "../../support/result.ts"
import { compare } from "../../support/rounds.ts"
import { type Scope, scoped } from "../../support/scope.ts"
import { asAdministrator, makeTenant, startService, times } from "../../support/service.ts"

/** The number of different keys that are validated, with any size of the table. */
const asked = 1_000

/** Validation beside a thousand keys, and beside a million. */
export const keys = (_: Scope, { quick, rounds, say, seconds, warmUp }: RunOptions): Promise<Found> =>
  scoped(async (scope) => {
    const sizes = quick ? [1_000, 10_000, 100_000] : [1_000, 100_000, 1_000_000]
    const ways = { "validate from memory": {}, "validate through the database": { KEY_CACHE_SIZE: "0" } }
    const home = folder(scope)
    const postgres = await startPostgres(scope)
    const subjects: Record<string, ReturnType<typeof prepareLoad>> = {}
    for (const size of sizes) {
      const url = await postgres.database(`keys${size}`)
      const query = await postgres.connect(url)
      let known: ReadonlyArray<string> = []
      for (const [way, environment] of Object.entries(ways)) {
        const service = await startService(scope, home, { DATABASE_URL: url, ...environment })
        if (known.length === 0) {
          const { orgId, projectId } = await makeTenant(service)
          known = await times(
            asked,
            async (n) => (await service.manage("/api/v0/keys", { name: `key ${n}`, projectId }))["key"] as string,
          )
          await addKeys(query, orgId, projectId, size - asked)
          await settle(query)
        }
        const requests = known.map((key) => ({
          method: "POST",
          path: "/api/v0/keys/validate",
          headers: asAdministrator,
          body: JSON.stringify({ key }),
        }))
        subjects[`${way} ${size}`] = prepareLoad(home, service.url, requests, {
          server: service.pid,
          database: postgres.cpu,
        })
      }
      say(`${amount(size)} keys are there`)
    }
    const found = await compare(subjects, { rounds, seconds, warmUp, say })
    const operations = Object.fromEntries(
      Object.keys(ways).map((way) => [
        way,
        sizes.map((size) => ({ size: `${amount(size)} keys`, rounds: found[`${way} ${size}`]!.rounds })),
      ]),
    )
    return { tables: [growthTable("Validate", operations)], bars: growthBars(operations), notes: [] }
  })
