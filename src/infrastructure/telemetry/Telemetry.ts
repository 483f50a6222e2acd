import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { Layer, Logger, References } from "effect"
import type { LogLevel } from "effect/LogLevel"
import { Otlp } from "effect/observability"
import { json, rated } from "./logLines.ts"

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
 * Logs on standard output, pretty or one JSON object a line; with an OTLP endpoint (OpenTelemetry's HTTP protocol, its
 * base URL) traces, metrics and logs go there as well.
 */
export const layer = (options: {
  readonly level: string
  readonly format: "pretty" | "json"
  readonly otlpEndpoint: string | undefined
}) => {
  const logger = rated(options.format === "json" ? Logger.withConsoleLog(json) : Logger.consolePretty())
  const base = Layer.merge(
    Logger.layer([logger]),
    Layer.succeed(References.MinimumLogLevel, levels[options.level] ?? "Info"),
  )
  // Spans that go nowhere would still be made, at a tenth of a request's time.
  if (options.otlpEndpoint === undefined) return Layer.merge(base, Layer.succeed(References.TracerEnabled, false))
  const otlp = Otlp.layerJson({ baseUrl: options.otlpEndpoint, resource: { serviceName: "gatehouse" } })
  return Layer.merge(base, otlp.pipe(Layer.provide(NodeHttpClient.layerUndici)))
}
