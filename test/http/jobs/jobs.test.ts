import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { layer } from "../../support/it.ts"
import { onPostgres, TestServer } from "../../support/server.ts"
import { claim, events, get, make, status } from "./jobCalls.ts"
import { keysOf } from "../operations.ts"
import { makeTenant } from "../tenants.ts"

const ulid = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/
const time = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/) as string

/** JSON that parsers, databases and languages get wrong. */
const oddities: ReadonlyArray<string> = [
  "null",
  "0",
  "-0.5e-7",
  '""',
  '"a\\u0000b \\ud800 \\u2028 \\" \u{1f4da}"',
  "[]",
  "{}",
  '[null,[],{},"",false]',
  '{"":1,"__proto__":{"a":1},"constructor":null,"toString":[]}',
  `{"wide":[${Array.from({ length: 5_000 }, (_, n) => n).join(",")}]}`,
  `${"[".repeat(1_000)}1${"]".repeat(1_000)}`,
  `${'{"a":'.repeat(999)}{"b":1}${"}".repeat(999)}`,
]

layer(TestServer.layer(onPostgres()), { excludeTestServices: true })("jobs", (it) => {
  it.effect("the queue says what waits and runs by workflow and key, since when, and what came in", function* () {
    const tenant = yield* makeTenant()
    const queue = tenant.call("jobs/queue", {})
    expect(yield* queue).toMatchObject({ workflows: [], is_all: true, oldest_due_at: null, created: 0, keys: [] })
    for (const concurrency_key of ["ada", "ada", "ben"]) yield* make(tenant, { workflow: "mail", concurrency_key })
    yield* make(tenant, { workflow: "mail", run_at: "2027-01-01T00:00:00Z" })
    yield* make(tenant, { workflow: "report" })
    yield* make(yield* makeTenant(), { workflow: "foreign" })
    yield* claim(tenant, { workflow: "mail" })
    const found = yield* queue
    expect(found).toEqual({
      workflows: [
        { workflow: "mail", queued: 2, delayed: 1, running: 1, is_all: true },
        { workflow: "report", queued: 1, delayed: 0, running: 0, is_all: true },
      ],
      is_all: true,
      oldest_due_at: time,
      created: 5,
      created_since: time,
      keys: [
        { workflow: "mail", concurrency_key: "ada", queued: 1, running: 1 },
        { workflow: "mail", concurrency_key: "ben", queued: 1, running: 0 },
      ],
    })
    expect(yield* status(tenant, "jobs/queue", { workflow: "mail" })).toBe(400)
  })

  it.effect("a unique job is created once, and what does not go together is refused", function* () {
    const tenant = yield* makeTenant()
    const create = (fields: object) => tenant.call("jobs/create", { workflow: "w", ...fields })
    const unique = { key: "a" }
    const first = yield* create({ unique })
    expect(first).toMatchObject({ success: true, created: true })
    expect(yield* create({ unique, input: 1 })).toMatchObject({ job_id: first.job_id, created: false })
    expect((yield* get(tenant, first.job_id!)).unique_key).toBe("a")
    const debounced = yield* create({ unique: { key: "b" }, debounce_seconds: 60, input: 1 })
    expect(yield* create({ unique: { key: "b" }, debounce_seconds: 60, input: 2 })).toMatchObject({
      job_id: debounced.job_id,
      created: false,
    })
    expect((yield* get(tenant, debounced.job_id!)).input).toBe(2)
    const run_at = "2999-01-01T00:00:00.000Z"
    for (const wrong of [
      { unique: {} },
      { unique: { key: "" } },
      { unique: { key: "x".repeat(201) } },
      { unique: { key: "a", within_seconds: 0 } },
      { unique: { key: "a", within_seconds: 86_401 } },
      { unique: { key: "a", states: [] } },
      { unique: { key: "a", states: ["completed"] } },
      { unique, idempotency_key: "a" },
      { debounce_seconds: 10 },
      { unique, debounce_seconds: 0 },
      { unique, debounce_seconds: 86_401 },
      { unique: { key: "a", within_seconds: 10 }, debounce_seconds: 10 },
      { unique: { key: "a", states: ["running"] }, debounce_seconds: 10 },
      { unique, debounce_seconds: 10, run_at },
    ]) {
      expect(yield* status(tenant, "jobs/create", { workflow: "w", ...wrong }), JSON.stringify(wrong)).toBe(400)
    }
  })

  it.effect("a job is created, claimed, completed and read, with all its fields", function* () {
    const tenant = yield* makeTenant()
    const id = yield* make(tenant, { workflow: "nightly", input: { rows: [1] }, deployment_id: "d1" })
    expect(id).toMatch(ulid)
    const defaults = {
      priority: 0,
      max_attempts: 3,
      retry_delay_seconds: 10,
      run_at: null,
      unique_key: null,
      concurrency_key: null,
      expires_at: null,
      progress: null,
      note: null,
    }
    const nothing = { result: null, error: null, mapped_stack: null }
    const empty = { callback_url: null, skip_callbacks: false, ...defaults, ...nothing }
    const queued = { ...empty, job_id: id, workflow: "nightly", input: { rows: [1] }, deployment_id: "d1" }
    const times = { created_at: time, updated_at: time, lease_expires_at: null, finished_at: null, steps: [] }
    expect(yield* get(tenant, id)).toEqual({ ...queued, ...times, status: "queued", attempt: 0, attempt_log: [] })

    const before = Date.now()
    const [claimed, ...more] = yield* claim(tenant, { lease_seconds: 100 })
    expect(more).toEqual([])
    expect(claimed).toEqual({
      job_id: id,
      workflow: "nightly",
      input: { rows: [1] },
      deployment_id: "d1",
      attempt: 1,
      lease_expires_at: time,
    })
    const lease = Date.parse(claimed!.lease_expires_at) - before
    expect(lease).toBeGreaterThanOrEqual(100_000)
    expect(lease).toBeLessThan(160_000)
    const running = yield* get(tenant, id)
    expect(running).toMatchObject({ status: "running", attempt: 1, lease_expires_at: claimed!.lease_expires_at })

    const completed = yield* tenant.ask("jobs/complete", { job_id: id, result: { rows: 3 } })
    expect([completed.status, String(keysOf(completed.json))]).toEqual([200, "message,success"])
    expect(yield* get(tenant, id)).toEqual({
      ...queued,
      ...times,
      status: "completed",
      attempt: 1,
      result: { rows: 3 },
      finished_at: time,
      attempt_log: [{ attempt: 1, ended_at: time, note: null, error: null }],
    })
  })

  it.effect("null and a missing field mean the same, and callback_secret is in no answer", function* () {
    const tenant = yield* makeTenant()
    const empties = { input: null, deployment_id: null, callback_url: null, callback_secret: null }
    const callback = { callback_url: "https://receiver.example/", callback_secret: "never-in-an-answer" }
    const { job_id: _, ...absent } = yield* get(tenant, yield* make(tenant))
    const { job_id: __, ...given } = yield* get(tenant, yield* make(tenant, empties))
    expect({ ...given, created_at: "", updated_at: "" }).toEqual({ ...absent, created_at: "", updated_at: "" })
    const id = yield* make(tenant, callback)
    for (const [path, json] of [
      ["jobs/get", { job_id: id }],
      ["jobs/list", {}],
      ["jobs/claim", { limit: 100 }],
    ] as const) {
      const { text } = yield* tenant.ask(path, json)
      expect(text).toContain(id)
      expect(text).not.toMatch(/secret|never-in/)
    }
    expect((yield* get(tenant, id)).callback_url).toBe(callback.callback_url)
    for (const field of ["workflow", "skip_callbacks", "idempotency_key"]) {
      expect(yield* status(tenant, "jobs/create", { workflow: "w", [field]: null }), field).toBe(400)
    }
  })

  it.effect("input, result and mapped_stack may be any JSON, and are returned unchanged", function* () {
    const tenant = yield* makeTenant()
    const headers = { "content-type": "application/json" }
    for (const text of oddities) {
      const made = yield* tenant.ask("jobs/create", undefined, {
        body: `{"workflow":"odd","input":${text}}`,
        headers,
      })
      expect(made.status, made.text).toBe(200)
      const { job_id } = made.json as { job_id: string }
      const [claimed] = yield* claim(tenant, { workflow: "odd" })
      expect(JSON.stringify(claimed!.input)).toBe(JSON.stringify(JSON.parse(text)))
      const failing = text.length % 2 === 0
      const outcome = failing ? `"error":"x","mapped_stack":${text}` : `"result":${text}`
      const body = `{"job_id":"${job_id}",${outcome}}`
      const ended = yield* tenant.ask(failing ? "jobs/fail" : "jobs/complete", undefined, { body, headers })
      expect(ended.status, ended.text).toBe(200)
      const { input, result, mapped_stack } = yield* get(tenant, job_id)
      const kept = JSON.stringify(JSON.parse(text))
      expect(JSON.stringify(input)).toBe(kept)
      expect(JSON.stringify(failing ? mapped_stack : result)).toBe(kept)
      expect(failing ? result : mapped_stack).toBeNull()
    }
    const tooDeep = [1_001, 20_000].map((levels) => "[".repeat(levels) + "]".repeat(levels))
    const id = yield* make(tenant)
    for (const deep of [...tooDeep, `${'{"a":'.repeat(5_000)}1${"}".repeat(5_000)}`]) {
      for (const [path, start, field] of [
        ["jobs/create", '"workflow":"w"', "input"],
        ["schedules/create", '"workflow":"w","cron":"* * * * *"', "input"],
        ["jobs/complete", `"job_id":"${id}"`, "result"],
        ["jobs/fail", `"job_id":"${id}","error":"x"`, "mapped_stack"],
      ] as const) {
        const answer = yield* tenant.ask(path, undefined, { body: `{${start},"${field}":${deep}}`, headers })
        expect([answer.status, answer.json], path).toMatchObject([
          400,
          { message: `${field} must be JSON of at most 1,000 levels, with numbers up to 1e308.` },
        ])
      }
    }
    expect((yield* get(tenant, id)).status).toBe("queued")
  })

  it.effect("the same outcome again succeeds without a second event, and the other outcome is a 409", function* () {
    const tenant = yield* makeTenant()
    const [done, failed] = [yield* make(tenant), yield* make(tenant)]
    expect(yield* status(tenant, "jobs/complete", { job_id: done, result: 1 })).toBe(200)
    expect(yield* status(tenant, "jobs/complete", { job_id: done, result: 2 })).toBe(200)
    expect(yield* status(tenant, "jobs/fail", { job_id: done, error: "late" })).toBe(409)
    expect(yield* status(tenant, "jobs/heartbeat", { job_id: done })).toBe(409)
    expect(yield* get(tenant, done)).toMatchObject({ status: "completed", result: 1, error: null })
    expect(yield* status(tenant, "jobs/fail", { job_id: failed, error: "", mapped_stack: ["at a"] })).toBe(200)
    expect(yield* status(tenant, "jobs/fail", { job_id: failed, error: "again" })).toBe(200)
    expect(yield* status(tenant, "jobs/complete", { job_id: failed })).toBe(409)
    expect(yield* get(tenant, failed)).toMatchObject({ status: "failed", error: "", mapped_stack: ["at a"] })
    for (const id of [done, failed]) expect(yield* events(tenant, id)).toHaveLength(1)

    // Twenty reports at once, of both outcomes: one of them counts.
    const id = yield* make(tenant)
    const statuses = yield* Effect.forEach(
      Array.from({ length: 20 }, (_, n) => n),
      (n) =>
        n % 2 === 0
          ? status(tenant, "jobs/complete", { job_id: id, result: n })
          : status(tenant, "jobs/fail", { job_id: id, error: String(n) }),
      { concurrency: "unbounded" },
    )
    expect(statuses.toSorted()).toEqual([...Array<number>(10).fill(200), ...Array<number>(10).fill(409)])
    expect(yield* events(tenant, id)).toHaveLength(1)
  })

  it.effect("an idempotency key creates one job, also at the same moment", function* () {
    const tenant = yield* makeTenant()
    const create = make(tenant, { idempotency_key: "run 1 \u{1f4da}" })
    const ids = yield* Effect.replicateEffect(create, 10, { concurrency: "unbounded" })
    expect(new Set(ids).size).toBe(1)
    yield* tenant.call("jobs/complete", { job_id: ids[0] })
    // The job has finished, so the answer must not say "queued".
    const again = yield* tenant.call("jobs/create", { workflow: "other", idempotency_key: "run 1 \u{1f4da}" })
    expect(again).toMatchObject({ job_id: ids[0], message: expect.stringContaining("already exists") as string })
    expect(yield* make(tenant, { idempotency_key: "run 2" })).not.toBe(ids[0])
    expect(yield* claim(tenant, { limit: 100 })).toHaveLength(1)
  })

  it.effect("lists return each job once, newest first, at any page size and with any filter", function* () {
    const tenant = yield* makeTenant()
    const ids: Array<string> = []
    for (let n = 0; n < 7; n++) ids.unshift(yield* make(tenant, { workflow: n % 2 ? "odd" : "even" }))
    for (const id of ids.slice(0, 3)) yield* tenant.call("jobs/complete", { job_id: id })
    const all = Effect.fnUntraced(function* (filter: object, limit: number) {
      const found: Array<string> = []
      let cursor: string | undefined
      do {
        const page = yield* tenant.call("jobs/list", {
          ...filter,
          limit,
          ...(cursor === undefined ? {} : { cursor }),
        })
        const jobs = page["jobs"] as unknown as ReadonlyArray<{ job_id: string }>
        expect(jobs.length).toBeLessThanOrEqual(limit)
        found.push(...jobs.map(({ job_id }) => job_id))
        cursor = page["next_cursor"] ?? undefined
      } while (cursor !== undefined)
      return found
    })
    for (const limit of [1, 3, 7, 100]) {
      expect(yield* all({}, limit)).toEqual(ids)
      expect(yield* all({ status: "completed" }, limit)).toEqual(ids.slice(0, 3))
      expect(yield* all({ workflow: "odd", status: "queued" }, limit)).toEqual([ids[3], ids[5]])
    }
    expect((yield* tenant.call("jobs/list", { limit: 7 }))["next_cursor"]).toBeNull()
    expect(yield* status(tenant, "jobs/list", { cursor: null })).toBe(400)
  })
})
