import { Argument, Command, Flag } from "effect/cli"
import { actFor, actForFlag } from "./actFor.ts"
import { Schema } from "effect"
import { call, callPages } from "./call.ts"
import { given, page } from "./flags.ts"
import { more, table } from "./output.ts"

const publish = Command.make(
  "publish",
  {
    type: Argument.String("type").pipe(Argument.withDescription("The type of the event, such as invoice.paid")),
    data: Flag.String("data").pipe(
      Flag.withDescription("The data, as JSON"),
      Flag.withSchema(Schema.fromJsonString(Schema.Unknown)),
      Flag.withDefault(null),
    ),
    key: Flag.String("key").pipe(
      Flag.withDescription("The idempotency key: of events with the same key, the first one stays"),
      Flag.optional,
    ),
  },
  ({ data, key, type }) =>
    call(
      (gatehouse) => gatehouse.events.publish({ payload: { type, data, ...given({ idempotency_key: key }) } }),
      ({ event_id, message }) => ({ out: event_id, note: message }),
    ),
).pipe(
  Command.withDescription("Publish an event to the endpoints that want its type"),
  Command.withExamples([{ command: `gatehouse events publish invoice.paid --data '{"invoice":"in_42"}'` }]),
)

const list = Command.make(
  "list",
  {
    type: Flag.String("type").pipe(Flag.withDescription("Only events of this type"), Flag.optional),
    ...page,
  },
  ({ type, ...page }) =>
    callPages(
      page,
      (gatehouse, payload) => gatehouse.events.list({ payload: { ...payload, ...given({ type }) } }),
      ({ events, next_cursor }) => ({
        table: table(
          ["EVENT", "TYPE", "JOB", "CREATED"],
          events.map((one) => [one.event_id, one.type, one.job_id, one.created_at]),
        ),
        next: next_cursor,
      }),
    ),
).pipe(Command.withDescription("List events, newest first"))

const types = Command.make("types", {}, () =>
  call(
    (gatehouse) => gatehouse.events.types({ payload: {} }),
    ({ next_cursor = null, types }) => ({
      out: table(
        ["TYPE", "LAST"],
        types.map((one) => [one.type, one.last_at]),
      ),
      note: more(next_cursor),
    }),
  ),
).pipe(Command.withDescription("List the types that the org has events of"))

/** Publishes and lists events. */
export const events = Command.make("events").pipe(
  Command.withDescription("Events of your own: of the API key, or of --org"),
  Command.withSharedFlags(actForFlag),
  Command.withSubcommands([publish, list, types]),
  actFor,
)
