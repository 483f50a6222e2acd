import { Effect, Schema } from "effect"
import { Delivery, DeliveryDetail } from "#src/domain/webhooks/DeliveryLog.ts"
import {
  ClaimedJob,
  ClaimJobs,
  CompleteJob,
  CompleteJobs,
  CreateJob,
  CreateJobs,
  FailJob,
  HeartbeatJob,
  Job,
  JobDetail,
  LogJob,
  StepJob,
} from "#src/domain/jobs/Job.ts"
import { CancelJobs, RetryJobs } from "#src/domain/jobs/JobSweep.ts"
import { JobQueue } from "#src/domain/jobs/JobCounts.ts"
import { CreateJobSchedule, JobSchedule, JobScheduleDetail, UpdateJobSchedule } from "#src/domain/jobs/JobSchedule.ts"
import { SetWorkflow, Workflow } from "#src/domain/jobs/WorkflowSettings.ts"
import { Event, EventDetail, SeenEventType } from "#src/domain/webhooks/Event.ts"
import { PublishEvent, PublishEvents } from "#src/domain/webhooks/Events.ts"
import { CatalogueType, CreateEventType, UpdateEventType } from "#src/domain/webhooks/EventTypes.ts"
import { CreateWebhookEndpoint, UpdateWebhookEndpoint, WebhookEndpoint } from "#src/domain/webhooks/WebhookEndpoint.ts"
import type { WireAnswer } from "../../support/wire.ts"
import { faultOfError, keysOf, type Operation } from "../operations.ts"
import type { Tenant } from "../tenants.ts"

const done = { success: Schema.Literal(true), message: Schema.String }
const list = (name: string, item: Schema.Codec<unknown, unknown>) => Schema.Struct({ [name]: Schema.Array(item) })
const page = (name: string, item: Schema.Codec<unknown, unknown>) =>
  Schema.Struct({ [name]: Schema.Array(item), next_cursor: Schema.NullOr(Schema.String) })
const paging = { limit: Schema.optionalKey(Schema.Int), cursor: Schema.optionalKey(Schema.String) }

const post = (
  path: string,
  request: Schema.Codec<unknown, unknown> | undefined,
  response: Schema.Struct.Fields,
  errors: ReadonlyArray<404 | 409 | 422> = [],
): Operation => ({
  method: "POST",
  path: `/v1/${path}`,
  request,
  response: Schema.Struct(response) as unknown as Schema.Codec<unknown, unknown>,
  errors: request === undefined ? [400, 401] : [400, 401, ...errors, 413, 415],
})

/** A list that is returned whole without a body, or in pages. */
const wholeList = (
  path: string,
  name: string,
  item: Schema.Codec<unknown, unknown>,
  more: Schema.Struct.Fields = {},
): Operation => ({
  ...post(path, Schema.Struct({ ...paging, ...more }) as unknown as Schema.Codec<unknown, unknown>, {
    ...list(name, item).fields,
    next_cursor: Schema.optionalKey(Schema.String),
  }),
  mayBeEmpty: true,
})

/** Operations under /v1, written down here and not read from the definition under test. */
export const webhookOperations = {
  createEndpoint: post(
    "webhooks/create",
    CreateWebhookEndpoint,
    { ...done, webhook_endpoint_id: Schema.String, signing_secret: Schema.optionalKey(Schema.String) },
    [409, 422],
  ),
  listEndpoints: wholeList("webhooks/list", "webhook_endpoints", WebhookEndpoint, {
    webhook_endpoint_ids: Schema.optionalKey(Schema.Array(Schema.String)),
  }),
  updateEndpoint: post("webhooks/update", UpdateWebhookEndpoint, done, [404, 409]),
  deleteEndpoint: post("webhooks/delete", Schema.Struct({ id: Schema.String }), done, [404]),
  testEndpoint: post(
    "webhooks/test",
    Schema.Struct({
      id: Schema.String,
      type: Schema.optionalKey(Schema.String),
      data: Schema.optionalKey(Schema.Unknown),
    }),
    {
      success: Schema.Literal(true),
      event: Schema.String,
      payload: Schema.String,
      delivered: Schema.Boolean,
      status: Schema.NullOr(Schema.Int),
      body: Schema.NullOr(Schema.String),
      error: Schema.NullOr(Schema.String),
    },
    [404, 409],
  ),
  publicKey: {
    ...post("webhooks/public-key", Schema.Struct({}), { public_keys: Schema.Array(Schema.String) }),
    mayBeEmpty: true,
  },
  rotatePublicKey: {
    ...post("webhooks/public-key/rotate", Schema.Struct({}), { public_keys: Schema.Array(Schema.String) }, [409, 422]),
    mayBeEmpty: true,
  },
  listDeliveries: post(
    "webhooks/deliveries/list",
    Schema.Struct({
      webhook_endpoint_id: Schema.optionalKey(Schema.String),
      job_id: Schema.optionalKey(Schema.String),
      event_id: Schema.optionalKey(Schema.String),
      event_type: Schema.optionalKey(Schema.String),
      since: Schema.optionalKey(Schema.String),
      until: Schema.optionalKey(Schema.String),
      state: Schema.optionalKey(Schema.String),
      ...paging,
    }),
    page("deliveries", Delivery).fields,
  ),
  getDelivery: post(
    "webhooks/deliveries/get",
    Schema.Struct({ delivery_id: Schema.String }),
    DeliveryDetail.fields,
    [404],
  ),
  retryDelivery: post("webhooks/deliveries/retry", Schema.Struct({ delivery_id: Schema.String }), done, [404, 409]),
  recoverDeliveries: post(
    "webhooks/deliveries/recover",
    Schema.Struct({ webhook_endpoint_id: Schema.String, since: Schema.String }),
    { ...done, recovered: Schema.Int },
    [404, 409],
  ),
  resendDeliveries: post(
    "webhooks/deliveries/resend",
    Schema.Struct({ filter: Schema.Struct({}), dry_run: Schema.optionalKey(Schema.Boolean) }),
    { ...done, count: Schema.Int, is_all: Schema.Boolean, resend_id: Schema.NullOr(Schema.String) },
    [409],
  ),
  listResends: {
    ...post("webhooks/deliveries/resends", Schema.Struct({}), { resends: Schema.Array(Schema.Unknown) }),
    mayBeEmpty: true,
  },
  cancelResend: post("webhooks/deliveries/resend/cancel", Schema.Struct({ resend_id: Schema.String }), done, [404]),
  listCauses: post(
    "webhooks/deliveries/causes",
    Schema.Struct({
      webhook_endpoint_id: Schema.optionalKey(Schema.String),
      since: Schema.optionalKey(Schema.String),
      until: Schema.optionalKey(Schema.String),
    }),
    { causes: Schema.Array(Schema.Unknown) },
  ),
  publishEvent: post(
    "events/publish",
    PublishEvent,
    { ...done, event_id: Schema.String, deliveries: Schema.Int },
    [409, 422],
  ),
  publishEvents: post(
    "events/publish-batch",
    PublishEvents,
    { ...done, event_ids: Schema.Array(Schema.String), deliveries: Schema.Array(Schema.Int) },
    [409, 422],
  ),
  listEvents: post(
    "events/list",
    Schema.Struct({ type: Schema.optionalKey(Schema.String), ...paging }),
    page("events", Event).fields,
  ),
  getEvent: post("events/get", Schema.Struct({ event_id: Schema.String }), EventDetail.fields, [404]),
  listCatalogue: post("event-types/list", Schema.Struct(paging), page("event_types", CatalogueType).fields),
  getEventType: post("event-types/get", Schema.Struct({ name: Schema.String }), CatalogueType.fields, [404]),
  createEventType: post("event-types/create", CreateEventType, done, [409, 422]),
  updateEventType: post("event-types/update", UpdateEventType, done, [404, 409]),
  deleteEventType: post("event-types/delete", Schema.Struct({ name: Schema.String }), done, [404]),
  listEventTypes: wholeList("events/types", "types", SeenEventType),
  createJob: post("jobs/create", CreateJob, { ...done, job_id: Schema.String, created: Schema.Boolean }, [409, 422]),
  createJobs: post("jobs/create-batch", CreateJobs, { ...done, job_ids: Schema.Array(Schema.String) }, [409, 422]),
  claimJobs: post("jobs/claim", ClaimJobs, list("jobs", ClaimedJob).fields, [409]),
  heartbeatJob: post("jobs/heartbeat", HeartbeatJob, done, [404, 409]),
  logJob: post("jobs/log", LogJob, done, [404, 409]),
  getJobLogs: post(
    "jobs/logs",
    Schema.Struct({ job_id: Schema.String }),
    { lines: Schema.Array(Schema.Unknown) },
    [404],
  ),
  finishStep: post("jobs/step", StepJob, done, [404, 409]),
  completeJob: post("jobs/complete", CompleteJob, done, [404, 409]),
  completeJobs: post("jobs/complete-batch", CompleteJobs, { ...done, jobs: Schema.Array(Schema.Unknown) }),
  failJob: post("jobs/fail", FailJob, done, [404, 409]),
  cancelJob: post("jobs/cancel", CancelJobs, done, [404, 409]),
  retryJob: post(
    "jobs/retry",
    RetryJobs,
    { ...done, count: Schema.Int, is_all: Schema.Boolean, sweep_id: Schema.NullOr(Schema.String) },
    [404, 409],
  ),
  listJobSweeps: {
    ...post("jobs/sweeps", Schema.Struct({}), { sweeps: Schema.Array(Schema.Unknown) }),
    mayBeEmpty: true,
  },
  cancelJobSweep: post("jobs/sweeps/cancel", Schema.Struct({ sweep_id: Schema.String }), done, [404]),
  listJobCauses: post(
    "jobs/causes",
    Schema.Struct({
      workflow: Schema.optionalKey(Schema.String),
      since: Schema.optionalKey(Schema.String),
      until: Schema.optionalKey(Schema.String),
    }),
    { causes: Schema.Array(Schema.Unknown) },
  ),
  readJobQueue: { ...post("jobs/queue", Schema.Struct({}), JobQueue.fields), mayBeEmpty: true },
  getJob: post("jobs/get", Schema.Struct({ job_id: Schema.String }), JobDetail.fields, [404]),
  listJobs: post(
    "jobs/list",
    Schema.Struct({
      status: Schema.optionalKey(Schema.String),
      workflow: Schema.optionalKey(Schema.String),
      error: Schema.optionalKey(Schema.String),
      since: Schema.optionalKey(Schema.String),
      until: Schema.optionalKey(Schema.String),
      ...paging,
    }),
    page("jobs", Job).fields,
  ),
  createSchedule: post("schedules/create", CreateJobSchedule, { ...done, schedule_id: Schema.String }, [409, 422]),
  listSchedules: wholeList("schedules/list", "schedules", JobSchedule),
  getSchedule: post("schedules/get", Schema.Struct({ schedule_id: Schema.String }), JobScheduleDetail.fields, [404]),
  updateSchedule: post("schedules/update", UpdateJobSchedule, done, [404, 409]),
  runSchedule: post(
    "schedules/run",
    Schema.Struct({ schedule_id: Schema.String }),
    { ...done, job_id: Schema.String },
    [404, 409],
  ),
  deleteSchedule: post("schedules/delete", Schema.Struct({ schedule_id: Schema.String }), done, [404]),
  setWorkflow: post("workflows/set", SetWorkflow, done, [409]),
  getWorkflow: post("workflows/get", Schema.Struct({ workflow: Schema.String }), Workflow.fields, [404]),
  listWorkflows: {
    ...post("workflows/list", Schema.Struct({}), { workflows: Schema.Array(Workflow) }),
    mayBeEmpty: true,
  },
  deleteWorkflow: post("workflows/delete", Schema.Struct({ workflow: Schema.String }), done, [404]),
}
export type WebhookOperationName = keyof typeof webhookOperations

export const webhookEntries = Object.entries(webhookOperations) as ReadonlyArray<
  readonly [WebhookOperationName, Operation]
>

/** An id that does not exist. */
export const nobody = "01KAHBMKZ3D2X7S5QN8W4V6R9T"
/** A url where nothing listens. */
export const nowhere = "http://127.0.0.1:9/"

/** A valid body of each operation, with ids of existing resources. */
export const webhookBody = (name: WebhookOperationName, ids: Readonly<Record<string, string>>): object | undefined => {
  const { endpoint, delivery, event, schedule, queued, running } = ids
  const bodies: Partial<Record<WebhookOperationName, object>> = {
    createEndpoint: { url: "https://receiver.example/", signing_secret: "secret", active: false },
    updateEndpoint: { id: endpoint, description: "changed" },
    deleteEndpoint: { id: endpoint },
    testEndpoint: { id: endpoint },
    listDeliveries: {},
    getDelivery: { delivery_id: delivery },
    retryDelivery: { delivery_id: delivery },
    recoverDeliveries: { webhook_endpoint_id: endpoint, since: "2020-01-01T00:00:00Z" },
    resendDeliveries: { filter: {}, dry_run: true },
    listResends: {},
    cancelResend: { resend_id: nobody },
    listCauses: {},
    publishEvent: { type: "invoice.paid", data: { invoice: "in_42" } },
    publishEvents: { events: [{ type: "invoice.paid", data: null }] },
    listEvents: {},
    getEvent: { event_id: event },
    listCatalogue: {},
    getEventType: { name: "order.placed" },
    createEventType: { name: "order.shipped", schemas: { "1": { type: "object" } }, example: {} },
    updateEventType: { name: "order.placed", deprecated: true },
    deleteEventType: { name: "order.placed" },
    createJob: { workflow: "w" },
    createJobs: { jobs: [{ workflow: "w" }, { workflow: "w", input: null }] },
    claimJobs: { workflow: "none" },
    heartbeatJob: { job_id: running },
    logJob: { job_id: running, attempt: 1, lines: [{ text: "begun" }] },
    getJobLogs: { job_id: running },
    finishStep: { job_id: running, attempt: 1, name: "first", result: 1 },
    completeJob: { job_id: queued },
    completeJobs: { jobs: [{ job_id: queued }] },
    failJob: { job_id: queued, error: "broken" },
    cancelJob: { job_id: queued },
    retryJob: { filter: { workflow: "w" }, dry_run: true },
    listJobSweeps: {},
    cancelJobSweep: { sweep_id: nobody },
    listJobCauses: {},
    readJobQueue: {},
    getJob: { job_id: queued },
    listJobs: {},
    createSchedule: { workflow: "w", cron: "0 4 * * *" },
    getSchedule: { schedule_id: schedule },
    updateSchedule: { schedule_id: schedule, active: false },
    runSchedule: { schedule_id: schedule },
    deleteSchedule: { schedule_id: schedule },
    setWorkflow: { workflow: "limited", concurrency: 5, rate: { limit: 10, window_seconds: 60 } },
    getWorkflow: { workflow: "limited" },
    listWorkflows: {},
    deleteWorkflow: { workflow: "limited" },
  }
  return bodies[name]
}

/** Creates one of each resource with an id, so that each operation can be called once. */
export const makeThings = Effect.fnUntraced(function* (tenant: Tenant, url = nowhere) {
  const endpoint = yield* tenant.endpoint(url)
  // After its attempt, the delivery is not in flight for some seconds.
  const { delivery_id: delivery, event_id: event } = yield* tenant.attempted(yield* tenant.finished())
  const { job_id: running } = yield* tenant.call("jobs/create", { workflow: "running" })
  yield* tenant.call("jobs/claim", { workflow: "running" })
  const { job_id: queued } = yield* tenant.call("jobs/create", { workflow: "queued", skip_callbacks: true })
  const { schedule_id: schedule } = yield* tenant.call("schedules/create", { workflow: "w", cron: "0 4 * * *" })
  yield* tenant.call("workflows/set", { workflow: "limited", concurrency: 5 })
  yield* tenant.call("event-types/create", { name: "order.placed" })
  return { endpoint, delivery, event, running: running!, queued: queued!, schedule: schedule! }
})

/** The fault of an error answer of the webhook interface; undefined when it is as documented. */
export const faultOfWebhookError = (answer: WireAnswer): string | undefined => {
  if (String(keysOf(answer.json)) !== "code,message,success") return `the fields are ${String(keysOf(answer.json))}`
  const { success, message, code } = answer.json as Record<string, unknown>
  return success === false ? faultOfError({ ...answer, json: { error: message, code } }) : "success is not false"
}
