import { Clock, Effect, Layer } from "effect"
import { app } from "./app.ts"
import * as Config from "./config.ts"
import { stoppable } from "./exitCodes.ts"
import { releaseMemory } from "./memory.ts"
import * as Telemetry from "../infrastructure/telemetry/Telemetry.ts"

/**
 * Runs services until the process is asked to stop. Logs the start and the duration of the stop. How long that waits is
 * decided where the work is: `shutdownGrace` of the listener, `recordingGrace` of the delivery worker.
 */
const untilStopped = Effect.fnUntraced(function* <A, E, R>(services: Layer.Layer<A, E, R>) {
  let stopStartedAt: bigint | undefined
  // Runs after the services have closed.
  yield* Effect.addFinalizer(() =>
    Effect.gen(function* () {
      // The start failed.
      if (stopStartedAt === undefined) return
      const seconds = Number((yield* Clock.monotonicTimeNanos) - stopStartedAt) / 1e9
      yield* Effect.logInfo(`Gatehouse has stopped, in ${seconds.toFixed(1)} s`)
    }),
  )
  yield* Layer.build(services)
  yield* releaseMemory
  // Runs before the services close.
  yield* Effect.addFinalizer(() =>
    Effect.gen(function* () {
      stopStartedAt = yield* Clock.monotonicTimeNanos
      yield* Effect.logInfo("Gatehouse stops: it accepts no more connections and finishes the work in flight")
    }),
  )
  return yield* Effect.never
}, Effect.scoped)

/**
 * Runs the service with the environment's configuration until it is asked to stop. Fails with a one-line
 * `StartupError`.
 */
export const serve = stoppable(
  Effect.flatMap(Config.load, (settings) => {
    const { logLevel: level, logFormat: format, otlp } = settings
    return Effect.provide(untilStopped(app(settings)), Telemetry.layer({ level, format, otlp }))
  }),
)
