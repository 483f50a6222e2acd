import { Clock, Effect, Layer } from "effect"
import { app } from "./app.ts"
import * as Config from "./config.ts"
import { giveBackMemory } from "./giveBackMemory.ts"
import * as Telemetry from "../infrastructure/telemetry/Telemetry.ts"

/** Runs services until they are told to stop, and says in the log when that was, and how long stopping took. */
const untilStopped = Effect.fnUntraced(function* <A, E, R>(services: Layer.Layer<A, E, R>) {
  let toldAt: bigint | undefined
  yield* Effect.addFinalizer(() =>
    Effect.gen(function* () {
      // What has not come up has not been told to stop.
      if (toldAt === undefined) return
      const seconds = Number((yield* Clock.monotonicTimeNanos) - toldAt) / 1e9
      yield* Effect.logInfo(`Gatehouse has stopped, in ${seconds.toFixed(1)} s`)
    }),
  )
  yield* Layer.build(services)
  yield* giveBackMemory
  yield* Effect.addFinalizer(() =>
    Effect.gen(function* () {
      toldAt = yield* Clock.monotonicTimeNanos
      yield* Effect.logInfo("Gatehouse stops: it takes no more connections, and ends what is under way")
    }),
  )
  return yield* Effect.never
}, Effect.scoped)

/** The service as the environment configures it, until it is told to stop. Fails with a `StartupError` of one line. */
export const serve = Effect.flatMap(Config.load, (settings) => {
  const { logLevel: level, logFormat: format, otlpEndpoint } = settings
  return Effect.provide(untilStopped(app(settings)), Telemetry.layer({ level, format, otlpEndpoint }))
})
