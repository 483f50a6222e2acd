import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { Layer, Logger, References } from "effect"
import type { LogLevel } from "effect/LogLevel"
import { Otlp } from "effect/observability"
import { json, rateLimited } from "./logLines.ts"

const levels: Record<string, LogLevel> = {
  trace: "Trace",
  debug: "Debug",
  info: "Info",
  warn: "Warn",
  error: "Error",
  fatal: "Fatal",
  none: "None",
}

/**
 * Logs to standard output, pretty or one JSON object per line. With an OTLP endpoint (the base URL of OpenTelemetry's HTTP
 * protocol) it also exports traces, metrics and logs there.
 */
export const layer = (options: {
  readonly level: string
  readonly format: "pretty" | "json"
  readonly otlpEndpoint: string | undefined
}) => {
  const logger = rateLimited(options.format === "json" ? Logger.withConsoleLog(json) : Logger.consolePretty())
  const base = Layer.merge(
    Logger.layer([logger]),
    Layer.succeed(References.MinimumLogLevel, levels[options.level] ?? "Info"),
  )
  // Without an exporter, spans would still cost a tenth of the time of a request.
  if (options.otlpEndpoint === undefined) return Layer.merge(base, Layer.succeed(References.TracerEnabled, false))
  const otlp = Otlp.layerJson({ baseUrl: options.otlpEndpoint, resource: { serviceName: "gatehouse" } })
  return Layer.merge(base, otlp.pipe(Layer.provide(NodeHttpClient.layerUndici)))
}
