import { join } from "node:path"
import { folder, startPostgres } from "../../support/postgres.ts"
import { figure, type Found, type RunOptions } from "../../support/result.ts"
import { type Scope, scoped } from "../../support/scope.ts"
import { startService } from "../../support/service.ts"
import { median } from "../../support/stats.ts"

/** From the start of the process to its readiness: the first start, and later ones. */
export const starts = (_: Scope, { rounds, say }: RunOptions): Promise<Found> =>
  scoped(async (scope) => {
    const home = folder(scope)
    const postgres = await startPostgres(scope)
    const took = new Map<string, Array<number>>()
    for (let round = 1; round <= rounds; round++) {
      const places = {
        PostgreSQL: { DATABASE_URL: await postgres.database(`start${round}`) },
        "embedded database": { DATA_DIR: join(home, `data${round}`) },
      }
      for (const [name, place] of Object.entries(places)) {
        for (const which of ["first start", "later start"]) {
          const { tookToStart } = await scoped((scope) => startService(scope, home, place))
          const key = `${which}, ${name}`
          took.set(key, [...(took.get(key) ?? []), tookToStart])
          say(`round ${round}: ${key}: ${tookToStart.toFixed(0)} ms`)
        }
      }
    }
    return {
      tables: [
        {
          title: "From start to ready",
          columns: ["", "ms"],
          rows: [...took].map(([name, times]) => [name, figure(median(times))]),
        },
      ],
      bars: [],
      notes: [],
    }
  })
