import { execFile } from "node:child_process"
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import { cpuOf } from "./cpu.ts"
import { folder, startPostgres } from "./postgres.ts"
import { type Receiver, startReceiver } from "./receiver.ts"
import { type Scope, scoped } from "./scope.ts"
import { makeTenant, startService } from "./service.ts"
import { bullmq, peerOnPostgres, type PeerSender, secret, type Surroundings } from "./senders.ts"
import { medianOf } from "./stats.ts"

/** Connections that publish. */
export const connections = 32
/** Events of a batch. */
export const batchSize = 100
/** The data of an event, whose body has about 570 bytes. */
const data = { rows: 3, text: "x".repeat(400) }

/** The requests after which there is one event more, or a batch of them. */
interface Steps {
  readonly events: number
  readonly requests: ReadonlyArray<{ readonly path: string; readonly json: object }>
}

const one = { type: "invoice.paid", data }
const single: Steps = { events: 1, requests: [{ path: "/v1/events/publish", json: one }] }
const batch: Steps = {
  events: batchSize,
  requests: [{ path: "/v1/events/publish-batch", json: { events: Array.from({ length: batchSize }, () => one) } }],
}
const pair: Steps = {
  events: 1,
  requests: [
    { path: "/v1/jobs/create", json: { workflow: "bench" } },
    { path: "/v1/jobs/complete", json: { job_id: "{id}", result: data } },
  ],
}

/** What publishing for some seconds took. */
export interface Published {
  /** Events that were accepted a second. */
  readonly accepted: number
  /** Events a second from the first arrival to the last. */
  readonly delivered: number
  /** CPU milliseconds for an event, published, delivered and recorded: of the service, and of its database. */
  readonly cpu: number
  readonly databaseCpu: number
}

/** Something that takes events by HTTP and delivers them to a receiver. */
interface Publisher {
  readonly url: string
  readonly key: string
  readonly pid: number
  readonly databaseCpu: () => number
  readonly receiver: Receiver
}

/** How long after the last arrival its record is still counted to the CPU, in milliseconds. */
const recordingMillis = 500

const run = promisify(execFile)
const loader = fileURLToPath(new URL("./publishLoader.ts", import.meta.url))
let files = 0

/** Repeats the steps for some seconds, and waits until all events have arrived. */
export const measure = async (
  home: string,
  { databaseCpu, key, pid, receiver, url }: Publisher,
  steps: Steps,
  seconds: number,
): Promise<Published> => {
  const { host, port } = new URL(url)
  const file = join(home, `publish-${files++}`)
  const head = (path: string) =>
    `POST ${path} HTTP/1.1\r\nhost: ${host}\r\ncontent-type: application/json\r\nx-api-key: ${key}\r\n`
  writeFileSync(
    file,
    JSON.stringify(steps.requests.map(({ json, path }) => ({ head: head(path), body: JSON.stringify(json) }))),
  )
  await receiver.reset()
  const before = { own: cpuOf(pid), database: databaseCpu() }
  const { stdout } = await scoped(async (scope) => {
    const loading = run(process.execPath, [loader], {
      env: {
        PATH: process.env.PATH,
        PORT: port,
        CONNECTIONS: String(connections),
        MILLIS: String(seconds * 1000),
        FILE: file,
      },
      timeout: (seconds + 60) * 1000,
    })
    scope.defer(() => loading.child.kill())
    return await loading
  })
  const { millis, rounds } = JSON.parse(stdout) as { readonly millis: number; readonly rounds: number }
  const events = rounds * steps.events
  const { first, last } = await receiver.until(events)
  await sleep(recordingMillis)
  const { count } = await receiver.received()
  if (count > events) throw new Error(`${count - events} of ${events} events came twice`)
  return {
    accepted: (events / millis) * 1000,
    delivered: ((events - 1) / (last - first)) * 1000,
    cpu: ((cpuOf(pid) - before.own) / events) * 1000,
    databaseCpu: ((databaseCpu() - before.database) / events) * 1000,
  }
}

/** The medians of some rounds. */
export const summary = (rounds: ReadonlyArray<Published>): Published => ({
  accepted: medianOf(rounds, (round) => round.accepted),
  delivered: medianOf(rounds, (round) => round.delivered),
  cpu: medianOf(rounds, (round) => round.cpu),
  databaseCpu: medianOf(rounds, (round) => round.databaseCpu),
})

/** A publisher with its steps, by name. */
export interface Subjects {
  readonly [name: string]: { readonly publisher: Publisher; readonly steps: Steps }
}

const surroundings = async (scope: Scope): Promise<Surroundings> => ({
  scope,
  postgres: await startPostgres(scope),
  receiver: await startReceiver(scope, folder(scope), secret),
})

/** The service of a checkout with one endpoint; in open mode, which takes the receiver's http url. */
const gatehouse = async (scope: Scope, checkout?: string): Promise<Publisher> => {
  const { postgres, receiver } = await surroundings(scope)
  const environment = { DATABASE_URL: await postgres.database("gatehouse"), ADMIN_TOKEN: "" }
  const service = await startService(scope, folder(scope), environment, checkout)
  const { key } = await makeTenant(service)
  await service.call(key, "/v1/webhooks/create", { url: receiver.url, signing_secret: secret })
  return { url: service.url, key, pid: service.pid, databaseCpu: postgres.cpu, receiver }
}

/** A queue behind a Fastify route of its own, which also delivers. */
const peer = async (scope: Scope, start: (around: Surroundings) => Promise<PeerSender>): Promise<Publisher> => {
  const around = await surroundings(scope)
  const sender = await start(around)
  await sender.start()
  return { ...sender, key: "svc_peer", receiver: around.receiver }
}

export const ours = {
  single: "Gatehouse, publish",
  batch: `Gatehouse, publish-batch of ${batchSize}`,
  pair: "Gatehouse, create + complete",
}
export const before = "the other checkout, create + complete"
export const pgBoss = "pg-boss, tuned, behind Fastify"

/** Starts all subjects, each with a database server and a receiver of its own. */
export const startSubjects = async (
  scope: Scope,
  { hasRedis, other }: { readonly hasRedis: boolean; readonly other: string | undefined },
): Promise<Subjects> => {
  const publisher = await gatehouse(scope)
  return {
    [ours.single]: { publisher, steps: single },
    ...(other === undefined ? {} : { [before]: { publisher: await gatehouse(scope, other), steps: pair } }),
    [ours.pair]: { publisher, steps: pair },
    [pgBoss]: { publisher: await peer(scope, (around) => peerOnPostgres(around, "pgBoss", true)), steps: single },
    "graphile-worker, tuned, behind Fastify": {
      publisher: await peer(scope, (around) => peerOnPostgres(around, "graphileWorker", true)),
      steps: single,
    },
    ...(hasRedis
      ? {
          "BullMQ, tuned, behind Fastify": {
            publisher: await peer(scope, (around) => bullmq(around, true)),
            steps: single,
          },
        }
      : {}),
    [ours.batch]: { publisher, steps: batch },
  }
}
