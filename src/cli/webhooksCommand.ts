import { Effect } from "effect"
import { counted } from "../domain/plural.ts"
import type { DeliveryCause } from "../domain/webhooks/DeliveryLog.ts"
import { urlFault } from "../domain/callableUrls.ts"
import { switchFlag, tenantGroup } from "./flags.ts"
import { op } from "./operation.ts"
import { columns, failure, plain, table, usage } from "./output.ts"
import { withSigningSecret } from "./secretInput.ts"

const ofEndpoint = { args: { endpoint: "webhook_endpoint_id" } } as const
const ofDelivery = { args: { delivery: "delivery_id" } } as const

/** The endpoints of a cause: those with most of its deliveries, and how many others there are. */
const topEndpoints = ({ endpoints, top_endpoints: top }: DeliveryCause) =>
  [
    ...top.map((one) => `${one.name ?? "deleted"} (${one.webhook_endpoint_id}) × ${one.deliveries}`),
    ...(endpoints > top.length ? [`${endpoints - top.length} more`] : []),
  ].join(", ")

/** Fails for a bad URL before the prompt for a secret. In guarded mode the service also requires https. */
const checkUrl = (url: string) => {
  const fault = urlFault(url, { httpsOnly: false })
  return fault === undefined ? Effect.void : usage(`the url ${fault}`)
}

const noteOf = (warning: string | undefined) => (warning === undefined ? "" : ` ${plain(warning)}`)

const one = { args: { endpoint: "id" } } as const

export const webhooks = tenantGroup("webhooks", "Webhook endpoints and deliveries", [
  op("webhooks.create", {
    args: { url: "url" },
    about:
      "Create a webhook endpoint; its signing secret comes from GATEHOUSE_WEBHOOK_SECRET or standard input, or is made and printed",
    examples: ["webhooks create https://example.com/webhooks"],
    omit: ["signing_secret", "generate_signing_secret", "active"],
    more: {
      inactive: switchFlag("inactive", "Create the endpoint inactive; it receives nothing until you activate it"),
    },
    run: Effect.fnUntraced(function* (send, fields, { inactive }) {
      yield* checkUrl(fields.url)
      yield* withSigningSecret((signing_secret) => send({ ...fields, active: !inactive, signing_secret }))
    }),
    show: ({ warning, webhook_endpoint_id: id }) => ({
      out: id,
      note: `The endpoint is created.${noteOf(warning)} To test it: gatehouse webhooks test ${id}`,
    }),
  }),
  op("webhooks.list", {
    show: ({ webhook_endpoints }) =>
      columns(webhook_endpoints, {
        ENDPOINT: "webhook_endpoint_id",
        URL: "url",
        ACTIVE: "active",
        "FAILING SINCE": "failing_since",
        REASON: "deactivated_reason",
        DESCRIPTION: "description",
      }),
  }),
  op("webhooks.get", {
    ...one,
    name: "show",
    about: "Show a webhook endpoint: its health, and its newest deliveries by state",
    show: ({ active, deactivated_at, deactivated_reason, deliveries, failing_since, health, url }) => ({
      out: table(
        [
          "ACTIVE",
          "FAILING SINCE",
          "DEACTIVATED",
          "REASON",
          ...Object.keys(deliveries).map((state) => state.toUpperCase()),
        ],
        [[active, failing_since, deactivated_at, deactivated_reason, ...Object.values(deliveries)]],
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
  }),
  op("webhooks.update", {
    ...one,
    examples: [
      "webhooks update 01KAHBMKZ3D2X7S5QN8W4V6R9T --to https://example.com/hooks",
      "webhooks update 01KAHBMKZ3D2X7S5QN8W4V6R9T --no-active",
    ],
    flags: { url: "to" },
    omit: ["signing_secret"],
    more: {
      newSecret: switchFlag(
        "new-secret",
        "Set a new signing secret from GATEHOUSE_WEBHOOK_SECRET or standard input, or make one; the old one also signs for 24 hours",
      ),
    },
    run: Effect.fnUntraced(function* (send, fields, { newSecret }) {
      if (fields.url !== undefined) yield* checkUrl(fields.url)
      if (!newSecret) return yield* send(fields)
      return yield* withSigningSecret((signing_secret) => send({ ...fields, signing_secret }))
    }),
    show: ({ warning }, { id }) => `The endpoint ${id} is changed.${noteOf(warning)}`,
  }),
  op("webhooks.delete", {
    ...one,
    show: (_, { id }) => `The endpoint ${id} is deleted. Its pending deliveries are canceled.`,
  }),
  op("webhooks.test", {
    ...one,
    run: (send, fields) =>
      Effect.filterOrFail(
        send(fields),
        ({ delivered }) => delivered,
        () => failure("The endpoint did not accept the test event. Its response is above"),
      ),
    show: ({ body, delivered, error, event, status }) =>
      delivered
        ? { out: `Delivered: the endpoint answered ${event} with status ${status}.` }
        : plain(error ?? `The endpoint answered with status ${status}: ${body}`),
  }),
  op("deliveries.list", {
    ...ofEndpoint,
    name: "deliveries",
    about: "List deliveries, newest first: all, or those of one endpoint",
    show: ({ deliveries }) =>
      columns(deliveries, {
        DELIVERY: "delivery_id",
        ENDPOINT: ({ webhook_endpoint_id }) => webhook_endpoint_id ?? "callback",
        JOB: "job_id",
        EVENT: "event",
        STATE: "state",
        ATTEMPTS: "attempts",
        "NEXT ATTEMPT": "next_attempt_at",
        CREATED: "created_at",
      }),
  }),
  op("deliveries.get", {
    ...ofDelivery,
    name: "delivery",
    about: "Show a delivery: its body, and every attempt with the receiver's response",
    show: ({ attempt_log, attempts, event, payload, state }) => ({
      out: columns(attempt_log, {
        ATTEMPT: "number",
        STARTED: "started_at",
        MILLISECONDS: "duration_ms",
        STATUS: "status",
        FAILURE: "failure",
        ANSWER: ({ body, error }) => error ?? body,
      }),
      note: `${event} is ${state} after ${counted(attempts, "attempt")}. Body: ${plain(payload)}`,
    }),
  }),
  op("deliveries.retry", {
    ...ofDelivery,
    show: (_, { delivery_id }) => `The delivery ${delivery_id} is sent again.`,
  }),
  op("deliveries.recover", {
    ...ofEndpoint,
    about: "Resend the failed, canceled and skipped deliveries of an endpoint since a time",
    examples: ["webhooks recover 01KAHBMKZ3D2X7S5QN8W4V6R9T --since 2026-11-20T17:00:00Z"],
    show: ({ message, recovered }) => ({ out: String(recovered), note: message }),
  }),
  op("deliveries.causes", {
    ...ofEndpoint,
    show: ({ causes }) =>
      columns(causes, {
        DELIVERIES: "deliveries",
        ENDPOINTS: topEndpoints,
        STATUS: "status",
        FAILURE: "failure",
        LATEST: ({ latest }) => latest.delivery_id,
        TEXT: ({ latest }) => latest.text,
      }),
  }),
  op("deliveries.resend", {
    about: "Resend the failed, canceled and skipped deliveries that a filter selects, in the background",
    examples: [
      "webhooks resend --status 503 --since 2026-11-20T14:00:00Z --dry-run",
      "webhooks resend --status 503 --since 2026-11-20T14:00:00Z",
    ],
    show: ({ count, message, resend_id }) => ({ out: resend_id ?? String(count), note: message }),
  }),
  op("deliveries.resends", {
    show: ({ resends }) =>
      columns(resends, { RESEND: "resend_id", STARTED: "created_at", RESENT: "resent", OF: "count", FILTER: "filter" }),
  }),
  op("deliveries.cancelResend", { args: { resend: "resend_id" } }),
])

export const events = tenantGroup("events", "Events of your own", [
  op("events.publish", {
    args: { type: "type" },
    about: "Publish an event to the endpoints that want its type",
    examples: [`events publish invoice.paid --data '{"invoice":"in_42"}'`],
    flags: { idempotency_key: "key" },
    defaults: { data: null },
    show: ({ event_id, message }) => ({ out: event_id, note: message }),
  }),
  op("events.list", {
    show: ({ events }) => columns(events, { EVENT: "event_id", TYPE: "type", JOB: "job_id", CREATED: "created_at" }),
  }),
  op("events.types", { show: ({ types }) => columns(types, { TYPE: "type", LAST: "last_at" }) }),
])
