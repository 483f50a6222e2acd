import Fastify, { type FastifyInstance } from "fastify"
import { createHmac, hash, randomBytes } from "node:crypto"
import { Pool } from "undici"
import { ulid } from "./ulid.ts"

/** A webhook in a queue. */
export interface Webhook {
  readonly url: string
  readonly body: string
  readonly secret: string
}

/** The result of an attempt, which a queue stores. */
export interface Outcome {
  readonly status: number
  readonly duration: number
}

const { PORT, SECRET = "", URL: receiver = "" } = process.env

/** The limit of concurrent attempts. */
export const atOnce = 128
const pool = new Pool(receiver, { connections: atOnce, pipelining: 1, headersTimeout: 15_000, bodyTimeout: 15_000 })

/** Signs like Gatehouse (both signatures), posts, and returns the outcome; throws unless the response is a 2xx. */
export const deliver = (id: string, { body, secret, url }: Webhook): Promise<Outcome> => {
  const timestamp = String(Math.floor(Date.now() / 1000))
  const standard = createHmac("sha256", secret).update(`${id}.${timestamp}.${body}`).digest("base64")
  const since = performance.now()
  return new Promise((resolve, reject) => {
    let status = 0
    pool.dispatch(
      {
        method: "POST",
        path: new URL(url).pathname,
        headers: {
          "content-type": "application/json",
          "user-agent": "peer",
          "x-webhook-signature": createHmac("sha256", secret).update(body).digest("hex"),
          "x-event-type": "job.completed",
          "webhook-id": id,
          "webhook-timestamp": timestamp,
          "webhook-signature": `v1,${standard}`,
        },
        body,
      },
      {
        onRequestStart: () => {},
        onResponseStart: (_controller, code) => {
          status = code
        },
        onResponseData: () => {},
        onResponseEnd: () => {
          const duration = Math.round(performance.now() - since)
          if (status >= 200 && status < 300) resolve({ status, duration })
          else reject(new Error(`It answered ${status}`))
        },
        onResponseError: (_controller, error) => reject(error),
      },
    )
  })
}

/** A queue, as the bench uses it. */
export interface Queue {
  /** Inserts these webhooks without sending them. */
  readonly fill: (webhooks: ReadonlyArray<Webhook>) => Promise<void>
  /** Inserts one webhook, for a request that waits for it. */
  readonly add?: (webhook: Webhook) => Promise<unknown>
  /** Starts to send. */
  readonly start: () => Promise<void>
  /** Stops sending, when the queue is empty. */
  readonly stop: () => Promise<void>
}

const keyHash = hash("sha256", "svc_peer")
const published = {
  type: "object",
  required: ["type", "data"],
  additionalProperties: false,
  properties: { type: { type: "string", pattern: "^[a-z0-9_-]+([.][a-z0-9_-]+)+$", maxLength: 128 }, data: {} },
}
const text = { type: "string" }
const accepted = {
  type: "object",
  properties: { success: { type: "boolean" }, event_id: text, message: text },
}

/** The route that publishes an event as Gatehouse's does: a key from memory, the body of the webhook, one insert. */
const servePublish = (app: FastifyInstance, add: NonNullable<Queue["add"]>) =>
  app.post<{ Body: { type: string; data: unknown } }>(
    "/v1/events/publish",
    { schema: { body: published, response: { 200: accepted } } },
    async (request, reply) => {
      if (hash("sha256", String(request.headers["x-api-key"])) !== keyHash) return reply.code(401).send({})
      const { data, type } = request.body
      const id = ulid()
      const nonce = randomBytes(16).toString("hex")
      const event = { event: type, event_id: id, nonce, created_at: new Date().toISOString(), data }
      await add({ url: `${receiver}/0`, body: JSON.stringify(event), secret: SECRET })
      return { success: true, event_id: id, message: "Event published" }
    },
  )

/**
 * Serves the program of a queue: POST /fill with `count`, `body` and `paths`; POST /start; POST /stop;
 * /v1/events/publish.
 */
export const serve = async ({ add, fill, start, stop }: Queue): Promise<void> => {
  const app = Fastify({ bodyLimit: 10_000_000 })
  app.get("/healthz", () => "ok")
  app.post<{ Body: { count: number; body: string; paths: ReadonlyArray<string> } }>(
    "/fill",
    async ({ body: order }) => {
      const { body, count, paths } = order
      for (let done = 0; done < count; done += 1_000) {
        const size = Math.min(1_000, count - done)
        await fill(
          Array.from({ length: size }, (_, n) => ({
            url: receiver + paths[(done + n) % paths.length]!,
            body,
            secret: SECRET,
          })),
        )
      }
      return {}
    },
  )
  app.post("/start", async () => {
    await start()
    return {}
  })
  app.post("/stop", async () => {
    await stop()
    return {}
  })
  if (add !== undefined) servePublish(app, add)
  process.stdin.resume().once("end", () => process.exit())
  await app.listen({ port: Number(PORT), host: "127.0.0.1" })
}
