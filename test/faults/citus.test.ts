import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { shardOf } from "#src/infrastructure/database/shards.ts"
import { citusUrl, freshCitus, moveShard, moveNode, nodeOfShard, startNode, stopNode } from "../support/citus.ts"
import { proxied } from "../support/proxy.ts"
import {
  assertDelivered,
  makeRestartable,
  makeTenant,
  makeVerifier,
  onPostgres,
  type Tenant,
  until,
} from "./support.ts"

/** How long a worker is stopped, in milliseconds. */
const outageMillis = 5_000
/** What a request may take on a busy machine besides the outage. */
const marginMillis = 5_000
const jobsOfOrg = 200
/** How long a worker does not answer, in milliseconds: far longer than the service needs to notice it. */
const silenceMillis = 16_000

/** A tenant whose shard is on a node, or is not. */
const tenantOn = Effect.fnUntraced(function* (
  makeOne: Effect.Effect<Tenant, Error>,
  coordinator: string,
  isWanted: (node: string) => boolean,
) {
  while (true) {
    const tenant = yield* makeOne
    if (isWanted(yield* nodeOfShard(coordinator, shardOf(tenant.orgId, 3)))) return tenant
  }
})

/** Repeats an operation until the scope closes; the longest time from one success to the next, in milliseconds. */
const longestGap = Effect.fnUntraced(function* <A>(operation: Effect.Effect<A>) {
  let [last, longest] = [performance.now(), 0]
  const success = Effect.sync(() => {
    longest = Math.max(longest, performance.now() - last)
    last = performance.now()
  })
  yield* Effect.forkScoped(Effect.forever(Effect.andThen(Effect.delay(operation, "50 millis"), success)))
  return Effect.sync(() => Math.max(longest, performance.now() - last))
})

// The kills need a real process, and the outage a cluster.
describe.skipIf(citusUrl === undefined)("Citus", () => {
  it.live("400 jobs under three kill -9 and an outage of one worker: nothing is lost, other nodes' orgs continue", () =>
    Effect.gen(function* () {
      const url = yield* freshCitus("three")
      const service = yield* makeRestartable(onPostgres(url).environment)
      const verifier = yield* makeVerifier()
      const stopped = yield* nodeOfShard(url, 0)
      const makeOne = Effect.tap(makeTenant(service.current), ({ endpoint }) => endpoint(`${verifier.url}/a`))
      const here = yield* tenantOn(makeOne, url, (node) => node === stopped)
      const there = yield* tenantOn(makeOne, url, (node) => node !== stopped)
      const kill = Effect.andThen(
        Effect.suspend(() => service.current().end("SIGKILL")),
        service.restart,
      )

      const work = yield* Effect.forkChild(
        Effect.all([here.finishMany(jobsOfOrg), there.finishMany(jobsOfOrg)], { concurrency: 2 }),
      )
      yield* verifier.arrived(40)
      yield* kill
      yield* verifier.arrived(80)
      yield* stopNode(stopped)
      // The service starts without the node.
      yield* kill
      const gap = yield* Effect.gen(function* () {
        let n = jobsOfOrg
        const gap = yield* longestGap(Effect.suspend(() => there.finish(n++)))
        yield* Effect.sleep(outageMillis)
        yield* startNode(stopped)
        return yield* gap
      }).pipe(Effect.scoped)
      yield* verifier.arrived(160)
      yield* kill
      const [jobsHere, jobsThere] = yield* Fiber.join(work)
      yield* Effect.all([here.settled, there.settled])

      for (const [tenant, jobs] of [
        [here, jobsHere],
        [there, jobsThere],
      ] as const) {
        assert.strictEqual(jobs.length, jobsOfOrg)
        const own = new Set(jobs)
        const receipts = verifier.receipts.filter(({ jobId }) => own.has(jobId))
        const all = new Set(receipts.map(({ id }) => id))
        // In flight at any of the kills, or when the node was stopped.
        yield* assertDelivered(tenant, receipts, jobs, ["/a"], [all, all, all, all])
      }
      assert.isBelow(gap, outageMillis + marginMillis)
      yield* Effect.log(`the longest gap of the other node's org: ${Math.round(gap)} ms`)
    }).pipe(Effect.scoped),
  )

  it.live("a shard moves to another worker and back while orgs work: nothing is lost or sent twice", () =>
    Effect.gen(function* () {
      const url = yield* freshCitus("three")
      const service = yield* makeRestartable(onPostgres(url).environment)
      const verifier = yield* makeVerifier()
      const makeOne = Effect.tap(makeTenant(service.current), ({ endpoint }) => endpoint(`${verifier.url}/a`))
      const tenants = yield* Effect.forEach([0, 1], (shard) =>
        Effect.repeat(makeOne, { until: ({ orgId }) => shardOf(orgId, 3) === shard }),
      )
      const moves = { areDone: false }
      const workOf = Effect.fnUntraced(function* ({ finish }: Tenant) {
        const jobs: Array<string> = []
        while (!moves.areDone) jobs.push(yield* finish(jobs.length))
        return jobs
      })

      const work = yield* Effect.forkChild(Effect.forEach(tenants, workOf, { concurrency: 2 }))
      yield* verifier.arrived(40)
      const [from, to] = yield* Effect.forEach([0, 1], (shard) => nodeOfShard(url, shard))
      assert.notStrictEqual(from, to)
      yield* moveShard(url, 0, to!)
      yield* moveShard(url, 0, from!)
      moves.areDone = true
      const jobs = yield* Fiber.join(work)
      for (const [n, tenant] of tenants.entries()) {
        yield* tenant.settled
        const own = new Set(jobs[n])
        const receipts = verifier.receipts.filter(({ jobId }) => own.has(jobId))
        yield* assertDelivered(tenant, receipts, jobs[n]!, ["/a"])
      }
    }).pipe(Effect.scoped),
  )

  it.live("a worker does not answer: other nodes' orgs get their deliveries, and nothing is lost", () =>
    Effect.gen(function* () {
      const url = yield* freshCitus("three")
      const node = yield* nodeOfShard(url, 0)
      const proxy = yield* proxied(node)
      yield* moveNode(url, node, proxy.url)
      const service = yield* makeRestartable(onPostgres(url).environment)
      const verifier = yield* makeVerifier()
      const makeOne = makeTenant(service.current)
      const here = yield* tenantOn(makeOne, url, (node) => node === proxy.url)
      const there = yield* tenantOn(makeOne, url, (node) => node !== proxy.url)
      yield* here.endpoint(`${verifier.url}/here`)
      yield* there.endpoint(`${verifier.url}/there`)
      const arrivedAt = (path: string) => verifier.receipts.filter(({ endpoint }) => endpoint === path).length

      const jobsHere = yield* Effect.forkChild(here.finishMany(jobsOfOrg))
      yield* verifier.arrived(jobsOfOrg / 4)
      let n = 0
      const deliver = Effect.suspend(() =>
        Effect.andThen(
          there.finish(n++),
          until(() => arrivedAt("/there") === n),
        ),
      )
      const gap = yield* Effect.gen(function* () {
        const gap = yield* longestGap(deliver)
        yield* proxy.silence
        yield* Effect.sleep(silenceMillis)
        return yield* gap
      }).pipe(Effect.scoped)
      yield* proxy.heal
      yield* proxy.cut
      const jobs = yield* Fiber.join(jobsHere)
      yield* Effect.all([here.settled, there.settled])

      const receipts = verifier.receipts.filter(({ endpoint }) => endpoint === "/here")
      const all = new Set(receipts.map(({ id }) => id))
      // In flight when the node fell silent, and when its connections were cut.
      yield* assertDelivered(here, receipts, jobs, ["/here"], [all, all])
      assert.isBelow(gap, silenceMillis / 2)
      yield* Effect.log(`the longest gap of the other node's deliveries: ${Math.round(gap)} ms`)
    }).pipe(Effect.scoped),
  )
})
