import { Effect, Redacted } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { DeliveryState } from "../domain/Delivery.ts"
import { call } from "./call.ts"
import { CommandFailed } from "./CommandFailed.ts"
import { given, page } from "./flags.ts"
import { more, plain, table } from "./output.ts"
import { readSecret } from "./readSecret.ts"

const endpoint = Argument.String("endpoint").pipe(Argument.withDescription("The webhook endpoint's id"))

const create = Command.make(
  "create",
  {
    url: Argument.String("url").pipe(Argument.withDescription("Where deliveries go")),
    description: Flag.String("description").pipe(Flag.withDescription("What it is, in your words"), Flag.optional),
    inactive: Flag.Boolean("inactive").pipe(
      Flag.withDescription("Create it without deliveries for now"),
      Flag.withDefault(false),
    ),
  },
  Effect.fnUntraced(function* ({ description, inactive, url }) {
    const secret = yield* readSecret("The signing secret", "GATEHOUSE_WEBHOOK_SECRET")
    yield* call(
      (gatehouse) =>
        gatehouse.webhooks.create({
          payload: { url, signing_secret: Redacted.value(secret), active: !inactive, ...given({ description }) },
        }),
      ({ webhook_endpoint_id: id }) => ({
        out: id,
        note: `The endpoint is there. To send it something: gatehouse webhooks test ${id}`,
      }),
    )
  }),
).pipe(
  Command.withDescription(
    "Create a webhook endpoint; its signing secret is GATEHOUSE_WEBHOOK_SECRET, else standard input, or is asked for",
  ),
  Command.withExamples([{ command: "gatehouse webhooks create https://example.com/webhooks" }]),
)

const list = Command.make("list", {}, () =>
  call(
    (gatehouse) => gatehouse.webhooks.list(),
    ({ webhook_endpoints }) => ({
      out: table(
        ["ENDPOINT", "URL", "ACTIVE", "DESCRIPTION"],
        webhook_endpoints.map((one) => [one.webhook_endpoint_id, one.url, one.active ? "yes" : "no", one.description]),
      ),
    }),
  ),
).pipe(Command.withDescription("List the webhook endpoints of the key's org, oldest first"))

const test = Command.make(
  "test",
  { endpoint },
  Effect.fnUntraced(function* ({ endpoint }) {
    const { delivered } = yield* call(
      (gatehouse) => gatehouse.webhooks.test({ payload: { id: endpoint } }),
      ({ body, delivered, error, status }) => ({
        out: delivered ? `Delivered: the endpoint answered with status ${status}.` : "",
        note: delivered ? undefined : plain(error ?? `The endpoint answered with status ${status}: ${body}`),
      }),
    )
    if (!delivered) return yield* new CommandFailed({ message: "The test was not delivered" })
  }),
).pipe(Command.withDescription("Send an endpoint a signed job.completed with made-up ids, and tell what it said"))

const deliveries = Command.make(
  "deliveries",
  {
    endpoint: Argument.optional(endpoint),
    job: Flag.String("job").pipe(Flag.withDescription("Only of this job"), Flag.optional),
    state: Flag.Literals("state", DeliveryState.literals).pipe(
      Flag.withDescription("Only in this state"),
      Flag.optional,
    ),
    ...page,
  },
  ({ cursor, endpoint, job, limit, state }) =>
    call(
      (gatehouse) =>
        gatehouse.deliveries.list({
          payload: { limit, ...given({ webhook_endpoint_id: endpoint, job_id: job, state, cursor }) },
        }),
      ({ deliveries, next_cursor }) => ({
        out: table(
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
        note: more(next_cursor),
      }),
    ),
).pipe(Command.withDescription("List deliveries, newest first: all, or an endpoint's"))

const retry = Command.make(
  "retry",
  { delivery: Argument.String("delivery").pipe(Argument.withDescription("The delivery's id")) },
  ({ delivery }) =>
    call(
      (gatehouse) => gatehouse.deliveries.retry({ payload: { delivery_id: delivery } }),
      () => ({ out: "", note: `The delivery ${delivery} is sent again.` }),
    ),
).pipe(Command.withDescription("Send a delivery again now, with the retries from their start"))

/** Creates, lists and tests webhook endpoints; lists and retries deliveries. */
export const webhooks = Command.make("webhooks").pipe(
  Command.withDescription("Webhook endpoints and deliveries; GATEHOUSE_TOKEN must be an API key"),
  Command.withSubcommands([create, list, test, deliveries, retry]),
)
