import { Effect, Option } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { actFor, actForFlag } from "./actFor.ts"
import { urlFault } from "../domain/webhooks/WebhookUrl.ts"
import { call } from "./call.ts"
import { CommandFailed, usage } from "./CommandFailed.ts"
import { deliveries, delivery, recover, retry } from "./deliveries.ts"
import { inFlags } from "./fields.ts"
import { given, wholeList } from "./flags.ts"
import { more, plain, table } from "./output.ts"
import { withSigningSecret } from "./signingSecret.ts"

const endpoint = Argument.String("endpoint").pipe(Argument.withDescription("The id of the webhook endpoint"))

/** Fails for a bad URL before the prompt for a secret. In guarded mode the service also requires https. */
const checkUrl = Effect.fnUntraced(function* (url: string) {
  const fault = urlFault(url, { httpsOnly: false })
  if (fault !== undefined) return yield* usage(inFlags(`url ${fault}`))
})

const create = Command.make(
  "create",
  {
    url: Argument.String("url").pipe(Argument.withDescription("The URL that receives deliveries")),
    description: Flag.String("description").pipe(Flag.withDescription("A description in your words"), Flag.optional),
    inactive: Flag.Boolean("inactive").pipe(
      Flag.withDescription("Create the endpoint inactive; it receives nothing until you activate it"),
      Flag.withDefault(false),
    ),
  },
  Effect.fnUntraced(function* ({ description, inactive, url }) {
    yield* checkUrl(url)
    yield* withSigningSecret((signing_secret) =>
      call(
        (gatehouse) =>
          gatehouse.webhooks.create({ payload: { url, signing_secret, active: !inactive, ...given({ description }) } }),
        ({ webhook_endpoint_id: id }) => ({
          out: id,
          note: `The endpoint is created. To test it: gatehouse webhooks test ${id}`,
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

const list = Command.make("list", wholeList, (flags) =>
  call(
    (gatehouse) => gatehouse.webhooks.list({ payload: given(flags) }),
    ({ next_cursor = null, webhook_endpoints }) => ({
      out: table(
        ["ENDPOINT", "URL", "ACTIVE", "DESCRIPTION"],
        webhook_endpoints.map((one) => [one.webhook_endpoint_id, one.url, one.active ? "yes" : "no", one.description]),
      ),
      note: more(next_cursor),
    }),
  ),
).pipe(Command.withDescription("List the webhook endpoints of the org, oldest first"))

const show = Command.make("show", { endpoint }, ({ endpoint }) =>
  call(
    (gatehouse) => gatehouse.webhooks.get({ payload: { id: endpoint } }),
    ({ active, deactivated_at, deactivated_reason, deliveries, failing_since, url }) => ({
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
      note: plain(url),
    }),
  ),
).pipe(Command.withDescription("Show a webhook endpoint: its health, and its newest deliveries by state"))

const update = Command.make(
  "update",
  {
    endpoint,
    to: Flag.String("to").pipe(Flag.withDescription("The new URL"), Flag.optional),
    description: Flag.String("description").pipe(Flag.withDescription("A description in your words"), Flag.optional),
    active: Flag.Boolean("active").pipe(
      Flag.withDescription("Activate the endpoint; --no-active deactivates it and cancels its pending deliveries"),
      Flag.optional,
    ),
    newSecret: Flag.Boolean("new-secret").pipe(
      Flag.withDescription(
        "Set a new signing secret from GATEHOUSE_WEBHOOK_SECRET or standard input, or make one; the old one also signs for 24 hours",
      ),
      Flag.withDefault(false),
    ),
  },
  Effect.fnUntraced(function* ({ active, description, endpoint, newSecret, to }) {
    const changes = given({ url: to, description, active })
    if (Object.keys(changes).length === 0 && !newSecret) {
      return yield* usage("Nothing to change: set --to, --description, --active, --no-active or --new-secret")
    }
    if (Option.isSome(to)) yield* checkUrl(to.value)
    const change = (secret: { readonly signing_secret?: string }) =>
      call(
        (gatehouse) => gatehouse.webhooks.update({ payload: { id: endpoint, ...changes, ...secret } }),
        () => ({ out: "", note: `The endpoint ${endpoint} is changed.` }),
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
  { endpoint },
  Effect.fnUntraced(function* ({ endpoint }) {
    const { delivered } = yield* call(
      (gatehouse) => gatehouse.webhooks.test({ payload: { id: endpoint } }),
      ({ body, delivered, error, status }) => ({
        out: delivered ? `Delivered: the endpoint answered with status ${status}.` : "",
        note: delivered ? undefined : plain(error ?? `The endpoint answered with status ${status}: ${body}`),
      }),
    )
    if (!delivered)
      return yield* new CommandFailed({ message: "The endpoint did not accept the test event. Its answer is above" })
  }),
).pipe(Command.withDescription("Send a signed test event to an endpoint, and print its answer"))

/** Creates, lists, changes, deletes and tests webhook endpoints; lists and retries deliveries. */
export const webhooks = Command.make("webhooks").pipe(
  Command.withDescription("Webhook endpoints and deliveries: of the API key, or of --org"),
  Command.withSharedFlags(actForFlag),
  Command.withSubcommands([create, list, show, update, remove, test, deliveries, delivery, retry, recover]),
  actFor,
)
