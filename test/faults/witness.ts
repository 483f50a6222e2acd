import { assert } from "@effect/vitest"
import { Clock, Duration, Effect, Fiber, Schedule } from "effect"
import type { Service } from "../support/process.ts"
import type { WireAnswer } from "../support/wire.ts"
import { makeTenant, makeVerifier, until } from "./support.ts"

/**
 * The longest time of any request: 4 seconds for each of two operations, and 5 to drop a dead connection, with a
 * margin.
 */
const limit = Duration.seconds(20)
const spaced = (milliseconds: number) => Schedule.spaced(Duration.millis(milliseconds))

interface Act {
  readonly what: string
  readonly at: number
  readonly took: number
  /** 0 means that no answer came. */
  readonly status: number
  readonly text: string
}

/** A fault, and the effects that it may have. */
export interface Fault<E, R> {
  readonly name: string
  readonly begin: Effect.Effect<unknown, E, R>
  readonly end: Effect.Effect<unknown, E, R>
  /** How long it lasts. Readiness must be right after 3 seconds of it. */
  readonly lasts: Duration.Input
  /** The status of readiness during the fault, after that time. */
  readonly ready?: number
  /** Whether requests may end without an answer, as when the process is killed. */
  readonly mayBreak?: boolean
}

/**
 * A client of the service in open mode during a fault: creates projects, keys and finished jobs, deletes keys and
 * validates deleted ones, and asks for readiness. Afterwards it can check whether each answer was true.
 */
export const makeWitness = Effect.fnUntraced(function* (service: () => Service) {
  const acts: Array<Act> = []
  const projects: Array<string> = []
  const living: Array<string> = []
  const deleted: Array<string> = []
  const finished: Array<string> = []
  const verifier = yield* makeVerifier()
  const tenant = yield* makeTenant(service)
  yield* tenant.endpoint(verifier.url)

  /** Sends a request; status 0 means no answer. */
  const send = Effect.fnUntraced(function* (what: string, method: string, path: string, json?: object, key?: string) {
    const at = yield* Clock.currentTimeMillis
    const headers = key === undefined ? {} : { "x-api-key": key }
    const answer: Pick<WireAnswer, "status" | "text" | "json"> = yield* Effect.suspend(() =>
      service().send(method, path, { ...(json === undefined ? {} : { json }), headers }),
    ).pipe(
      Effect.timeout(limit),
      Effect.catch((error) => Effect.succeed({ status: 0, text: String(error), json: undefined })),
    )
    acts.push({ what, at, took: (yield* Clock.currentTimeMillis) - at, status: answer.status, text: answer.text })
    // Without an answer, waits a little before the next request.
    if (answer.status === 0) yield* Effect.sleep("50 millis")
    return { status: answer.status, json: answer.json as Record<string, string> }
  })
  const post = (what: string, path: string, json: object) => send(what, "POST", path, json)
  // With a credential, like a gateway: without one, failures have a limit.
  const validate = (what: string, key: string) => send(what, "POST", "/api/v0/keys/validate", { key }, tenant.key)
  const oneOf = <A>(items: ReadonlyArray<A>) => items[Math.floor(Math.random() * items.length)]

  const createProject = Effect.gen(function* () {
    const { status, json } = yield* post("write", "/api/v0/projects", { name: "witness", orgId: tenant.orgId })
    if (status === 200) projects.push(json["projectId"]!)
    return status
  })
  const createAndDeleteKey = Effect.gen(function* () {
    const path = `/api/v0/orgs/${tenant.orgId}/keys`
    const { status, json } = yield* post("write", path, { name: "witness" })
    if (status !== 200) return status
    const { id, key } = json as { id: string; key: string }
    yield* validate("valid", key)
    if (living.length < 5) return living.push(key) && status
    const removal = yield* send("write", "DELETE", `${path}/${id}`)
    if (removal.status === 200) deleted.push(key)
    return removal.status
  })
  const finishJob = Effect.gen(function* () {
    const { status, json } = yield* send("write", "POST", "/v1/jobs/create", { workflow: "w" }, tenant.key)
    if (status !== 200) return status
    const job_id = json["job_id"]!
    const done = yield* send("write", "POST", "/v1/jobs/complete", { job_id }, tenant.key)
    if (done.status === 200) finished.push(job_id)
    return done.status
  })
  const check = Effect.suspend(() => {
    const [dead, alive] = [oneOf(deleted), oneOf(living)]
    return Effect.all([
      dead === undefined ? Effect.void : validate("deleted", dead),
      alive === undefined ? Effect.void : validate("valid", alive),
    ])
  })
  const probe = Effect.all([send("ready", "GET", "/readyz"), send("healthy", "GET", "/healthz")], { concurrency: 2 })

  const often = (loop: Effect.Effect<unknown>, milliseconds: number) =>
    Effect.forkScoped(Effect.repeat(loop, spaced(milliseconds)))
  const loops = yield* Effect.forEach([createProject, createAndDeleteKey, finishJob, check], (loop) => often(loop, 10))
  loops.push(yield* often(probe, 50))

  /** Waits at most ten seconds until every kind of request succeeds; returns the time in milliseconds. */
  const recovered = Effect.gen(function* () {
    const ready = Effect.map(send("ready", "GET", "/readyz"), ({ status }) => status)
    for (const needed of [ready, createProject, createAndDeleteKey, finishJob]) {
      yield* Effect.repeat(needed, { until: (status) => status === 200, schedule: spaced(50) })
    }
  }).pipe(
    Effect.timeoutOrElse({ duration: "10 seconds", orElse: () => Effect.die("not recovered within 10 seconds") }),
    Effect.timed,
    Effect.map(([took]) => Math.round(Duration.toMillis(took))),
  )

  /** Stops, and checks that every answer was true. */
  const verify = Effect.gen(function* () {
    // Lets requests in flight finish first.
    yield* Effect.sleep("100 millis")
    yield* Fiber.interruptAll(loops)
    const expect = (
      items: ReadonlyArray<string>,
      status: number,
      ask: (item: string) => Effect.Effect<{ status: number }>,
    ) =>
      Effect.forEach(items, (item) => Effect.map(ask(item), (answer) => assert.strictEqual(answer.status, status)), {
        concurrency: 4,
      })
    yield* expect(projects, 200, (id) => send("after", "GET", `/api/v0/projects/${id}`))
    yield* expect(living, 200, (key) => validate("after", key))
    yield* expect(deleted, 401, (key) => validate("after", key))
    yield* tenant.settled
    const told = new Set(verifier.receipts.map(({ jobId }) => jobId))
    assert.deepStrictEqual(
      finished.filter((id) => !told.has(id)),
      [],
      "finished jobs whose webhook never came",
    )
    return projects.length + living.length + deleted.length + finished.length
  })

  /**
   * Asserts that each answer is allowed: a deleted key is never accepted, an existing one never refused, and health
   * never fails.
   */
  const assertTrue = (mayBreak: boolean) => {
    const possible: Record<string, ReadonlyArray<number>> = {
      write: [200, 503],
      valid: [200, 503],
      deleted: [401, 503],
      ready: [200, 503],
      healthy: [200],
      after: [200, 401],
    }
    const untrue = acts.filter(({ what, status }) => !possible[what]!.includes(status) && !(mayBreak && status === 0))
    assert.deepStrictEqual(untrue.slice(0, 5), [])
    const longest = Math.max(...acts.map(({ took }) => took))
    assert.isBelow(longest, Duration.toMillis(limit), "a request hung")
    return longest
  }

  const readiness = () => acts.filter(({ what }) => what === "ready")

  /**
   * Runs a fault: no answered write is lost, no request hangs, readiness is true, and the service recovers by itself.
   */
  const through = Effect.fnUntraced(function* <E, R>(fault: Fault<E, R>) {
    yield* until(() => deleted.length >= 5 && finished.length >= 10)
    yield* fault.begin
    const begun = yield* Clock.currentTimeMillis
    yield* Effect.sleep(fault.lasts)
    const ended = yield* Clock.currentTimeMillis
    yield* fault.end
    const recovery = yield* recovered
    const healed = yield* Clock.currentTimeMillis
    yield* until(() => readiness().filter(({ at }) => at >= healed).length >= 3)
    assertTrue(fault.mayBreak ?? false)
    if (fault.ready !== undefined) {
      const said = readiness().filter(({ at, took }) => at >= begun + 3_000 && at + took < ended)
      assert.isNotEmpty(said)
      assert.deepStrictEqual([...new Set(said.map(({ status }) => status))], [fault.ready], "readiness in the fault")
    }
    const answered = yield* verify
    const longest = assertTrue(fault.mayBreak ?? false)
    const after = readiness()
      .filter(({ at }) => at >= healed)
      .map(({ status }) => status)
    assert.deepStrictEqual([...new Set(after)], [200], "readiness after the fault")
    const refused = acts.filter(({ status }) => status === 503).length
    yield* Effect.log(
      `${fault.name}: ${answered} answered writes kept, ${refused} of ${acts.length} refused, longest ${longest} ms, recovered in ${recovery} ms`,
    )
    return { recovery, longest, answered }
  })

  return { tenant, verifier, acts, recovered, verify, through, assertTrue }
})
