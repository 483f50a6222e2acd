import { setTimeout as sleep } from "node:timers/promises"
import { post } from "../../support/service.ts"
import type { Client, Target } from "./client.ts"

/** One wave of an attack. The next wave starts when the last one has ended, and at least a second after it started. */
export type Attack = (client: Client, target: Target) => Promise<unknown>

const MiB = 1024 * 1024
const json = JSON.stringify
const crowd = (size: number, one: (n: number) => Promise<unknown>) =>
  Promise.all(Array.from({ length: size }, (_, n) => one(n)))

/** JSON of this many bytes, with as many values as possible. */
const manyValues = (bytes: number) => `{"workflow":"w","input":[${"{},".repeat(bytes / 3 - 20)}{}]}`

/** Repeats a request for a second on each of `size` connections. */
const clients = (size: number, one: () => Promise<unknown>) =>
  crowd(size, async () => {
    const until = performance.now() + 1_000
    while (performance.now() < until) await one()
  })

const head = (path: string, ...lines: ReadonlyArray<string>) =>
  [`POST ${path} HTTP/1.1`, "host: 127.0.0.1", "content-type: application/json", ...lines, "", ""].join("\r\n")

/** Bodies that never end, kept open for five seconds. */
const unfinished = async ({ close, raw }: Client, request: string) => {
  const all = crowd(800, () => raw(request, true))
  await Promise.race([all, sleep(5_000)])
  close()
  await all
}

const page = `# Page\n\n${"Some words of a manual, of keys and of hooks. ".repeat(100)}\n`
const chatBody = (n: number) => {
  const pages = Object.fromEntries(
    Array.from({ length: Math.floor((7.9 * 1e6) / (page.length + 30)) }, (_, at) => [`page-${n}-${at}`, page]),
  )
  return Buffer.from(json({ messages: [{ role: "user", content: "what is a key?" }], docsPages: pages }))
}
let chats: ReadonlyArray<Buffer> | undefined

const noSuchDate = json({ workflow: "w", cron: "0 0 30 2 *", timezone: "Australia/Lord_Howe" })
const result = "x".repeat(MiB - 200)

export const attacks = {
  jobLists: ({ ask }) => crowd(10, () => ask("/v1/jobs/list", json({ limit: 100 }))),
  scheduleLists: ({ ask }) => crowd(10, () => ask("/v1/schedules/list", "{}")),
  impossibleDates: ({ ask }) => crowd(30, () => ask("/v1/schedules/create", noSuchDate)),
  strangersBodies: (client) =>
    unfinished(client, head("/api/v0/keys/validate", "content-length: 1000000") + " ".repeat(900_000)),
  tenantsBodies: (client, { key }) =>
    unfinished(
      client,
      head("/v1/jobs/create", `x-api-key: ${key}`, "content-length: 1000000") + `{"input":"${"x".repeat(900_000)}`,
    ),
  docs: ({ raw }) => raw("GET /docs HTTP/1.1\r\nhost: a\r\n\r\n".repeat(1_000), true),
  docsUnread: async ({ close, raw }) => {
    const all = crowd(20, () => raw("GET /docs HTTP/1.1\r\nhost: a\r\n\r\n".repeat(1_000), false))
    await Promise.race([all, sleep(5_000)])
    close()
    await all
  },
  claims: ({ ask }) => crowd(3_000, () => ask("/v1/jobs/claim", json({ workflow: "none", wait_seconds: 30 }))),
  manyJobs: ({ ask }) =>
    Promise.all([
      clients(20, () => ask("/v1/jobs/list", json({ workflow: "none" }))),
      clients(20, () => ask("/v1/jobs/claim", json({ workflow: "none" }))),
    ]),
  largeResult: async ({ ask }, { key, url }) => {
    const made = await post(`${url}/v1/jobs/create`, { "x-api-key": key }, { workflow: "w" }).catch(() => undefined)
    if (made !== undefined) await ask("/v1/jobs/complete", json({ job_id: made["job_id"], result }))
  },
  chats: ({ ask }) =>
    crowd(12, (n) => ask("/api/svc/chat", (chats ??= Array.from({ length: 12 }, (_, n) => chatBody(n)))[n]!)),
  tests: ({ ask }, { endpoints }) =>
    crowd(3_000, (n) => ask("/v1/webhooks/test", json({ id: endpoints[n % endpoints.length] }))),
  manyValues: ({ ask }) => crowd(10, () => ask("/v1/jobs/create", manyValues(MiB))),
  strangersValues: ({ ask }) => crowd(10, () => ask("/api/v0/register-deployment", manyValues(MiB), {})),
} satisfies Record<string, Attack>

export type AttackName = keyof typeof attacks
