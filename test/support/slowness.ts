import { availableParallelism, loadavg } from "node:os"

/** A tenth of a second of CPU shows how long this process waits for a core. */
const probeMillis = 100

/**
 * How much longer than alone a run takes on this machine: 1 where nothing else runs, at most 4. A run of several
 * processes meets the others more often than one probe does.
 */
export const measureSlowness = () => {
  const since = performance.now()
  const cpu = process.cpuUsage()
  const used = () => {
    const { system, user } = process.cpuUsage(cpu)
    return (system + user) / 1000
  }
  while (used() < probeMillis);
  const share = Math.max((performance.now() - since) / probeMillis, (loadavg()[0] ?? 0) / availableParallelism())
  return share < 1.3 ? 1 : Math.min(4, Math.ceil(2 * share))
}

/** What the run measured at its start, or was told by TEST_SLOWNESS. */
export const slowness = Number(process.env["TEST_SLOWNESS"] ?? 1)
