import { expect } from "@effect/vitest"
import { Context, Effect, Fiber, Layer } from "effect"
import { OpenSocket } from "#src/infrastructure/database/PostgresDatabase.ts"
import { freshPostgres } from "../support/databases.ts"
import { layer } from "../support/it.ts"
import { adminToken, guarded, onPostgres, type Services, TestServer } from "../support/server.ts"
import { queries } from "../sim/oracle/judge.ts"
import { Dice } from "../sim/world.ts"
import { until } from "../support/wait.ts"
import { must } from "../http/operations.ts"
import { type Ids, makeWorld } from "../http/sessions/world.ts"
import { Gate } from "./pairs/gate.ts"
import { endSweeps, type Pass, passes, requestIn, writes } from "./pairs/table.ts"

/**
 * Promise (Simulation): every pass of the background work, stopped before each of its statements, beside every
 * operation that writes
 */

/** How often the whole table runs; without it each pass meets all operations once, and no operation all passes. */
const wholeRounds = Number(process.env["PAIRS"] ?? 0)
const rounds = Math.max(1, wholeRounds)
/** The first seed: it decides what meets where. */
const firstSeed = Number(process.env["PAIRS_SEED"] ?? 1)
/** The worlds in which a pass meets all operations. */
const worldsOfPass = 5
/** Before so many statements of an operation passes run. */
const statementsOfOperation = 5

type Operation = (typeof writes)[number]
type Server = TestServer["Service"]

/** Two replicas on one PostgreSQL; the statements of each can be held. */
class Pair extends Context.Service<
  Pair,
  { readonly front: Server; readonly back: Server; readonly frontGate: Gate; readonly backGate: Gate }
>()("test/Pair") {
  static readonly layer = Layer.effect(
    Pair,
    Effect.gen(function* () {
      const node = yield* freshPostgres()
      const environment = yield* onPostgres({ ...guarded, NODES: `a=${node}` })
      const start = Effect.fnUntraced(function* () {
        const gate = new Gate(environment["DATABASE_URL"]!)
        const references = Layer.succeed(OpenSocket, gate.open)
        const built = yield* Layer.build(
          Layer.fresh(TestServer.layer(environment, { endlessSleeps: true, references })),
        )
        return [Context.get(built, TestServer), gate] as const
      })
      const [front, frontGate] = yield* start()
      const [back, backGate] = yield* start()
      return Pair.of({ front, back, frontGate, backGate })
    }),
  )
}

/** A tenant with one of everything, of which much is due or old. */
const makeFull = Effect.gen(function* () {
  const { send, sql } = yield* TestServer
  // A worker whose pass has failed would sleep for ever here: somebody else sends what waits for it.
  const instead = Effect.delay(faultOf(yield* Pair, "deliveries are claimed and recorded", {}), "1 second")
  // What asks others outside would be asked for the tenants of before, too.
  yield* sql`DELETE FROM alerts`
  yield* sql`DELETE FROM project_docs`
  const { ids, tenant } = yield* Effect.raceFirst(makeWorld, Effect.forever(instead))
  const { orgId } = tenant
  const admin = (method: string, path: string, json?: object) => must(send, method, path, { json, as: adminToken })
  const ofOrg = `/api/v0/orgs/${orgId}`
  yield* admin("PATCH", ofOrg, { retentionDays: 1 })
  yield* admin("PUT", `${ofOrg}/roles/reader`, { permissions: ["files.read"] })
  const spare = yield* admin("POST", `${ofOrg}/keys`, { name: "spare", credits: { remaining: 500 }, roles: ["reader"] })
  yield* admin("PUT", `/api/v0/projects/${ids["projectId"]}/docs`, { docsZipUrl: "https://localhost:9/docs.zip" })
  const target = { name: "a", condition: "endpoint_deactivated", target: "slack", url: "https://localhost:9/" }
  const alert = yield* admin("POST", `${ofOrg}/alerts`, target)
  const serviceAlert = yield* admin("POST", "/api/v0/alerts", target)
  const { call } = tenant
  for (const workflow of ["queued", "leased"]) yield* call("jobs/create", { workflow })
  for (const key of ["one", "two"])
    yield* call("jobs/create", { workflow: "failing", idempotency_key: `failing-${key}` })
  yield* call("jobs/create", { workflow: "failing", unique: { key: "one" } })
  yield* call("jobs/create", { workflow: "later", run_at: new Date(Date.now() + 3_600_000).toISOString() })
  yield* call("jobs/create", { workflow: "expiring", expires_in_seconds: 3_600 })
  yield* call("jobs/create", { workflow: "w", unique: { key: "one" }, input: 0 })
  yield* call("jobs/create", { workflow: "w", idempotency_key: "job" })
  const { jobs } = (yield* call("jobs/claim", { workflow: "failing", limit: 3 })) as unknown as {
    readonly jobs: ReadonlyArray<{ readonly job_id: string }>
  }
  for (const { job_id } of jobs) yield* call("jobs/fail", { job_id, error: "broken" })
  yield* call("jobs/claim", { workflow: "leased" })
  yield* call("events/publish-batch", {
    events: [1, 2, 3].map((data) => ({ type: "invoice.paid", data, idempotency_key: `event-${data}` })),
  })
  const made = yield* call("portal/link", {})
  // What would be due or old in a while is so now.
  yield* sql`UPDATE jobs SET lease_expires_at = now() - interval '1 second' WHERE org_id = ${orgId} AND workflow = 'leased'`
  yield* sql`UPDATE jobs SET run_at = now() - interval '1 second' WHERE org_id = ${orgId} AND workflow = 'later'`
  yield* sql`UPDATE jobs SET expires_at = now() - interval '1 second' WHERE org_id = ${orgId} AND workflow = 'expiring'`
  yield* sql`UPDATE job_schedules SET next_at = now() - interval '1 second' WHERE org_id = ${orgId}`
  yield* sql`UPDATE alerts SET due_at = now() - interval '1 second' WHERE org_id IN (${orgId}, '')`
  const link = { link: new URL(made["url"]!).hash.slice(1), linkId: made["link_id"] }
  const more = { spareKey: spare["id"], spareKeyText: spare["key"], alert: alert["alertId"], ...link }
  return { ...ids, ...more, serviceAlert: serviceAlert["alertId"], operationKey: tenant.key } as Ids
})

interface Sent {
  readonly operation: Operation
  readonly request: ReturnType<typeof requestIn>
  readonly status: number
  readonly text: string
}

const send = ({ front }: Pair["Service"], request: ReturnType<typeof requestIn>) =>
  front.send(request.method, request.path, { json: request.json, headers: request.headers })

/** Whether a session of the database waits for a lock. */
const isBlocked = ({ sql }: Server) =>
  Effect.map(
    sql<{ blocked: boolean }>`
      SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock') AS blocked`,
    ([row]) => row!.blocked,
  )

/** Waits until an effect has ended, or until it can only wait for what is held. */
const untilEnded = Effect.fnUntraced(function* (watch: Server, fiber: Fiber.Fiber<unknown>) {
  for (let looks = 1; fiber.pollUnsafe() === undefined && looks < 1_000; looks++) {
    yield* Effect.sleep("2 millis")
    if (looks % 5 === 0 && (yield* Effect.orDie(isBlocked(watch)))) return
  }
})

/** Runs a pass with the services of the second replica, until it is over. Fails as the pass fails. */
const runPass = ({ back }: Pair["Service"], pass: Pass, ids: Ids): Effect.Effect<unknown, unknown> =>
  Effect.provideContext(pass(ids, back) as Effect.Effect<unknown, unknown, Services>, back.services!).pipe(
    // With what an error says.
    Effect.mapError((error) => JSON.stringify(error)),
  )

/** What of the tables at the end of a simulation must be empty. */
const misfits = [
  queries["misfits"],
  queries["leftovers"]!.replaceAll(
    /SELECT '(\w+)' AS name, count\(\*\) AS count/g,
    "SELECT '$1' AS what, min(org_id) AS id",
  ),
]

/**
 * What a request or a pass may meet whose org ends or moves meanwhile, or that is held for long: a 503, which is sent
 * again.
 */
const isOfEnd =
  /The org was deleted during this request|The org moves to another database|did not answer within|after its own time limit/

/** What must hold whatever has met: nothing has failed, and the tables agree. */
const judge = Effect.fnUntraced(function* (
  pair: Pair["Service"],
  ids: Ids,
  sent: ReadonlyArray<Sent>,
  failed: ReadonlyArray<string>,
) {
  const { back, front } = pair
  const faults = sent.filter(({ status, text }) => (status >= 500 && !isOfEnd.test(text)) || status === 400)
  const wrong = [
    ...failed.filter((fault) => fault !== "" && !isOfEnd.test(fault)),
    ...faults.map(({ operation, status, text }) => `${operation.id}: ${status} ${text.slice(0, 200)}`),
  ]
  for (const server of [front, back]) {
    const errors = server
      .logs()
      .split("\n")
      .filter((line) => /"level":"(ERROR|FATAL)"/i.test(line))
    wrong.push(...errors.slice(seenErrors.get(server) ?? 0).map((line) => line.slice(0, 400)))
    seenErrors.set(server, errors.length)
  }
  const isThere = (yield* front.sql`SELECT FROM orgs WHERE id = ${ids["orgId"]!}`).length > 0
  // Of an org that has moved, every change was copied; the records of keys stay here.
  const left = yield* front.sql<{ table: string }>`
    SELECT DISTINCT table_name AS "table" FROM moved_rows JOIN org_moves USING (org_id)
    WHERE state = 'left' AND table_name <> 'idempotency_keys'`
  wrong.push(...left.map(({ table }) => `a change of ${table} has not moved`))
  // The work goes on undisturbed. What the other replica sweeps just now is swept later.
  const rest = Effect.gen(function* () {
    for (const pass of [passes["leases expire"]!, endSweeps, passes["deliveries are claimed and recorded"]!])
      yield* Effect.catch(runPass(pair, pass, ids), (error) =>
        Effect.sync(() => void wrong.push(`afterwards: ${error}`)),
      )
    return yield* front.sql`SELECT kind, org_id, done_to, created_at, since FROM sweeps`
  })
  yield* until("the end of all sweeps", rest, (open) => open.length === 0 || wrong.length > 0)
  if (isThere) {
    for (const { operation, request, status, text } of sent) {
      if (!request.isKeyed || status !== 200) continue
      const again = yield* send(pair, request)
      // What was answered is answered again, while who asks may ask.
      if (again.status === 200 ? again.text !== text : again.status >= 500)
        wrong.push(`${operation.id} again: ${again.status} ${again.text.slice(0, 200)}, not ${text.slice(0, 200)}`)
    }
  }
  for (const query of misfits) {
    for (const { what, id } of (yield* front.sql.unsafe(query!)) as ReadonlyArray<{ what: string; id: string }>)
      wrong.push(`${what}: ${id}`)
  }
  return wrong
})
const seenErrors = new Map<Server, number>()

const shuffled = <A>(dice: Dice, all: ReadonlyArray<A>) =>
  all
    .map((one) => ({ one, at: dice.next() }))
    .toSorted((a, b) => a.at - b.at)
    .map(({ one }) => one)

/** Before which of the first statements each of several begins. */
const placesOf = (dice: Dice, count: number, statements: number) =>
  Array.from({ length: count }, () => dice.int(1, statements)).toSorted((one, other) => one - other)

const ends = (operation: Operation) => (operation.id === "orgs.remove" ? 1 : 0)

let numbers = 0

/**
 * Runs something that stops before each of its statements; others begin meanwhile, each until it has ended or waits for
 * a lock. What is left of them begins afterwards.
 *
 * @param watch the replica that is not held
 * @param places before which of its statements each of the others begins
 */
const interleave = Effect.fnUntraced(function* <A, B>(
  gate: Gate,
  watch: Server,
  held: Effect.Effect<A>,
  others: ReadonlyArray<Effect.Effect<B>>,
  places: ReadonlyArray<number>,
) {
  gate.hold()
  const fiber = yield* Effect.forkChild(held)
  const waiting = [...others]
  const begun: Array<Fiber.Fiber<B>> = []
  const begin = Effect.fnUntraced(function* (count: number) {
    for (const other of waiting.splice(0, count)) {
      const one = yield* Effect.forkChild(other)
      begun.push(one)
      yield* untilEnded(watch, one)
    }
  })
  let statements = 0
  for (;;) {
    const arrived = Effect.promise(() => gate.untilHeld())
    yield* Effect.timeoutOption(Effect.race(arrived, Fiber.await(fiber)), "100 millis")
    if (fiber.pollUnsafe() !== undefined) break
    statements++
    yield* begin(places.filter((place) => place <= statements).length - begun.length)
    gate.letOne()
  }
  gate.letAll()
  yield* begin(waiting.length)
  const ended = yield* Effect.forEach(begun, (one) => Fiber.join(one))
  return { statements, first: yield* Fiber.join(fiber), ended }
})

/** Sends an operation. */
const perform = (pair: Pair["Service"], ids: Ids, operation: Operation) => {
  const request = requestIn(ids, operation, ++numbers)
  return Effect.orDie(
    Effect.map(send(pair, request), ({ status, text }): Sent => ({ operation, request, status, text })),
  )
}

/** Runs a pass; returns how it failed. */
const faultOf = (pair: Pair["Service"], name: string, ids: Ids) =>
  runPass(pair, passes[name]!, ids).pipe(
    Effect.as(""),
    Effect.catchCause((cause) => Effect.succeed(`${name}: ${String(cause).slice(0, 300)}`)),
  )

const live = Layer.provideMerge(
  Layer.effect(
    TestServer,
    Effect.map(Pair, ({ front }) => front),
  ),
  Pair.layer,
)

layer(live, { excludeTestServices: true })("every operation that writes, and every pass", (it) => {
  it.effect("each operation of the table writes: its request is answered with success", function* () {
    const pair = yield* Pair
    const refused: Array<string> = []
    let ids: Ids | undefined
    for (const operation of writes) {
      ids ??= yield* makeFull
      const { status, text } = yield* send(pair, requestIn(ids, operation, ++numbers))
      // The others need what it has ended.
      if (/remove|delete|cancel|fail|complete|openPortal|update/i.test(operation.id)) ids = undefined
      if (status !== 200) refused.push(`${operation.id}: ${status} ${text.slice(0, 300)}`)
    }
    expect(refused).toEqual([])
  })

  for (const name of Object.keys(passes)) {
    it.effect(`${name}: all operations, while it stops before each of its statements`, function* () {
      const pair = yield* Pair
      for (let seed = firstSeed; seed < firstSeed + rounds; seed++) {
        const dice = new Dice(seed)
        const order = shuffled(dice, writes).toSorted((one, other) => ends(one) - ends(other))
        const size = Math.ceil(order.length / worldsOfPass)
        let most = 3
        for (let at = 0; at < order.length; at += size) {
          const operations = order.slice(at, at + size)
          const ids = yield* makeFull
          const others = operations.map((operation) => Effect.suspend(() => perform(pair, ids, operation)))
          const { backGate, front } = pair
          // What ends an org comes early, before it has moved: nobody runs the erasure of a node here.
          const places = placesOf(dice, others.length, operations.some(ends) ? others.length : most)
          const met = yield* interleave(backGate, front, faultOf(pair, name, ids), others, places)
          most = Math.max(most, met.statements)
          const wrong = yield* judge(pair, ids, met.ended, [met.first])
          const which = operations.map(({ id }) => id).join(", ")
          expect(wrong, `PAIRS_SEED=${seed}: ${name}, with ${which}`).toEqual([])
        }
      }
    })
  }

  for (const operation of wholeRounds > 0 ? writes : []) {
    it.effect(`${operation.id}: all passes, while it stops before each of its statements`, function* () {
      const pair = yield* Pair
      for (let seed = firstSeed; seed < firstSeed + rounds; seed++) {
        const dice = new Dice(seed)
        const names = shuffled(dice, Object.keys(passes))
        const destructive = (name: string) => (/erased|moved/.test(name) ? 1 : 0)
        const order = names.toSorted((one, other) => destructive(one) - destructive(other))
        const ids = yield* makeFull
        const { back, frontGate } = pair
        const others = order.map((name) => faultOf(pair, name, ids))
        const places = placesOf(dice, others.length, statementsOfOperation)
        const met = yield* interleave(frontGate, back, perform(pair, ids, operation), others, places)
        const wrong = yield* judge(pair, ids, [met.first], met.ended)
        expect(wrong, `PAIRS_SEED=${seed}: ${operation.id}, with ${order.join(", ")}`).toEqual([])
      }
    })
  }
})
