import { Config, Console, Effect, Option, Redacted } from "effect"
import { Command, Flag } from "effect/cli"
import { Json } from "./flags.ts"
import { plain } from "./output.ts"
import { type Arrival, makeReceiver } from "./receiver.ts"
import { newSecret } from "./signingSecret.ts"

const port = Flag.Int("port").pipe(Flag.withDescription("The loopback port (default: 4000)"), Flag.withDefault(4000))

/** The line of an arrival: text, or a JSON object. */
const line = (arrival: Arrival, json: boolean) => {
  if (json)
    return JSON.stringify("refused" in arrival ? { verified: false, ...arrival } : { verified: true, ...arrival })
  if ("refused" in arrival) return `refused: ${plain(arrival.refused)}`
  return `verified ${plain(arrival.deliveryId ?? "without an id")}: ${JSON.stringify(arrival.event)}`
}

/** Receives, verifies and prints webhooks on this machine until it is stopped. */
export const listen = Command.make(
  "listen",
  { port },
  Effect.fnUntraced(function* ({ port }) {
    const json = yield* Json
    const given = yield* Effect.orDie(Config.option(Config.Redacted("GATEHOUSE_WEBHOOK_SECRET")))
    const secret = Option.isSome(given) ? given.value : yield* newSecret
    const receiver = yield* makeReceiver(port, secret)
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
  Command.withExamples([{ command: "gatehouse listen --port 4000" }]),
)
