import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { setTimeout as sleep } from "node:timers/promises"
import type { Scope } from "./scope.ts"
import type { Service } from "./service.ts"

/** A receiver in this process, which records when the event of each job arrives. */
export const startArrivals = async (scope: Scope) => {
  const arrivals = new Map<string, number>()
  const server = createServer((request, response) => {
    const chunks: Array<Buffer> = []
    request.on("data", (chunk: Buffer) => chunks.push(chunk))
    request.on("end", () => {
      const { job_id } = JSON.parse(Buffer.concat(chunks).toString()) as { job_id: string }
      arrivals.set(job_id, performance.now())
      response.end()
    })
  })
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
  scope.defer(() => void server.close().closeAllConnections())
  return { arrivals, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }
}

/**
 * Finishes jobs, one every 20 ms; returns for each the milliseconds from the request that finishes it to the arrival of
 * its event. Fails when one has not arrived after ten seconds.
 */
export const latencies = async (
  service: Service,
  key: string,
  arrivals: ReadonlyMap<string, number>,
  count: number,
): Promise<ReadonlyArray<number>> => {
  const begun = new Map<string, number>()
  const finish = async () => {
    const { job_id } = await service.call(key, "/v1/jobs/create", { workflow: "bench" })
    begun.set(job_id as string, performance.now())
    await service.call(key, "/v1/jobs/complete", { job_id, result: "x".repeat(400) })
  }
  const finishing: Array<Promise<void>> = []
  for (let n = 0; n < count; n++) {
    finishing.push(finish())
    await sleep(20)
  }
  await Promise.all(finishing)
  const missing = () => [...begun.keys()].filter((id) => !arrivals.has(id)).length
  for (let n = 0; n < 200 && missing() > 0; n++) await sleep(50)
  if (missing() > 0) throw new Error(`${missing()} events did not come within ten seconds`)
  return [...begun].map(([id, at]) => arrivals.get(id)! - at)
}
