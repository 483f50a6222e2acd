import { type Drain, drain, type Sender, summary } from "../support/drain.ts"
import { has } from "../support/load.ts"
import { folder, startPostgres } from "../support/postgres.ts"
import { startReceiver } from "../support/receiver.ts"
import { amount, atLeast, figure, type Scenario } from "../support/result.ts"
import { scoped } from "../support/scope.ts"
import { bullmq, gatehouse, noQueue, peerOnPostgres, secret, type Surroundings } from "../support/senders.ts"

const oneEndpoint = "Gatehouse, one endpoint, its cap lifted to 128"
const manyEndpoints = "Gatehouse, 100 endpoints, the normal cap"
const tunedPeers = ["pg-boss, tuned", "graphile-worker, tuned"]

type Subject = (around: Surroundings) => Promise<Sender>

/**
 * Starts a subject with its own database and receiver, and drains it twice; the second time counts. Processes of one
 * program differ by up to a sixth as long as they run, so each round starts a new one.
 */
const measure = (subject: Subject, count: number): Promise<Drain> =>
  scoped(async (scope) => {
    const postgres = await startPostgres(scope)
    const receiver = await startReceiver(scope, folder(scope), secret)
    const sender = await subject({ scope, postgres, receiver })
    await drain(sender, receiver, count)
    return drain(sender, receiver, count)
  })

/** Webhooks from the database to a receiver that verifies, beside other queues. */
export const deliveries: Scenario = {
  name: "deliveries",
  title: "Deliver webhooks",
  about:
    "Signed POSTs of about 570 bytes that wait in the database, all due at once, to a receiver that verifies the " +
    "signature; from the first that came to the last. CPU is for each, outcomes recorded.",
  quick: { rounds: 1 },
  run: async (_, { quick, rounds, say }) => {
    const count = quick ? 10_000 : 100_000
    const redis = has("redis-server")
    const senders: Record<string, Subject> = {
      [oneEndpoint]: async (around) =>
        (await gatehouse(around, "one", 1, { WEBHOOK_ENDPOINT_CONCURRENCY: "128" })).sender,
      [manyEndpoints]: async (around) => (await gatehouse(around, "many", 100)).sender,
      "pg-boss, tuned": (around) => peerOnPostgres(around, "pgBoss", true),
      "graphile-worker, tuned": (around) => peerOnPostgres(around, "graphileWorker", true),
      ...(redis ? { "BullMQ, tuned": (around) => bullmq(around, true) } : {}),
      "no queue: sent from memory, kept nowhere": noQueue,
    }
    // So slow that fewer webhooks must be enough.
    const documented: Record<string, Subject> = quick
      ? {}
      : {
          "pg-boss, as documented": (around) => peerOnPostgres(around, "pgBoss", false),
          "graphile-worker, as documented": (around) => peerOnPostgres(around, "graphileWorker", false),
          ...(redis ? { "BullMQ, as documented": (around) => bullmq(around, false) } : {}),
        }
    const all = { ...senders, ...documented }
    const found = new Map<string, Array<Drain>>(Object.keys(all).map((name) => [name, []]))
    for (let round = 1; round <= rounds; round++) {
      for (const [name, subject] of Object.entries(all)) {
        const made = await measure(subject, name in senders ? count : 2_000)
        found.get(name)!.push(made)
        say(`round ${round}: ${name}: ${made.perSecond.toFixed(0)} a second`)
      }
    }
    const medians = [...found].map(([name, drains]) => [name, summary(drains)] as const)
    const rate = (name: string) => medians.find(([known]) => known === name)![1].perSecond
    const best = Math.max(...tunedPeers.map(rate))
    return {
      tables: [
        {
          title: `Deliveries, ${amount(count)} a round`,
          columns: ["", "a second", "× best tuned peer on PostgreSQL", "CPU µs", "database CPU µs", "receiver's core"],
          rows: medians.map(([name, { cpu, databaseCpu, perSecond, receiver }]) => [
            name,
            figure(perSecond),
            figure(perSecond / best),
            figure(cpu),
            figure(databaseCpu),
            `${(receiver * 100).toFixed(0)} %`,
          ]),
        },
      ],
      bars: [oneEndpoint, manyEndpoints].flatMap((name) =>
        tunedPeers.map((peer) => atLeast(`${name} ÷ ${peer}`, 1.2, rate(name) / rate(peer))),
      ),
      notes: [
        ...(quick ? ["The peers as documented are measured in full runs only."] : ["As documented, 2,000 a round."]),
        ...(redis ? [] : ["BullMQ was skipped: redis-server is not installed."]),
      ],
    }
  },
}
