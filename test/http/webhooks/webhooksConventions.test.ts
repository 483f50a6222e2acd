import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { gzipSync } from "node:zlib"
import { layer } from "../../support/it.ts"
import { onPostgres, TestServer } from "../../support/server.ts"
import type { WireAnswer, WireRequest } from "../../support/wire.ts"
import { keysOf } from "../operations.ts"
import { makeTenant, type Tenant } from "../tenants.ts"
import {
  faultOfWebhookError,
  makeThings,
  webhookBody,
  webhookEntries,
  type WebhookOperationName,
} from "./webhookOperations.ts"

const json = { "content-type": "application/json" }
const MiB = 1024 * 1024
const withBody = webhookEntries.filter(([, { request, mayBeEmpty }]) => request !== undefined && mayBeEmpty !== true)

const expectError = (answer: WireAnswer, status: number, context = "") => {
  expect([answer.status, faultOfWebhookError(answer)], `${context.slice(0, 200)} ${answer.text.slice(0, 200)}`).toEqual(
    [status, undefined],
  )
  return (answer.json as { message: string }).message
}

/** Every field of every answer, written down here and not read from the definition under test. */
const fields: Record<WebhookOperationName, string> = {
  createEndpoint: "message,success,webhook_endpoint_id",
  listEndpoints: "webhook_endpoints",
  updateEndpoint: "message,success",
  deleteEndpoint: "message,success",
  testEndpoint: "body,delivered,error,event,payload,status,success",
  publicKey: "public_keys",
  rotatePublicKey: "public_keys",
  listDeliveries: "deliveries,next_cursor",
  getDelivery:
    "attempt_log,attempts,created_at,delivery_id,event,event_id,job_id,last_duration_ms,last_failure,last_status,next_attempt_at,payload,state,updated_at,webhook_endpoint_id",
  retryDelivery: "message,success",
  recoverDeliveries: "message,recovered,success",
  resendDeliveries: "count,is_all,message,resend_id,success",
  listResends: "resends",
  cancelResend: "code,message,success",
  listCauses: "causes",
  publishEvent: "deliveries,event_id,message,success",
  publishEvents: "deliveries,event_ids,message,success",
  listEvents: "events,next_cursor",
  getEvent: "channels,created_at,event_id,job_id,payload,type",
  listCatalogue: "event_types,next_cursor",
  getEventType: "created_at,deprecated,description,example,group,name,schemas,updated_at",
  createEventType: "message,success",
  updateEventType: "message,success",
  deleteEventType: "message,success",
  listEventTypes: "types",
  createJob: "created,job_id,message,success",
  createJobs: "job_ids,message,success",
  claimJobs: "jobs",
  heartbeatJob: "message,success",
  logJob: "message,success",
  getJobLogs: "lines",
  finishStep: "message,success",
  completeJob: "message,success",
  completeJobs: "jobs,message,success",
  failJob: "message,success",
  cancelJob: "message,success",
  retryJob: "count,is_all,message,success,sweep_id",
  listJobSweeps: "sweeps",
  cancelJobSweep: "code,message,success",
  listJobCauses: "causes",
  readJobQueue: "created,created_since,is_all,keys,oldest_due_at,workflows",
  getJob:
    "attempt,attempt_log,callback_url,concurrency_key,created_at,deployment_id,error,expires_at,finished_at,input,job_id,lease_expires_at,mapped_stack,max_attempts,note,priority,progress,result,retry_delay_seconds,run_at,skip_callbacks,status,steps,unique_key,updated_at,workflow",
  listJobs: "jobs,next_cursor",
  createSchedule: "message,schedule_id,success",
  listSchedules: "schedules",
  getSchedule:
    "active,callback_url,concurrency_key,created_at,cron,deployment_id,expires_in_seconds,input,last_job,max_attempts,next_at,next_times,overlap,priority,retry_delay_seconds,schedule_id,skip_callbacks,timezone,workflow",
  updateSchedule: "message,success",
  runSchedule: "job_id,message,success",
  deleteSchedule: "message,success",
  setWorkflow: "message,success",
  getWorkflow: "concurrency,concurrency_per_key,created_at,expires_in_seconds,rate,retry,updated_at,workflow",
  listWorkflows: "workflows",
  deleteWorkflow: "message,success",
}

/** No sweep runs long enough to be canceled here. */
const statusOf = (name: string) => (name === "cancelResend" || name === "cancelJobSweep" ? 404 : 200)

/** Calls an operation as its tenant. */
const asking =
  (tenant: Tenant, path: string) =>
  (request: WireRequest = {}) =>
    tenant.ask(path.slice(4), request.json, request)

/** Without retries during the test. */
const server = TestServer.layer(
  Effect.map(onPostgres(), (environment) => ({ ...environment, WEBHOOK_RETRY_DELAYS: "1h" })),
)

layer(server, { excludeTestServices: true })("conventions of the webhook interface", (it) => {
  it.effect("every operation answers 200 with exactly its fields, and refuses an unknown field", function* () {
    for (const [name, { path, request }] of webhookEntries) {
      const tenant = yield* makeTenant()
      const body = webhookBody(name, yield* makeThings(tenant))
      // An operation without a body reads none.
      if (request !== undefined) {
        const refused = yield* asking(tenant, path)({ json: { ...body, unknown_field: { a: [1] } } })
        expect(expectError(refused, 400, name)).toMatch(
          /unknown_field is not a field of this operation \(the nearest is |unknown_field is not a field of this operation, which has none\.$/,
        )
      }
      const queried = yield* asking(tenant, `${path}?limit=5`)({ json: body })
      expect(expectError(queried, 400, name)).toBe("limit is not a query parameter of this operation, which has none.")
      const answer = yield* asking(tenant, path)({ json: body })
      expect([answer.status, String(keysOf(answer.json))], `${name} ${answer.text}`).toEqual([
        statusOf(name),
        fields[name],
      ])
      expect(answer.headers).toMatchObject({ "content-type": "application/json", "cache-control": "no-store" })
      expect(answer.headers["x-request-id"], name).toMatch(/^[0-9a-f-]{36}$/)
    }
  })

  it.effect("a complete list accepts an empty object, and no body without a content type", function* () {
    const tenant = yield* makeTenant()
    yield* makeThings(tenant)
    for (const path of ["webhooks/list", "schedules/list"]) {
      const wanted = (yield* tenant.ask(path)).text
      expect(wanted).toContain("created_at")
      for (const request of [{ json: {} }, { body: "" }, { body: "{}" }, { body: "", headers: json }]) {
        const answer = yield* tenant.ask(path, undefined, request)
        expect([answer.status, answer.text]).toEqual([200, wanted])
      }
    }
  })

  for (const [name, { path }] of withBody) {
    it.effect(`${path}: refuses invalid and too large bodies`, function* () {
      const tenant = yield* makeTenant()
      const things = yield* makeThings(tenant)
      const ask = asking(tenant, path)
      for (const body of ["{", "", "[1,]", "NaN", "\u0000", "{}{}", '"\\ud800']) {
        expectError(yield* ask({ body, headers: json }), 400, body)
      }
      for (const body of ["null", "[]", '"text"', "1", "true"]) {
        expect(expectError(yield* ask({ body, headers: json }), 400, body)).toMatch(
          /must be a JSON object(?:: send \{.*\})?\.$/,
        )
      }
      expectError(yield* ask(), 400)
      for (const type of ["text/plain", "application/x-www-form-urlencoded", "x", ";"]) {
        expectError(yield* ask({ body: "{}", headers: { "content-type": type } }), 415, type)
      }
      const own = JSON.stringify(webhookBody(name, things))
      expectError(yield* ask({ body: gzipSync(own), headers: { ...json, "content-encoding": "gzip" } }), 400)
      expectError(yield* ask({ body: own, headers: { "content-type": "application/json; charset=utf-16" } }), 415)
      // The limit is 1 MiB, and 8 MiB for a batch of events.
      const max = ["publishEvents", "createJobs", "completeJobs"].includes(name) ? 8 * MiB : MiB
      const ofSize = (size: number) => `${own.slice(0, -1)}${" ".repeat(size - own.length)}}`
      const chunked = { ...json, "transfer-encoding": "chunked" }
      expectError(yield* ask({ body: ofSize(max + 1), headers: json }), 413)
      expectError(yield* ask({ body: ofSize(max + 1), headers: chunked }), 413)
      expect((yield* ask({ body: ofSize(max), headers: json })).status).toBe(statusOf(name))
    })
  }

  it.effect("text that no database column can store is a 400 that names its field", function* () {
    const tenant = yield* makeTenant()
    const things = yield* makeThings(tenant)
    const optional: Partial<Record<WebhookOperationName, ReadonlyArray<string>>> = {
      createEndpoint: ["description"],
      listDeliveries: ["webhook_endpoint_id", "job_id", "event_id", "event_type", "cursor", "state"],
      listEvents: ["type", "cursor"],
      publishEvent: ["idempotency_key"],
      createJob: ["deployment_id", "callback_url", "callback_secret", "idempotency_key"],
      listJobs: ["workflow", "cursor", "status"],
      createSchedule: ["timezone", "deployment_id", "callback_url", "callback_secret"],
    }
    let tried = 0
    for (const [name, { path }] of withBody) {
      const own = webhookBody(name, things)!
      for (const field of [...Object.keys(own), ...(optional[name] ?? [])]) {
        // Any JSON is stored as its text.
        if (["active", "data", "result", "dry_run", "example", "deprecated"].includes(field)) continue
        for (const text of ["a\\u0000b", "\\ud800", "a\\udc00\\ud800"]) {
          const { [field]: _, ...rest } = own as Record<string, unknown>
          const body = `{"${field}":"${text}",${JSON.stringify({ ...rest, unknown: 1 }).slice(1)}`
          const sentence = expectError(yield* asking(tenant, path)({ body, headers: json }), 400, body)
          expect(sentence, body).toContain(`${field} must be `)
          tried++
        }
      }
    }
    expect(tried).toBeGreaterThan(90)
  })

  it.effect("an error names the field and the rule, never the value, and lists all faults at once", function* () {
    const tenant = yield* makeTenant()
    const whole = (from: number, to: number) => `must be a whole number from ${from} to ${to}.`
    const cases: ReadonlyArray<readonly [string, object, string]> = [
      [
        "webhooks/deliveries/list",
        { state: "Secret" },
        "state must be one of pending, delivered, failed, canceled, skipped.",
      ],
      ["webhooks/deliveries/list", { limit: 0 }, `limit ${whole(1, 100)}`],
      ["webhooks/deliveries/list", { limit: 101 }, `limit ${whole(1, 100)}`],
      ["webhooks/deliveries/list", { limit: null }, "limit must be a number."],
      ["webhooks/deliveries/list", { cursor: "secret" }, "cursor must be the cursor of an earlier answer."],
      ["webhooks/deliveries/get", {}, "delivery_id is required."],
      ["webhooks/deliveries/recover", {}, "webhook_endpoint_id is required; since is required."],
      [
        "webhooks/deliveries/recover",
        { webhook_endpoint_id: "x", since: "2026-02-30T00:00:00Z" },
        "since must be an ISO 8601 time with a zone, as in 2026-11-20T17:00:00.000Z.",
      ],
      ["jobs/create", {}, "workflow is required."],
      ["jobs/create", { workflow: "" }, "workflow must be at least 1 character."],
      ["jobs/create", { workflow: "w".repeat(256) }, "workflow must be at most 255 characters."],
      [
        "jobs/create",
        { workflow: 7, skip_callbacks: "no" },
        "workflow must be a string; skip_callbacks must be true or false.",
      ],
      ["jobs/claim", { limit: 101 }, `limit ${whole(1, 100)}`],
      ["jobs/claim", { lease_seconds: 0 }, `lease_seconds ${whole(1, 3600)}`],
      ["jobs/claim", { lease_seconds: 3601 }, `lease_seconds ${whole(1, 3600)}`],
      ["jobs/claim", { wait_seconds: 31 }, `wait_seconds ${whole(0, 30)}`],
      ["jobs/claim", { wait_seconds: -1 }, `wait_seconds ${whole(0, 30)}`],
      ["jobs/fail", { job_id: "x" }, "error is required."],
      ["jobs/fail", { job_id: "x", error: null }, "error must be a string."],
      ["jobs/list", { status: "done" }, "status must be one of queued, running, completed, failed, canceled."],
      ["schedules/create", { workflow: "w" }, "cron is required."],
      ["schedules/create", { workflow: "w", cron: "0 4 30 2 *" }, "cron names dates that never come."],
      [
        "schedules/create",
        { workflow: "w", cron: "0 4 * * *", timezone: "Mars/Olympus" },
        "timezone must be an IANA time zone, as in Europe/Berlin, or an offset of at most 14 hours, as in +05:30.",
      ],
    ]
    for (const [path, body, sentence] of cases) {
      expect(expectError(yield* tenant.ask(path, body), 400, path)).toBe(sentence)
    }
    for (const cron of ["secret", "* * *", "60 * * * *", "* * * * * * *"]) {
      const answer = yield* tenant.ask("schedules/create", { workflow: "w", cron })
      expect(expectError(answer, 400, cron)).toMatch(/^cron (must|is|has) /)
    }
  })

  it.effect(
    "an unknown path is a 404 and a wrong method a 405, in this interface's shape, with and without a key",
    function* () {
      const { send } = yield* TestServer
      const { headers } = yield* makeTenant()
      const answer = {
        success: false,
        code: "not_found",
      }
      const unknown = [
        ["/v1/webhooks", "There are /v1/webhooks/create, "],
        ["/v1/webhooks/list/", "Leave out the slash at its end."],
        ["/v1/webhooks/List", "Did you mean POST /v1/webhooks/list?"],
        ["/v1//webhooks/list", "Did you mean POST /v1/webhooks/list?"],
        ["/v1/jobs/x", "There are /v1/jobs/create, "],
      ] as const
      for (const [path, hint] of unknown) {
        expectError(yield* send("POST", path, { json: {} }), 404, path)
        const message = expect.stringContaining(`There is no operation at this path. ${hint}`)
        expect((yield* send("POST", path, { json: {}, headers })).json).toEqual({ ...answer, message })
      }
      for (const [, { path }] of webhookEntries) {
        for (const method of ["GET", "PUT", "PATCH", "DELETE", "OPTIONS"]) {
          const refused = yield* send(method, path, { headers })
          expect([refused.status, refused.headers.allow], `${method} ${path}`).toEqual([405, "POST"])
          const message = `This path takes POST, not ${method}.`
          expect(refused.json).toEqual({ success: false, message, code: "method_not_allowed" })
        }
      }
      const expectation = yield* send("POST", "/v1/webhooks/list", { headers: { ...headers, expect: "tea" } })
      expect([expectation.status, String(keysOf(expectation.json))]).toEqual([417, "code,message,success"])
    },
  )
})
