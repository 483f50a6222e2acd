import { atOnce, deliver, serve, type Webhook } from "./delivery.ts"

/** No queue: sends webhooks from memory and stores no outcome. Measures the cost of the client and the signatures. */
let waiting: Array<Webhook> = []
let sent = 0

await serve({
  fill: async (webhooks) => void waiting.push(...webhooks),
  start: async () => {
    const all = waiting.values()
    waiting = []
    const lane = async () => {
      for (const webhook of all) await deliver(`webhook-${++sent}`, webhook)
    }
    for (let n = 0; n < atOnce; n++) void lane()
  },
  stop: async () => {},
})
