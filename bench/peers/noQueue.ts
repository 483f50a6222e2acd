import { atOnce, deliver, serve, type Webhook } from "./delivery.ts"

/** No queue: webhooks are sent from memory, and what comes of them is kept nowhere. What the client and the signatures take. */
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
