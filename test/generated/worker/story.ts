import { JobFailed, startWorker } from "../../../src/sdk/worker.ts"

const { env } = process
const say = (text: string) => process.stdout.write(`${text}\n`)
let charges = 0

const worker = startWorker({
  baseUrl: env["GATEHOUSE_URL"]!,
  key: env["GATEHOUSE_TOKEN"]!,
  leaseSeconds: 1,
  graceSeconds: 60,
  onError: ({ message }) => say(`fault: ${message}`),
  handlers: {
    sum: async ({ attempt, input, progress }) => {
      await progress(0.5, "half")
      return { sum: (input as ReadonlyArray<number>).reduce((a, b) => a + b), attempt }
    },
    order: async ({ attempt, log, step }) => {
      log(`attempt ${attempt} \0`, "debug")
      const charge = await step("charge", async () => ({ number: ++charges }))
      await step("nothing", async () => undefined)
      if (attempt === 1) throw new Error("no paper")
      return charge
    },
    decorated: async ({ heartbeat, log, progress }) => {
      for (const text of ["\ud83d", "😀".repeat(1_500), "a\0b", ""]) log(text)
      await progress(1.000000000001, `x${"😀".repeat(600)}`)
      await progress(Number.NaN)
      await heartbeat({})
      throw new Error(`x${"😀".repeat(6_000)}`)
    },
    large: async ({ step }) =>
      await step("large", async () => {
        say("large made")
        return "x".repeat(300_000)
      }),
    twice: async ({ step }) => [await step("same", async () => 1), await step("same", async () => 1)],
    hopeless: async () => {
      throw new JobFailed("no such report")
    },
    odd: async () => 1n,
    slow: async () => await new Promise((resolve) => setTimeout(resolve, 2_500, "done")),
    endless: async ({ signal }) =>
      await new Promise((_, reject) =>
        signal.addEventListener("abort", () => {
          say("aborted")
          reject(new Error("aborted"))
        }),
      ),
  },
})
// After the worker's own listener.
process.once("SIGTERM", () => say("stops"))
await worker.done
