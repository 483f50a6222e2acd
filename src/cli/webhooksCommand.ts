import { Effect, Option, Struct } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { counted } from "../domain/counted.ts"
import { type DeliveryCause, DeliveryState, ResendFilter } from "../domain/webhooks/DeliveryLog.ts"
import {
  CreateWebhookEndpoint,
  GetWebhookEndpoint,
  TestWebhookEndpoint,
  UpdateWebhookEndpoint,
} from "../domain/webhooks/WebhookEndpoint.ts"
import { PublishEvent } from "../domain/webhooks/Events.ts"
import { urlFault } from "../domain/webhooks/ReceiverUrl.ts"
import { call, callPages, inFlags } from "./call.ts"
import { actFor, actForFlag, clearFlag, given, JsonText, page, payloadFlags, time } from "./flags.ts"
import { op } from "./operation.ts"
import { columns, CommandFailed, plain, said, table, usage } from "./output.ts"
import { withSigningSecret } from "./secretInput.ts"

/** Lists deliveries. */
const deliveries = Command.make(
  "deliveries",
  {
    endpoint: Argument.String("endpoint").pipe(
      Argument.withDescription("The webhook endpoint's id"),
      Argument.optional,
    ),
    job: Flag.String("job").pipe(Flag.withDescription("Only deliveries of this job"), Flag.optional),
    event: Flag.String("event").pipe(Flag.withDescription("Only deliveries of the event with this id"), Flag.optional),
    type: Flag.String("type").pipe(
      Flag.withDescription("Only deliveries of events of this type, such as invoice.paid"),
      Flag.optional,
    ),
    state: Flag.Literals("state", DeliveryState.literals).pipe(
      Flag.withDescription("Only deliveries in this state"),
      Flag.optional,
    ),
    ...payloadFlags(Struct.pick(ResendFilter.fields, ["status", "failure"])),
    since: time("since").pipe(
      Flag.withDescription("Only deliveries that were created from this time on"),
      Flag.optional,
    ),
    until: time("until").pipe(
      Flag.withDescription("Only deliveries that were created before this time"),
      Flag.optional,
    ),
    ...page,
  },
  ({ endpoint, event, failure, job, since, state, status, type, until, ...page }) =>
    callPages(
      page,
      (gatehouse, payload) =>
        gatehouse.deliveries.list({
          payload: {
            ...payload,
            ...given({
              webhook_endpoint_id: endpoint,
              job_id: job,
              event_id: event,
              event_type: type,
              state,
              status,
              failure,
              since,
              until,
            }),
          },
        }),
      ({ deliveries }) =>
        table(
          ["DELIVERY", "ENDPOINT", "JOB", "EVENT", "STATE", "ATTEMPTS", "NEXT ATTEMPT", "CREATED"],
          deliveries.map((one) => [
            one.delivery_id,
            one.webhook_endpoint_id ?? "callback",
            one.job_id,
            one.event,
            one.state,
            one.attempts,
            one.next_attempt_at,
            one.created_at,
          ]),
        ),
    ),
).pipe(Command.withDescription("List deliveries, newest first: all, or those of one endpoint"))

/** Resends a delivery. */
const retry = Command.make(
  "retry",
  { delivery: Argument.String("delivery").pipe(Argument.withDescription("The delivery's id")) },
  ({ delivery }) =>
    call(
      (gatehouse) => gatehouse.deliveries.retry({ payload: { delivery_id: delivery } }),
      () => ({ out: "", note: `The delivery ${delivery} is sent again.` }),
    ),
).pipe(Command.withDescription("Resend a delivery now; its retries start again"))

/** Shows a delivery with its attempts. */
const delivery = Command.make(
  "delivery",
  { delivery: Argument.String("delivery").pipe(Argument.withDescription("The delivery's id")) },
  ({ delivery }) =>
    call(
      (gatehouse) => gatehouse.deliveries.get({ payload: { delivery_id: delivery } }),
      ({ attempt_log, attempts, event, payload, state }) => ({
        out: table(
          ["ATTEMPT", "STARTED", "MILLISECONDS", "STATUS", "FAILURE", "ANSWER"],
          attempt_log.map((one) => [
            one.number,
            one.started_at,
            one.duration_ms,
            one.status,
            one.failure,
            one.error ?? one.body,
          ]),
        ),
        note: `${event} is ${state} after ${counted(attempts, "attempt")}. Body: ${plain(payload)}`,
      }),
    ),
).pipe(Command.withDescription("Show a delivery: its body, and every attempt with the receiver's response"))

/** Resends what an endpoint missed. */
const recover = Command.make(
  "recover",
  {
    endpoint: Argument.String("endpoint").pipe(Argument.withDescription("The webhook endpoint's id")),
    since: time("since").pipe(Flag.withDescription("Only events from this time on, for example 2026-11-20T17:00:00Z")),
    until: time("until").pipe(Flag.withDescription("Only events before this time (default: now)"), Flag.optional),
  },
  ({ endpoint, since, until }) =>
    call(
      (gatehouse) =>
        gatehouse.deliveries.recover({ payload: { webhook_endpoint_id: endpoint, since, ...given({ until }) } }),
      ({ recovered }) => ({ out: String(recovered), note: `${recovered} deliveries are sent again.` }),
    ),
).pipe(
  Command.withDescription("Resend the failed, canceled and skipped deliveries of an endpoint since a time"),
  Command.withExamples([
    { command: "gatehouse webhooks recover 01KAHBMKZ3D2X7S5QN8W4V6R9T --since 2026-11-20T17:00:00Z" },
  ]),
)

/** Resends what a filter selects. */
const resend = Command.make(
  "resend",
  {
    endpoint: Flag.String("endpoint").pipe(
      Flag.withDescription("Only deliveries of this webhook endpoint"),
      Flag.optional,
    ),
    type: Flag.String("type").pipe(
      Flag.withDescription("Only deliveries of events of this type, such as invoice.paid"),
      Flag.optional,
    ),
    ...payloadFlags(Struct.omit(ResendFilter.fields, ["webhook_endpoint_id", "event_type"])),
    dryRun: Flag.Boolean("dry-run").pipe(Flag.withDescription("Only count"), Flag.withDefault(false)),
  },
  ({ dryRun, endpoint, type, ...filter }) =>
    call(
      (gatehouse) =>
        gatehouse.deliveries.resend({
          payload: {
            filter: given({ ...filter, webhook_endpoint_id: endpoint, event_type: type }),
            dry_run: dryRun,
          },
        }),
      ({ count, message, resend_id }) => ({ out: resend_id ?? String(count), note: message }),
    ),
).pipe(
  Command.withDescription(
    "Resend the failed, canceled and skipped deliveries that a filter selects, in the background",
  ),
  Command.withExamples([
    { command: "gatehouse webhooks resend --status 503 --since 2026-11-20T14:00:00Z --dry-run" },
    { command: "gatehouse webhooks resend --status 503 --since 2026-11-20T14:00:00Z" },
  ]),
)

const resends = Command.make("resends", {}, () =>
  call(
    (gatehouse) => gatehouse.deliveries.resends({ payload: {} }),
    ({ resends }) => ({
      out: table(
        ["RESEND", "STARTED", "RESENT", "OF", "FILTER"],
        resends.map((one) => [one.resend_id, one.created_at, one.resent, one.count, JSON.stringify(one.filter)]),
      ),
    }),
  ),
).pipe(Command.withDescription("List the resends that are running"))

const cancelResend = Command.make(
  "cancel-resend",
  { resend: Argument.String("resend").pipe(Argument.withDescription("The id of the resend")) },
  ({ resend }) => call((gatehouse) => gatehouse.deliveries.cancelResend({ payload: { resend_id: resend } }), said),
).pipe(Command.withDescription("Cancel the rest of a resend"))

/** The endpoints of a cause: those with most of its deliveries, and how many others there are. */
const topEndpoints = ({ endpoints, top_endpoints: top }: DeliveryCause) =>
  [
    ...top.map((one) => `${one.name ?? "deleted"} (${one.webhook_endpoint_id}) × ${one.deliveries}`),
    ...(endpoints > top.length ? [`${endpoints - top.length} more`] : []),
  ].join(", ")

const causes = Command.make(
  "causes",
  {
    endpoint: Argument.String("endpoint").pipe(
      Argument.withDescription("The webhook endpoint's id"),
      Argument.optional,
    ),
    since: time("since").pipe(Flag.withDescription("Only deliveries from this time on"), Flag.optional),
    until: time("until").pipe(Flag.withDescription("Only deliveries before this time"), Flag.optional),
  },
  ({ endpoint, since, until }) =>
    call(
      (gatehouse) => gatehouse.deliveries.causes({ payload: given({ webhook_endpoint_id: endpoint, since, until }) }),
      ({ causes }) => ({
        out: table(
          ["DELIVERIES", "ENDPOINTS", "STATUS", "FAILURE", "LATEST", "TEXT"],
          causes.map((one) => [
            one.deliveries,
            topEndpoints(one),
            one.status,
            one.failure,
            one.latest.delivery_id,
            one.latest.text,
          ]),
        ),
      }),
    ),
).pipe(Command.withDescription("Group the newest failures by their cause, the most first"))

const endpoint = Argument.String("endpoint").pipe(Argument.withDescription("The id of the webhook endpoint"))

/** Fails for a bad URL before the prompt for a secret. In guarded mode the service also requires https. */
const checkUrl = Effect.fnUntraced(function* (url: string) {
  const fault = urlFault(url, { httpsOnly: false })
  if (fault !== undefined) return yield* usage(inFlags(`url ${fault}`))
})

const noteOf = (warning: string | undefined) => (warning === undefined ? "" : ` ${plain(warning)}`)

const create = Command.make(
  "create",
  {
    url: Argument.String("url").pipe(Argument.withDescription("The URL that receives deliveries")),
    ...payloadFlags(
      Struct.omit(CreateWebhookEndpoint.fields, ["url", "signing_secret", "generate_signing_secret", "active"]),
    ),
    inactive: Flag.Boolean("inactive").pipe(
      Flag.withDescription("Create the endpoint inactive; it receives nothing until you activate it"),
      Flag.withDefault(false),
    ),
  },
  Effect.fnUntraced(function* ({ inactive, url, ...settings }) {
    yield* checkUrl(url)
    yield* withSigningSecret((signing_secret) =>
      call(
        (gatehouse) =>
          gatehouse.webhooks.create({ payload: { url, signing_secret, active: !inactive, ...given(settings) } }),
        ({ warning, webhook_endpoint_id: id }) => ({
          out: id,
          note: `The endpoint is created.${noteOf(warning)} To test it: gatehouse webhooks test ${id}`,
        }),
      ),
    )
  }),
).pipe(
  Command.withDescription(
    "Create a webhook endpoint; its signing secret comes from GATEHOUSE_WEBHOOK_SECRET or standard input, or is made and printed",
  ),
  Command.withExamples([{ command: "gatehouse webhooks create https://example.com/webhooks" }]),
)

const list = op("webhooks.list", {
  show: ({ webhook_endpoints }) =>
    columns(webhook_endpoints, {
      ENDPOINT: "webhook_endpoint_id",
      URL: "url",
      ACTIVE: "active",
      "FAILING SINCE": "failing_since",
      REASON: "deactivated_reason",
      DESCRIPTION: "description",
    }),
})

const byId = { endpoint: Argument.optional(endpoint), ...payloadFlags(Struct.omit(GetWebhookEndpoint.fields, ["id"])) }

const show = Command.make("show", byId, ({ endpoint, external_id }) =>
  call(
    (gatehouse) => gatehouse.webhooks.get({ payload: given({ id: endpoint, external_id }) }),
    ({ active, deactivated_at, deactivated_reason, deliveries, failing_since, health, url }) => ({
      out: table(
        [
          "ACTIVE",
          "FAILING SINCE",
          "DEACTIVATED",
          "REASON",
          ...Object.keys(deliveries).map((state) => state.toUpperCase()),
        ],
        [[active ? "yes" : "no", failing_since, deactivated_at, deactivated_reason, ...Object.values(deliveries)]],
      ),
      note: [
        plain(url),
        ...health.map(
          ({ attempts, causes, delivered, p95_ms, since }) =>
            `Since ${since.toJSON()}: ${delivered} of ${counted(attempts, "attempt")} delivered` +
            (p95_ms === null ? "" : `, 95 of 100 responses within ${p95_ms} ms`) +
            causes.map(({ attempts, cause }) => `, ${attempts} × ${cause}`).join(""),
        ),
      ].join("\n"),
    }),
  ),
).pipe(Command.withDescription("Show a webhook endpoint: its health, and its newest deliveries by state"))

const changes = Struct.omit(UpdateWebhookEndpoint.fields, ["id", "signing_secret"])

const update = Command.make(
  "update",
  {
    endpoint,
    ...payloadFlags(changes, { url: "to" }),
    clear: clearFlag(changes),
    newSecret: Flag.Boolean("new-secret").pipe(
      Flag.withDescription(
        "Set a new signing secret from GATEHOUSE_WEBHOOK_SECRET or standard input, or make one; the old one also signs for 24 hours",
      ),
      Flag.withDefault(false),
    ),
  },
  Effect.fnUntraced(function* ({ clear, endpoint, newSecret, ...flags }) {
    const changes = { ...clear, ...given(flags) }
    if (Object.keys(changes).length === 0 && !newSecret) {
      return yield* usage("Nothing to change: set --to, --event-type, --no-active, --new-secret or another setting")
    }
    if (Option.isSome(flags.url)) yield* checkUrl(flags.url.value)
    const change = (secret: { readonly signing_secret?: string }) =>
      call(
        (gatehouse) => gatehouse.webhooks.update({ payload: { id: endpoint, ...changes, ...secret } }),
        ({ warning }) => ({ out: "", note: `The endpoint ${endpoint} is changed.${noteOf(warning)}` }),
      )
    yield* newSecret ? withSigningSecret((signing_secret) => change({ signing_secret })) : change({})
  }),
).pipe(
  Command.withDescription("Change a webhook endpoint; other fields stay"),
  Command.withExamples([
    { command: "gatehouse webhooks update 01KAHBMKZ3D2X7S5QN8W4V6R9T --to https://example.com/hooks" },
    { command: "gatehouse webhooks update 01KAHBMKZ3D2X7S5QN8W4V6R9T --no-active" },
  ]),
)

const remove = Command.make("delete", { endpoint }, ({ endpoint }) =>
  call(
    (gatehouse) => gatehouse.webhooks.delete({ payload: { id: endpoint } }),
    () => ({ out: "", note: `The endpoint ${endpoint} is deleted. Its pending deliveries are canceled.` }),
  ),
).pipe(Command.withDescription("Delete a webhook endpoint and cancel its pending deliveries"))

const test = Command.make(
  "test",
  { endpoint, ...payloadFlags(Struct.omit(TestWebhookEndpoint.fields, ["id"])) },
  Effect.fnUntraced(function* ({ endpoint, ...fields }) {
    const { delivered } = yield* call(
      (gatehouse) => gatehouse.webhooks.test({ payload: { id: endpoint, ...given(fields) } }),
      ({ body, delivered, error, event, status }) => ({
        out: delivered ? `Delivered: the endpoint answered ${event} with status ${status}.` : "",
        note: delivered ? undefined : plain(error ?? `The endpoint answered with status ${status}: ${body}`),
      }),
    )
    if (!delivered)
      return yield* new CommandFailed({ message: "The endpoint did not accept the test event. Its response is above" })
  }),
).pipe(Command.withDescription("Send a signed test event to an endpoint, and print its response"))

/** Creates, lists, changes, deletes and tests webhook endpoints; lists and retries deliveries. */
export const webhooks = Command.make("webhooks").pipe(
  Command.withDescription("Webhook endpoints and deliveries: of the API key, or of --org"),
  Command.withSharedFlags(actForFlag),
  Command.withSubcommands([
    create,
    list,
    show,
    update,
    remove,
    test,
    deliveries,
    delivery,
    retry,
    recover,
    causes,
    resend,
    resends,
    cancelResend,
  ]),
  actFor,
)

const publish = Command.make(
  "publish",
  {
    type: Argument.String("type").pipe(Argument.withDescription("The type of the event, such as invoice.paid")),
    data: Flag.String("data").pipe(
      Flag.withDescription("The data, as JSON"),
      Flag.withSchema(JsonText),
      Flag.withDefault(null),
    ),
    key: Flag.String("key").pipe(
      Flag.withDescription("The idempotency key: of events with the same key, the first one stays"),
      Flag.optional,
    ),
    ...payloadFlags(Struct.pick(PublishEvent.fields, ["channels"])),
  },
  ({ channels, data, key, type }) =>
    call(
      (gatehouse) =>
        gatehouse.events.publish({ payload: { type, data, ...given({ idempotency_key: key, channels }) } }),
      ({ event_id, message }) => ({ out: event_id, note: message }),
    ),
).pipe(
  Command.withDescription("Publish an event to the endpoints that want its type"),
  Command.withExamples([{ command: `gatehouse events publish invoice.paid --data '{"invoice":"in_42"}'` }]),
)

const listEvents = Command.make(
  "list",
  {
    type: Flag.String("type").pipe(Flag.withDescription("Only events of this type"), Flag.optional),
    ...page,
  },
  ({ type, ...page }) =>
    callPages(
      page,
      (gatehouse, payload) => gatehouse.events.list({ payload: { ...payload, ...given({ type }) } }),
      ({ events }) =>
        table(
          ["EVENT", "TYPE", "JOB", "CREATED"],
          events.map((one) => [one.event_id, one.type, one.job_id, one.created_at]),
        ),
    ),
).pipe(Command.withDescription("List events, newest first"))

const types = op("events.types", { show: ({ types }) => columns(types, { TYPE: "type", LAST: "last_at" }) })

/** Publishes and lists events. */
export const events = Command.make("events").pipe(
  Command.withDescription("Events of your own: of the API key, or of --org"),
  Command.withSharedFlags(actForFlag),
  Command.withSubcommands([publish, listEvents, types]),
  actFor,
)
