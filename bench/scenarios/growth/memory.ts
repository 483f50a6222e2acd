import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { memoryOf } from "../../support/cpu.ts"
import { drain } from "../../support/drain.ts"
import { prepareLoad } from "../../support/load.ts"
import { folder, startPostgres } from "../../support/postgres.ts"
import { startReceiver } from "../../support/receiver.ts"
import { amount, atMost, figure, type Found, type RunOptions } from "../../support/result.ts"
import { type Scope, scoped } from "../../support/scope.ts"
import { gatehouse, secret } from "../../support/senders.ts"
import { asAdministrator, makeTenant, startService, times } from "../../support/service.ts"

/** The memory of a process: idle, after a million validations, and as 100,000 deliveries become due. */
export const memory = (_: Scope, { quick, say }: RunOptions): Promise<Found> =>
  scoped(async (scope) => {
    const validations = quick ? 100_000 : 1_000_000
    const due = quick ? 10_000 : 100_000
    const home = folder(scope)
    const postgres = await startPostgres(scope)
    const rows: Array<ReadonlyArray<string>> = []
    const row = (name: string, where: string, pid: number) => {
      const { now, peak } = memoryOf(pid)
      rows.push([name, where, figure(now), figure(peak)])
      say(`${name}, ${where}: ${figure(now)} MiB`)
      return now
    }
    const places = {
      PostgreSQL: { DATABASE_URL: await postgres.database("gatehouse") },
      "embedded database": { DATA_DIR: join(home, "data") },
    }
    const idle: Record<string, number> = {}
    for (const [name, place] of Object.entries(places)) {
      await scoped(async (scope) => {
        const service = await startService(scope, home, place)
        await sleep(quick ? 2_000 : 10_000)
        idle[name] = row("at rest", name, service.pid)
        const { projectId } = await makeTenant(service)
        const keys = await times(
          1_000,
          async () => (await service.manage("/api/v0/keys", { name: "k", projectId }))["key"],
        )
        const requests = keys.map((key) => ({
          method: "POST",
          path: "/api/v0/keys/validate",
          headers: asAdministrator,
          body: JSON.stringify({ key }),
        }))
        const load = prepareLoad(home, service.url, requests, { server: service.pid })
        for (let done = 0; done < validations;) done += (await load(quick ? 2 : 5)).requests
        row(`after ${amount(validations)} validations`, name, service.pid)
      })
    }
    const receiver = await startReceiver(scope, home, secret)
    const { sender, service } = await gatehouse({ scope, postgres, receiver }, "due", 100)
    await drain(sender, receiver, due)
    row(`after ${amount(due)} deliveries that were due at once`, "PostgreSQL", service.pid)
    return {
      tables: [{ title: "Memory", columns: ["", "on", "MiB", "at most MiB"], rows }],
      // In megabytes of a million bytes, as in the bar.
      bars: Object.entries(idle).map(([name, mib]) => atMost(`Memory at rest, ${name}`, 150, mib * 1.048_576, " MB")),
      notes: [],
    }
  })
