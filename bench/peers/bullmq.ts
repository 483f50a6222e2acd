import { Queue, Worker } from "bullmq"
import { atOnce, deliver, serve, type Webhook } from "./delivery.ts"

/**
 * BullMQ on Redis. As documented: a worker with a concurrency of 50. TUNED: 128, and only the last thousand finished
 * jobs are kept. The outcome is the job's return value.
 */
const tuned = process.env["TUNED"] === "1"
const connection = { host: "127.0.0.1", port: Number(process.env["REDIS_PORT"]), maxRetriesPerRequest: null }
const queue = new Queue<Webhook>("webhooks", {
  connection,
  ...(tuned ? { defaultJobOptions: { removeOnComplete: 1_000 } } : {}),
})
const worker = new Worker<Webhook>("webhooks", (job) => deliver(job.id!, job.data), {
  connection,
  autorun: false,
  concurrency: tuned ? atOnce : 50,
})
await worker.waitUntilReady()
await worker.pause(true)
void worker.run()

await serve({
  fill: async (webhooks) => {
    await queue.addBulk(webhooks.map((data) => ({ name: "webhook", data })))
  },
  add: (webhook) => queue.add("webhook", webhook),
  start: async () => {
    worker.resume()
  },
  stop: () => worker.pause(),
})
