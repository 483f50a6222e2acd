import { expect } from "@effect/vitest"
import { Effect, Fiber, Schedule } from "effect"
import { layer } from "../../support/it.ts"
import { parse } from "../../support/prometheus.ts"
import { adminToken, guarded, onPostgres, TestServer } from "../../support/server.ts"
import { faultOfError, must } from "../operations.ts"
import { makeTenant } from "../tenants.ts"
import { faultOfWebhookError } from "../webhooks/webhookOperations.ts"

const as = adminToken
/** A url where nothing listens. */
const nowhere = "https://127.0.0.1:9/"
const tenant = makeTenant(adminToken)
const send = (method: string, path: string, json?: object, credential: string = as) =>
  TestServer.use(({ send }) =>
    send(method, `/api/v0/${path}`, { as: credential, ...(json === undefined ? {} : { json }) }),
  )
const patch = (orgId: string, json: object) =>
  TestServer.use(({ send }) => must(send, "PATCH", `/api/v0/orgs/${orgId}`, { json, as }))
/** How often the limit was reached. */
const reached = Effect.fnUntraced(function* (variable: string) {
  const { text } = yield* TestServer.use(({ send }) => send("GET", "/metrics", { as }))
  const samples = parse(text).flatMap((family) => family.samples)
  return samples.find(({ name, labels }) => name === "gatehouse_limits_reached_total" && labels["limit"] === variable)
    ?.value
})

const defaults = {
  projects: 2,
  keys: 10_000,
  endpoints: 500,
  schedules: 10_000,
  unfinishedJobs: 1_000_000,
  pendingDeliveries: 5_000_000,
  storedBytes: 10 * 1024 ** 3,
}
const none = Object.fromEntries(Object.keys(defaults).map((name) => [name, 0]))

const server = TestServer.layer(
  onPostgres({ ...guarded, LIMIT_PROJECTS: "2", LIMIT_WAITING_CLAIMS: "1", ALLOW_PRIVATE_NETWORKS: "true" }),
)

layer(server, { excludeTestServices: true })("limits of an org", (it) => {
  it.effect("are shown with their usage, changed by the administrator, and reset by null", function* () {
    const { orgId, key } = yield* tenant
    const org = yield* send("GET", `orgs/${orgId}`, undefined, key)
    expect(org.json).toEqual({
      orgId,
      owners: [],
      name: "Acme",
      createdAt: expect.any(String),
      keyPrefix: null,
      retentionDays: null,
      strictEvents: false,
      limits: defaults,
      // The key is measured some time later.
      used: { ...none, keys: 1, storedBytes: expect.any(Number) },
    })
    const changed = yield* patch(orgId, { name: "Other", limits: { keys: 5, projects: 7 } })
    expect(changed).toMatchObject({ name: "Other", limits: { ...defaults, keys: 5, projects: 7 } })
    expect(yield* patch(orgId, { limits: { projects: null } })).toMatchObject({ limits: { ...defaults, keys: 5 } })
    expect(yield* patch(orgId, { retentionDays: 30 })).toMatchObject({ retentionDays: 30, limits: { keys: 5 } })
    expect(yield* patch(orgId, { name: "Other" })).toMatchObject({ retentionDays: 30 })
    expect(yield* patch(orgId, { retentionDays: null })).toMatchObject({ retentionDays: null })
    const refused = yield* send("PATCH", `orgs/${orgId}`, { name: "stolen" }, key)
    expect([refused.status, faultOfError(refused)]).toEqual([403, undefined])
    const { json } = yield* send("GET", `orgs/${orgId}/audit`)
    const { entries } = json as { readonly entries: ReadonlyArray<object> }
    expect(entries.slice(3, 5)).toMatchObject([
      { action: "org.update", actor: "administrator", target: orgId, details: { limits: { projects: null } } },
      { action: "org.update", details: { name: "Other", limits: { keys: 5, projects: 7 } } },
    ])
  })

  // Seen failing without the limit: every change went into the audit log.
  it.effect(
    "too many changes by keys of an org are a 429 in both interfaces, but not the administrator's",
    function* () {
      const { ask, endpoint, key, keyId, orgId } = yield* tenant
      const id = yield* endpoint(nowhere)
      const rename = (as: string) => send("PATCH", `orgs/${orgId}/keys/${keyId}`, { name: "other" }, as)
      const describe = ask("webhooks/update", { id, description: "other" })
      /** Repeats a change, much faster than ten a second, until one is refused. */
      const untilRefused = <A extends { readonly status: number }, E, R>(change: Effect.Effect<A, E, R>) =>
        Effect.replicateEffect(change, 32, { concurrency: 32 }).pipe(
          Effect.map((answers) => answers.find(({ status }) => status === 429)),
          Effect.repeat({ until: (refused) => refused !== undefined }),
          Effect.map((refused) => refused!),
        )
      const refused = yield* untilRefused(rename(key))
      expect([faultOfError(refused), refused.headers["retry-after"]]).toEqual([undefined, "1"])
      expect(faultOfWebhookError(yield* untilRefused(describe))).toBe(undefined)
      expect((yield* rename(as)).status).toBe(200)
    },
  )

  it.effect("an invalid or empty change is refused by name and changes nothing", function* () {
    const { orgId } = yield* tenant
    const cases: ReadonlyArray<readonly [object, RegExp]> = [
      [{}, /at least one field/],
      [{ limits: {} }, /^limits .*at least one field/],
      [{ name: "" }, /^name /],
      [{ name: "x".repeat(256) }, /^name .*255/],
      [{ name: null }, /^name /],
      [{ keyPrefix: "acme_" }, /^keyPrefix .*3 to 24/],
      [{ keyPrefix: "Acme" }, /^keyPrefix /],
      [{ keyPrefix: "4acme" }, /^keyPrefix /],
      [{ keyPrefix: "ab" }, /^keyPrefix /],
      [{ keyPrefix: "a".repeat(25) }, /^keyPrefix /],
      [{ retentionDays: 0 }, /^retentionDays .*whole number/],
      [{ retentionDays: 36_501 }, /^retentionDays /],
      [{ limits: { keys: -1 } }, /^limits\.keys .*whole number/],
      [{ limits: { keys: 1.5 } }, /^limits\.keys /],
      [{ limits: { storedBytes: 10 ** 15 + 1 } }, /^limits\.storedBytes /],
      [{ limits: null }, /^limits /],
    ]
    for (const [json, sentence] of cases) {
      const answer = yield* send("PATCH", `orgs/${orgId}`, json)
      expect([answer.status, faultOfError(answer)], JSON.stringify(json)).toEqual([400, undefined])
      expect((answer.json as { readonly error: string }).error).toMatch(sentence)
    }
    expect((yield* send("GET", `orgs/${orgId}`)).json).toMatchObject({ name: "Acme", limits: defaults })
    const missing = yield* send("PATCH", "orgs/nobody", { name: "x" })
    expect([missing.status, faultOfError(missing)]).toEqual([404, undefined])
  })

  it.effect(
    "a reached limit of the platform interface is a 409 limit_reached that names it, and is counted",
    function* () {
      const { orgId, key } = yield* tenant
      const before = yield* reached("LIMIT_PROJECTS")
      const project = { name: "docs", orgId }
      const { json } = yield* send("POST", "projects", project)
      yield* send("POST", "projects", project)
      const answer = yield* send("POST", "projects", project, key)
      expect([answer.status, answer.json]).toEqual([
        409,
        {
          error:
            "The org has reached its limit of 2 projects (LIMIT_PROJECTS). To create another one, ask the administrator to raise limits.projects of the org.",
          code: "limit_reached",
        },
      ])
      expect(yield* reached("LIMIT_PROJECTS")).toBe(before! + 1)
      yield* patch(orgId, { limits: { keys: 1 } })
      const { projectId } = json as { readonly projectId: string }
      const { keys } = (yield* send("GET", `orgs/${orgId}/keys`)).json as {
        readonly keys: ReadonlyArray<{ readonly id: string }>
      }
      for (const [path, body] of [
        ["keys", { name: "ci", projectId }],
        [`orgs/${orgId}/keys`, { name: "ci" }],
        [`orgs/${orgId}/keys/${keys[0]!.id}/rotate`, {}],
      ] as const) {
        const refused = yield* send("POST", path, body)
        expect([refused.status, faultOfError(refused)], path).toEqual([409, undefined])
        expect(refused.json).toMatchObject({ code: "limit_reached", error: expect.stringContaining("1 API keys") })
      }
      // Nothing else of the org is affected.
      expect((yield* send("GET", `projects/${projectId}`, undefined, key)).status).toBe(200)
    },
  )

  it.effect("a reached limit of the webhook interface is a 409 limit_reached in its shape", function* () {
    const { orgId, ask, call } = yield* tenant
    yield* patch(orgId, { limits: { endpoints: 0, schedules: 0, unfinishedJobs: 1, storedBytes: 1_000_000 } })
    const cases = [
      ["webhooks/create", { url: nowhere, signing_secret: "secret" }, "0 webhook endpoints (LIMIT_ENDPOINTS)"],
      ["schedules/create", { workflow: "w", cron: "0 4 * * *" }, "0 schedules (LIMIT_SCHEDULES)"],
      ["jobs/create", { workflow: "w", input: "0".repeat(1_000_000) }, "1000000 stored bytes (LIMIT_STORED_BYTES)"],
    ] as const
    const refused = Effect.fnUntraced(function* (path: string, json: object, sentence: string) {
      const answer = yield* ask(path, json)
      expect([answer.status, faultOfWebhookError(answer)], path).toEqual([409, undefined])
      expect(answer.json).toMatchObject({ code: "limit_reached", message: expect.stringContaining(sentence) })
    })
    for (const [path, json, sentence] of cases) yield* refused(path, json, sentence)
    const { job_id } = yield* call("jobs/create", { workflow: "w", input: "0".repeat(980_000) })
    yield* refused("jobs/create", { workflow: "w" }, "1 unfinished jobs (LIMIT_UNFINISHED_JOBS)")
    const used = Effect.map(send("GET", `orgs/${orgId}`), ({ json }) => (json as { readonly used: object }).used)
    expect(yield* used).toMatchObject({ unfinishedJobs: 1 })
    yield* refused("jobs/complete", { job_id, result: "0".repeat(20_000) }, "1000000 stored bytes (LIMIT_STORED_BYTES)")
    // Finishing a job shortly is never refused.
    yield* call("jobs/complete", { job_id, result: "0".repeat(100) })
    expect(yield* used).toMatchObject({ unfinishedJobs: 0 })
  })

  it.effect("of waiting claims hold for each org, and a claim that ends frees its place", function* () {
    const [one, other] = [yield* tenant, yield* tenant]
    const waiting = { workflow: "w", wait_seconds: 30 }
    const claims = [yield* Effect.forkChild(one.ask("jobs/claim", waiting))]
    claims.push(yield* Effect.forkChild(one.ask("jobs/claim", waiting)))
    // The first claim waits, and the second is refused.
    const refused = yield* Effect.raceAllFirst(claims.map((claim) => Fiber.join(claim)))
    expect([refused.status, faultOfWebhookError(refused)]).toEqual([409, undefined])
    expect(refused.json).toMatchObject({
      code: "limit_reached",
      message:
        "The org has reached its limit of 1 waiting claims at this replica (LIMIT_WAITING_CLAIMS). Wait for the answer of one, or claim with wait_seconds 0.",
    })
    expect((yield* one.ask("jobs/claim", { workflow: "w" })).status).toBe(200)
    expect((yield* other.ask("jobs/claim", { ...waiting, wait_seconds: 1 })).json).toEqual({ jobs: [] })
    const { job_id } = yield* one.call("jobs/create", { workflow: "w" })
    const answers = yield* Effect.forEach(claims, (claim) => Fiber.join(claim))
    expect(answers.map(({ status }) => status).toSorted()).toEqual([200, 409])
    expect(answers.find(({ status }) => status === 200)!.json).toMatchObject({ jobs: [{ job_id }] })
    expect((yield* one.ask("jobs/claim", { ...waiting, wait_seconds: 1 })).json).toEqual({ jobs: [] })
  })

  it.effect("of pending deliveries deactivate the endpoint with the most, and events are still accepted", function* () {
    const { orgId, call, endpoint, finished } = yield* tenant
    yield* patch(orgId, { limits: { pendingDeliveries: 2 } })
    const id = yield* endpoint(nowhere)
    for (let n = 0; n < 3; n++) yield* finished()
    const shown = Effect.map(call("webhooks/list"), ({ webhook_endpoints }) => JSON.stringify(webhook_endpoints))
    yield* shown.pipe(
      Effect.repeat({ until: (all) => all.includes('"active":false'), schedule: Schedule.spaced("50 millis") }),
      Effect.timeout("25 seconds"),
    )
    const { json } = yield* send("GET", `orgs/${orgId}/audit`)
    const { entries } = json as { readonly entries: ReadonlyArray<object> }
    expect(entries[0]).toMatchObject({
      action: "webhook_endpoint.deactivate",
      actor: "service",
      target: id,
      details: { reason: "failing" },
    })
    expect((yield* send("GET", `orgs/${orgId}`)).json).toMatchObject({ used: { pendingDeliveries: 0 } })
    expect(yield* reached("LIMIT_PENDING_DELIVERIES")).toBe(1)
    yield* finished()
  })
})
