import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { setTimeout as sleep } from "node:timers/promises"
import type { Scope } from "./scope.ts"
import type { Service } from "./service.ts"

/** A receiver in this process, which records when the event of each job, or with each `data.id`, arrives. */
export const startArrivals = async (scope: Scope) => {
  const arrivals = new Map<string, number>()
  const server = createServer((request, response) => {
    const chunks: Array<Buffer> = []
    request.on("data", (chunk: Buffer) => chunks.push(chunk))
    request.on("end", () => {
      const { data, job_id } = JSON.parse(Buffer.concat(chunks).toString()) as {
        readonly job_id?: string
        readonly data?: { readonly id: string }
      }
      arrivals.set(job_id ?? data!.id, performance.now())
      response.end()
    })
  })
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
  scope.defer(() => void server.close().closeAllConnections())
  return { arrivals, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }
}

/** Sends something whose event arrives under an id; calls `begin` when the time starts. */
type SendOne = (begin: (id: string) => void) => Promise<void>

/** Finishes a job. */
export const finishJobs =
  (service: Service, key: string): SendOne =>
  async (begin) => {
    const { job_id } = await service.call(key, "/v1/jobs/create", { workflow: "bench" })
    begin(job_id as string)
    await service.call(key, "/v1/jobs/complete", { job_id, result: "x".repeat(400) })
  }

let events = 0
/** Publishes an event. */
export const publishEvents =
  (service: Service, key: string): SendOne =>
  async (begin) => {
    const id = `event-${events++}`
    begin(id)
    await service.call(key, "/v1/events/publish", { type: "invoice.paid", data: { id, text: "x".repeat(400) } })
  }

/**
 * Sends one every 20 ms; returns for each the milliseconds to the arrival of its event. Fails when one has not arrived
 * after ten seconds.
 */
export const latencies = async (
  arrivals: ReadonlyMap<string, number>,
  count: number,
  send: SendOne,
): Promise<ReadonlyArray<number>> => {
  const begun = new Map<string, number>()
  const sending: Array<Promise<void>> = []
  for (let n = 0; n < count; n++) {
    sending.push(send((id) => begun.set(id, performance.now())))
    await sleep(20)
  }
  await Promise.all(sending)
  const missing = () => [...begun.keys()].filter((id) => !arrivals.has(id)).length
  for (let n = 0; n < 200 && missing() > 0; n++) await sleep(50)
  if (missing() > 0) throw new Error(`${missing()} events did not come within ten seconds`)
  return [...begun].map(([id, at]) => arrivals.get(id)! - at)
}
