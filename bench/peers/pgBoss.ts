import { PgBoss } from "pg-boss"
import { deliver, serve, type Webhook } from "./delivery.ts"

/**
 * pg-boss. As documented: one job at a time for each worker, two polls a second. TUNED: batches of a thousand, fetched
 * while they are full, and each job finished separately with its status and duration.
 */
const { DATABASE_URL, TUNED } = process.env
const tuned = TUNED === "1"
const queue = "webhooks"
const boss = new PgBoss(DATABASE_URL!)
boss.on("error", (error) => process.stderr.write(`${error.message}\n`))
await boss.start()
await boss.createQueue(queue)

await serve({
  fill: async (webhooks) => {
    await boss.insert(
      queue,
      webhooks.map((data) => ({ data })),
    )
  },
  add: (webhook) => boss.send(queue, webhook),
  start: async () => {
    if (tuned) {
      await boss.work<Webhook>(
        queue,
        {
          batchSize: 1_000,
          localConcurrency: 2,
          burstWhenBatchFull: true,
          pollingIntervalSeconds: 0.5,
          perJobResults: true,
        },
        (jobs) =>
          Promise.all(
            jobs.map(({ data, id }) =>
              deliver(id, data).then(
                (output) => ({ id, status: "completed" as const, output }),
                (error: Error) => ({ id, status: "failed" as const, output: { message: error.message } }),
              ),
            ),
          ),
      )
    } else {
      await boss.work<Webhook>(queue, { localConcurrency: 128, pollingIntervalSeconds: 0.5 }, async ([job]) =>
        deliver(job!.id, job!.data),
      )
    }
  },
  stop: () => boss.offWork(queue),
})
