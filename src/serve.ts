import { Effect, Layer } from "effect"
import { app } from "./app.ts"
import * as Config from "./config.ts"
import * as Telemetry from "./infrastructure/Telemetry.ts"

/** The service as the environment configures it, until it is told to stop. Fails with a `StartupError` of one line. */
export const serve = Effect.flatMap(Config.load, (settings) => {
  const { logLevel: level, logFormat: format, otlpEndpoint } = settings
  return Layer.launch(Layer.provide(app(settings), Telemetry.layer({ level, format, otlpEndpoint })))
})
