import { existsSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { cpuOf } from "./cpu.ts"
import type { Sender } from "./drain.ts"
import { addDeliveries, countPending, eventBody, pointAside, pointEndpoints } from "./fill.ts"
import { startPeer } from "./peer.ts"
import { folder, type Postgres } from "./postgres.ts"
import { freePort, start } from "./process.ts"
import type { Receiver } from "./receiver.ts"
import type { Scope } from "./scope.ts"
import { makeTenant, post, startService, times } from "./service.ts"

/** The secret that signs every webhook here. */
export const secret = "a-signing-secret-of-the-benchmark"

/** What the senders of a scenario share. */
export interface Surroundings {
  readonly scope: Scope
  readonly postgres: Postgres
  readonly receiver: Receiver
}

/**
 * The service, with an org that has this many endpoints at the receiver. They are created through its interface; their
 * url is then set by SQL, because guarded mode accepts only https.
 */
export const gatehouse = async (
  { postgres, receiver, scope }: Surroundings,
  name: string,
  endpoints: number,
  environment: Readonly<Record<string, string>> = {},
) => {
  const home = folder(scope)
  const url = await postgres.database(name)
  const query = await postgres.connect(url)
  const service = await startService(scope, home, {
    DATABASE_URL: url,
    ALLOW_PRIVATE_NETWORKS: "true",
    ...environment,
  })
  const tenant = async (count: number) => {
    const { key, orgId } = await makeTenant(service)
    const endpoint = { url: "https://localhost/", signing_secret: secret }
    await times(count, () => service.call(key, "/v1/webhooks/create", endpoint))
    return { key, orgId }
  }
  const { orgId } = await tenant(endpoints)
  await pointEndpoints(query, orgId, receiver.url)
  const waker = await tenant(1)
  await pointAside(query, waker.orgId, receiver.url)
  /** Finishes a job: the worker looks at once, and claims other due deliveries too. */
  const wake = async () => {
    const { job_id } = await service.call(waker.key, "/v1/jobs/create", { workflow: "bench" })
    await service.call(waker.key, "/v1/jobs/complete", { job_id })
  }
  const sender: Sender = {
    pid: service.pid,
    databaseCpu: postgres.cpu,
    fill: (count) => addDeliveries(query, orgId, count / endpoints, "pending"),
    start: async () => {
      await query("COMMIT")
      await wake()
    },
    stop: async () => {
      for (let n = 0; n < 100 && (await countPending(query)) > 0; n++) await sleep(100)
      const left = await countPending(query)
      if (left > 0) throw new Error(`${left} deliveries came and were not recorded`)
    },
  }
  return { sender, service, query, orgId }
}

/** A program of bench/peers, which also takes events at `/v1/events/publish`. */
export interface PeerSender extends Sender {
  readonly url: string
}

/** A program of bench/peers that sends from a queue on PostgreSQL. */
export const peerOnPostgres = async (
  { postgres, receiver, scope }: Surroundings,
  program: string,
  tuned: boolean,
): Promise<PeerSender> => {
  const url = await postgres.database(`${program}${tuned ? 1 : 0}`.toLowerCase())
  const query = await postgres.connect(url)
  return peer(scope, program, tuned, { DATABASE_URL: url }, receiver, postgres.cpu, async () => {
    await query("VACUUM ANALYZE")
  })
}

/** The program of bench/peers that stores nothing. */
export const noQueue = ({ receiver, scope }: Surroundings): Promise<PeerSender> =>
  peer(
    scope,
    "noQueue",
    true,
    {},
    receiver,
    () => 0,
    async () => {},
  )

/**
 * BullMQ on its own Redis, which syncs the log of its commands every second, as BullMQ's page on production advises.
 */
export const bullmq = async ({ receiver, scope }: Surroundings, tuned: boolean): Promise<PeerSender> => {
  const home = folder(scope)
  const port = String(await freePort())
  const log = join(home, "redis.log")
  const redis = await start(scope, {
    command: [
      "redis-server",
      "--port",
      port,
      "--bind",
      "127.0.0.1",
      "--dir",
      home,
      "--appendonly",
      "yes",
      "--save",
      "",
    ],
    log,
    ready: () => existsSync(log) && readFileSync(log, "utf8").includes("Ready to accept connections"),
  })
  return peer(
    scope,
    "bullmq",
    tuned,
    { REDIS_PORT: port },
    receiver,
    () => cpuOf(redis.pid),
    async () => {},
  )
}

const paths = Array.from({ length: 100 }, (_, n) => `/${n}`)

const peer = async (
  scope: Scope,
  program: string,
  tuned: boolean,
  environment: Readonly<Record<string, string>>,
  receiver: Receiver,
  databaseCpu: () => number,
  settle: () => Promise<void>,
): Promise<PeerSender> => {
  const started = await startPeer(scope, folder(scope), program, {
    SECRET: secret,
    URL: receiver.url,
    TUNED: tuned ? "1" : "0",
    ...environment,
  })
  const order = async (path: string, json = {}) => void (await post(started.url + path, {}, json))
  return {
    url: started.url,
    pid: started.pid,
    databaseCpu,
    fill: async (count) => {
      await order("/fill", { count, paths, body: eventBody })
      await settle()
    },
    start: () => order("/start"),
    stop: () => order("/stop"),
  }
}
