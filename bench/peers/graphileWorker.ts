import { Logger, makeWorkerUtils, run, type Runner } from "graphile-worker"
import { atOnce, deliver, serve, type Webhook } from "./delivery.ts"

/**
 * graphile-worker. As documented: the options of its quick start. TUNED: those of its page on performance (a local
 * queue, completions in batches), 128 jobs at once, without its log. It deletes finished jobs and keeps no record of
 * them.
 */
const { DATABASE_URL, TUNED } = process.env
const connectionString = DATABASE_URL!
const utils = await makeWorkerUtils({ connectionString })
await utils.migrate()
let runner: Runner | undefined

const taskList = {
  webhook: async (payload: unknown, { job }: { readonly job: { readonly id: string } }) => {
    await deliver(job.id, payload as Webhook)
  },
}

await serve({
  fill: async (webhooks) => {
    await utils.addJobs(webhooks.map((payload) => ({ identifier: "webhook", payload })))
  },
  add: (webhook) => utils.addJob("webhook", webhook),
  start: async () => {
    runner = await run(
      TUNED === "1"
        ? {
            preset: {
              worker: {
                connectionString,
                concurrentJobs: atOnce,
                maxPoolSize: 10,
                localQueue: { size: 500 },
                completeJobBatchDelay: 0,
                failJobBatchDelay: 0,
              },
            },
            logger: new Logger(() => () => {}),
            noHandleSignals: true,
            taskList,
          }
        : { connectionString, concurrency: 5, pollInterval: 1_000, noHandleSignals: true, taskList },
    )
  },
  stop: async () => {
    await runner?.stop()
  },
})
