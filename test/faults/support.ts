import { assert } from "@effect/vitest"
import { Effect, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { setTimeout as sleep } from "node:timers/promises"
import { Database } from "#src/infrastructure/database/Database.ts"
import { verifyWebhook } from "#src/sdk/webhooks.ts"
import { adminClient, freshFolder, freshPostgres } from "../support/databases.ts"
import { type Service, startService } from "../support/process.ts"
import { encryptionKey } from "../support/server.ts"

const pending = (sql: SqlClient.SqlClient) => sql<{ id: string; claimed: boolean }>`
  SELECT delivery_id AS id, claim_id IS NOT NULL AS claimed FROM pending_deliveries`
const idsOf = (rows: ReadonlyArray<{ readonly id: string }>): ReadonlySet<string> => new Set(rows.map(({ id }) => id))

/** Short times, so that the work of a crashed process is soon claimed again: a lease is 6.5 seconds. */
export const hurried = { WEBHOOK_TIMEOUT: "500ms", WEBHOOK_RETRY_DELAYS: "300ms,300ms,300ms,300ms,300ms,300ms" }

/** Where the service keeps its data. */
export interface Place {
  readonly environment: Readonly<Record<string, string>>
  /** The deliveries that may have been in flight when the service was killed. */
  readonly inFlight: Effect.Effect<ReadonlySet<string>>
}

export const inFolder = (dataDir: string): Place => ({
  environment: { DATA_DIR: dataDir },
  // All that are not recorded: the latest claims are lost with the process.
  inFlight: Effect.flatMap(SqlClient.SqlClient, pending).pipe(
    Effect.map(idsOf),
    Effect.provide(Database.layer({ dataDir })),
    Effect.orDie,
  ),
})

export const onPostgres = (url: string): Place => ({
  environment: { DATABASE_URL: url, ENCRYPTION_KEY: encryptionKey },
  inFlight: Effect.gen(function* () {
    const sql = yield* adminClient(url)
    // PostgreSQL still executes what the killed process had sent.
    const pids = sql`SELECT pid FROM pg_stat_activity
      WHERE datname = current_database() AND application_name LIKE 'gatehouse%'`
    yield* Effect.repeat(Effect.delay(pids, "20 millis"), { until: (pids) => pids.length === 0 })
    return idsOf((yield* pending(sql)).filter(({ claimed }) => claimed))
  }).pipe(Effect.scoped, Effect.orDie),
})

/** A new database of each kind. */
export const places = {
  embedded: Effect.map(freshFolder(), inFolder),
  postgres: Effect.map(freshPostgres(), onPostgres),
}

const secret = "whsec_Z2F0ZWhvdXNl"

export interface Receipt {
  /** `webhook-id`, the same in every attempt of a delivery. */
  readonly id: string
  readonly endpoint: string
  readonly jobId: string
  readonly body: string
  /** The time of arrival, in milliseconds of the monotonic clock. */
  readonly at: number
}

/** A receiver that verifies and records each webhook, and answers with the status that `answer` returns. */
export const makeVerifier = (answer: (receipt: Receipt) => Promise<number> | number = () => 200) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.promise(async () => {
        const receipts: Array<Receipt> = []
        const behaviour = { answer }
        const server = createServer((request, response) => {
          // Another test may still ask whether a server is ready that had this port before.
          if (request.method !== "POST") return void response.writeHead(404).end()
          const chunks: Array<Buffer> = []
          request.on("data", (chunk: Buffer) => chunks.push(chunk))
          request.on("end", async () => {
            const body = Buffer.concat(chunks).toString()
            // The tests may step the service's clock.
            const tolerance = { toleranceSeconds: 7_200 }
            const { deliveryId, event } = await verifyWebhook({ headers: request.headers, body }, secret, tolerance)
            const receipt = {
              id: deliveryId,
              endpoint: request.url!,
              jobId: event["job_id"] as string,
              body,
              at: performance.now(),
            }
            receipts.push(receipt)
            const status = await behaviour.answer(receipt)
            response.writeHead(status).end()
          })
        })
        await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
        return { server, receipts, behaviour }
      }),
      ({ server }) =>
        Effect.sync(() => {
          server.close(() => {})
          server.closeAllConnections()
        }),
    ),
    ({ behaviour, receipts, server }) => ({
      url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
      receipts,
      behaviour,
      arrived: (count: number) => until(() => receipts.length >= count),
    }),
  )
export type Verifier = Effect.Success<ReturnType<typeof makeVerifier>>

/** Waits for a condition, at most 30 seconds. */
export const until = (condition: () => boolean) =>
  Effect.promise(async () => {
    for (let n = 0; n < 6_000 && !condition(); n++) await sleep(5)
    assert.isTrue(condition(), "in 30 seconds")
  })

/** The fields of the answers of the operations that the tests use. */
interface Answer {
  readonly job_id: string
  /** The status of a job. */
  readonly status: string
  readonly jobs: ReadonlyArray<{ readonly status: string }>
  readonly deliveries: ReadonlyArray<{ readonly state: string; readonly attempts: number }>
  /** The number of recorded attempts of one delivery. */
  readonly attempts: number
}

/** Posts to the webhook interface until the answer is a 200, however often the service is killed before. */
const post = (service: () => Service, key: string, path: string, json: object) =>
  Effect.suspend(() => service().send("POST", `/v1/${path}`, { json, headers: { "x-api-key": key } })).pipe(
    Effect.filterOrFail(({ status }) => status === 200),
    Effect.retry(Schedule.max([Schedule.spaced("50 millis"), Schedule.recurs(600)])),
    Effect.map(({ json }) => json as Answer),
    Effect.orDie,
  )

/** A tenant with endpoints at the receiver's paths, and jobs to finish. */
export const makeTenant = Effect.fnUntraced(function* (service: () => Service) {
  const platform = (path: string, json: object) =>
    Effect.map(service().send("POST", `/api/v0/${path}`, { json }), (made) => made.json as Record<string, string>)
  const { orgId } = yield* platform("orgs", { name: "faults" })
  const { projectId } = yield* platform("projects", { name: "faults", orgId })
  const { key } = yield* platform("keys", { name: "faults", projectId })
  const call = (path: string, json: object) => post(service, key!, path, json)
  const pending = Effect.map(call("webhooks/deliveries/list", { state: "pending", limit: 5 }), (_) => _.deliveries)
  const finish = Effect.fnUntraced(function* (n: number) {
    const { job_id } = yield* call("jobs/create", { workflow: "w", idempotency_key: `${n}` })
    yield* call("jobs/complete", { job_id, result: { n, text: "x".repeat(400) } })
    return job_id
  })
  return {
    orgId: orgId!,
    projectId: projectId!,
    key: key!,
    call,
    endpoint: (url: string, active = true) =>
      call("webhooks/create", { url, signing_secret: secret, description: "", active }),
    /** Creates and completes a job; returns its id once the completion is answered. */
    finish,
    /** Finishes that many jobs, eight at a time. */
    finishMany: (count: number) =>
      Effect.forEach(
        Array.from({ length: count }, (_, n) => n),
        finish,
        { concurrency: 8 },
      ),
    /** Waits until no delivery is pending; after a minute dies with those that still are. */
    settled: Effect.repeat(Effect.delay(pending, "50 millis"), { until: (_) => _.length === 0 }).pipe(
      Effect.timeoutOrElse({
        duration: "1 minute",
        orElse: () => Effect.flatMap(pending, (_) => Effect.die(`Still pending: ${JSON.stringify(_, null, 1)}`)),
      }),
    ),
  }
})

export type Tenant = Effect.Success<ReturnType<typeof makeTenant>>

/** A service that can be killed and started again with the same data. */
export const makeRestartable = Effect.fnUntraced(function* (environment: Readonly<Record<string, string>>) {
  const variables = { ...hurried, ...environment }
  let service = yield* startService(variables)
  return {
    current: () => service,
    restart: Effect.map(startService(variables), (next) => {
      service = next
    }),
  }
})

export type Restartable = Effect.Success<ReturnType<typeof makeRestartable>>

/**
 * Asserts that every job reached every endpoint under one `webhook-id` with one body, as often as it is recorded, plus
 * at most once for each kill at which it was in flight. Returns the number of attempts beyond the recorded ones.
 */
export const assertDelivered = Effect.fnUntraced(function* (
  { call }: Tenant,
  receipts: ReadonlyArray<Receipt>,
  jobs: ReadonlyArray<string>,
  endpoints: ReadonlyArray<string>,
  inFlightAtKills: ReadonlyArray<ReadonlySet<string>> = [],
) {
  const byId = Map.groupBy(receipts, ({ id }) => id)
  const delivered = [...byId.values()].map(([first]) => `${first!.jobId} ${first!.endpoint}`)
  const expected = jobs.flatMap((job) => endpoints.map((endpoint) => `${job} ${endpoint}`))
  assert.deepStrictEqual(delivered.sort(), expected.sort())
  let duplicates = 0
  for (const [id, attempts] of byId) {
    assert.strictEqual(new Set(attempts.map(({ body }) => body)).size, 1)
    if (attempts.length === 1) continue
    const recorded = (yield* call("webhooks/deliveries/get", { delivery_id: id })).attempts
    const excused = inFlightAtKills.filter((ids) => ids.has(id)).length
    const times = attempts.map(({ at }) => Math.round(at - attempts[0]!.at)).join(", ")
    assert.isAtMost(attempts.length, recorded + excused, `${id}, in flight at ${excused} kills, came at ${times} ms`)
    duplicates += attempts.length - recorded
  }
  return duplicates
})
