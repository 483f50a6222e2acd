import { NodeRuntime } from "@effect/platform-node"
import { Cause, Console, Effect, Exit, Layer, Option } from "effect"
import { app } from "./app.ts"
import * as Config from "./config.ts"
import * as Telemetry from "./infrastructure/Telemetry.ts"

Config.load.pipe(
  Effect.flatMap((settings) => {
    const { logLevel: level, logFormat: format, otlpEndpoint } = settings
    return Layer.launch(Layer.provide(app(settings), Telemetry.layer({ level, format, otlpEndpoint })))
  }),
  Effect.tapCause((cause) => {
    if (Cause.hasInterruptsOnly(cause)) return Effect.void
    const expected = Option.filter(Cause.findErrorOption(cause), (error) => error._tag === "StartupError")
    return Console.error(
      Option.match(expected, {
        onSome: (error) => `gatehouse: ${error.message}`,
        onNone: () => Cause.pretty(cause),
      }),
    )
  }),
  NodeRuntime.runMain({
    disableErrorReporting: true,
    // Being asked to stop, and stopping in order, is no failure.
    teardown: (exit, onExit) => onExit(Exit.isSuccess(exit) || Cause.hasInterruptsOnly(exit.cause) ? 0 : 1),
  }),
)
