import { Config, Console, Effect, Option, Redacted } from "effect"
import { Command, Flag } from "effect/cli"
import { checkAddress } from "./connection.ts"
import { Json } from "./flags.ts"
import { forwardOf, replayDelivery } from "./forward.ts"
import { plain } from "./output.ts"
import { type Arrival, makeReceiver } from "./receiver.ts"
import { newSecret } from "./signingSecret.ts"

const port = Flag.Int("port").pipe(
  Flag.filter(
    (port) => port >= 0 && port <= 65_535,
    () => "Expected a port from 0 (any free port) to 65535",
  ),
  Flag.withDescription("The loopback port (default: 4000)"),
  Flag.withDefault(4000),
)

/** The line of an arrival: text, or a JSON object. */
const line = (arrival: Arrival, json: boolean) => {
  if (json)
    return JSON.stringify("refused" in arrival ? { verified: false, ...arrival } : { verified: true, ...arrival })
  if ("refused" in arrival) return `refused: ${plain(arrival.refused)}`
  return `verified ${plain(arrival.deliveryId ?? "without an id")}: ${JSON.stringify(arrival.event)}`
}

/** Receives, verifies and prints webhooks on this machine until it is stopped; or replays one delivery. */
export const listen = Command.make(
  "listen",
  {
    port,
    forwardTo: Flag.String("forward-to").pipe(
      Flag.withDescription("Pass verified webhooks on to this URL, and answer with its status"),
      Flag.optional,
    ),
    replay: Flag.String("replay").pipe(
      Flag.withDescription("Send this past delivery to --forward-to once, signed now, and stop"),
      Flag.optional,
    ),
  },
  Effect.fnUntraced(function* ({ forwardTo, port, replay }) {
    if (Option.isSome(forwardTo)) yield* checkAddress(forwardTo.value)
    const given = yield* Effect.orDie(Config.option(Config.Redacted("GATEHOUSE_WEBHOOK_SECRET")))
    if (Option.isSome(replay)) return yield* replayDelivery(replay.value, forwardTo, given)
    const json = yield* Json
    const secret = Option.isSome(given) ? given.value : yield* newSecret
    const receiver = yield* makeReceiver(port, secret, yield* forwardOf(forwardTo))
    yield* Console.error(`receiving at ${receiver.url}`)
    if (Option.isNone(given)) {
      yield* Console.error(`with a new secret: export GATEHOUSE_WEBHOOK_SECRET=${Redacted.value(secret)}`)
    }
    return yield* Effect.forever(Effect.flatMap(receiver.next, (arrival) => Console.log(line(arrival, json))))
  }, Effect.scoped),
).pipe(
  Command.withDescription(
    "Receive webhooks on this machine, verify them with GATEHOUSE_WEBHOOK_SECRET, and print them; --json prints one document per line",
  ),
  Command.withExamples([
    { command: "gatehouse listen --port 4000" },
    { command: "gatehouse listen --forward-to http://127.0.0.1:8080/webhooks" },
    {
      command: "gatehouse listen --forward-to http://127.0.0.1:8080/webhooks --replay 01KAHBMKZ3D2X7S5QN8W4V6R9T",
    },
  ]),
)
