import { Array, Effect, Formatter, Layer, Logger, Redacted, References } from "effect"
import type { LogLevel } from "effect/LogLevel"
import { Otlp } from "effect/observability"
import { LRUCache } from "lru-cache"

const levels: Record<string, LogLevel> = {
  trace: "Trace",
  debug: "Debug",
  info: "Info",
  warn: "Warn",
  error: "Error",
  fatal: "Fatal",
  none: "None",
}

/** Where OpenTelemetry's data goes, and as whose. */
interface Exported {
  /** The base URL of OpenTelemetry's HTTP protocol. */
  readonly endpoint: string
  readonly headers: Redacted.Redacted<Readonly<Record<string, string>>> | undefined
  readonly serviceName: string
  /** Further attributes of the resource. */
  readonly attributes: Readonly<Record<string, string>>
}

/**
 * Logs to standard output, pretty or one JSON object per line. With `otlp` it also exports traces, metrics and logs
 * there.
 */
export const layer = (options: {
  readonly level: string
  readonly format: "pretty" | "json"
  readonly otlp: Exported | undefined
}) => {
  const printed = options.format === "json" ? Logger.withConsoleLog(json) : Logger.consolePretty()
  const logger = withoutAudit(rateLimited(printed))
  const base = Layer.merge(
    Logger.layer([logger]),
    Layer.succeed(References.MinimumLogLevel, levels[options.level] ?? "Info"),
  )
  // Without an exporter, spans would still cost a tenth of the time of a request.
  const { otlp } = options
  if (otlp === undefined) return Layer.merge(base, Layer.succeed(References.TracerEnabled, false))
  const { attributes, endpoint, headers, serviceName } = otlp
  const exporter = Otlp.layerJson({
    baseUrl: endpoint,
    resource: { serviceName, attributes },
    headers: headers && Redacted.value(headers),
  })
  // Commands that write log lines alone do not load an HTTP client.
  const http = Layer.unwrap(
    Effect.map(
      Effect.promise(() => import("../net/foreignTls.ts")),
      ({ operatorHttp }) => operatorHttp,
    ),
  )
  // On top of the base: the exporter of logs adds itself to the loggers that it finds.
  return Layer.provideMerge(exporter.pipe(Layer.provide(http)), base)
}

/** One JSON object per line: `timestamp`, `level`, `message`, the annotations, and the `cause` if there is one. */
export const json: Logger.Logger<unknown, string> = Logger.map(
  Logger.formatStructured,
  ({ timestamp, level, message, annotations, cause }) =>
    Formatter.formatJson({ timestamp, level, message, ...annotations, ...(cause === undefined ? {} : { cause }) }),
)

/** The annotation of log lines that are entries of the audit log. */
export const auditAnnotation = "gatehouse.audit.id"

/** Leaves out the entries of the audit log, which are logged for the exporter alone. */
const withoutAudit = <Output>(logger: Logger.Logger<unknown, Output>): Logger.Logger<unknown, Output | undefined> =>
  Logger.make((line) =>
    auditAnnotation in line.fiber.getRef(References.CurrentLogAnnotations) ? undefined : logger.log(line),
  )

/** A warning is logged at most once in this time. */
const repeatIntervalMillis = 60_000
/** Limit of the different warnings that are tracked. */
const maxTrackedWarnings = 100

/**
 * Logs a repeated warning at most once a minute, with the number of repetitions that were left out: while the database
 * is down, background work fails every second. Lines with annotations (about one request or delivery) are never left
 * out.
 */
export const rateLimited = <Output>(
  logger: Logger.Logger<unknown, Output>,
): Logger.Logger<unknown, Output | undefined> => {
  const warnings = new LRUCache<string, { readonly loggedAt: number; leftOut: number }>({ max: maxTrackedWarnings })
  return Logger.make((line) => {
    const [message] = Array.ensure(line.message)
    const annotations = Object.keys(line.fiber.getRef(References.CurrentLogAnnotations))
    if (line.logLevel !== "Warn" || typeof message !== "string" || annotations.length > 0) return logger.log(line)
    const now = line.date.getTime()
    const last = warnings.get(message)
    if (last !== undefined && now - last.loggedAt < repeatIntervalMillis) {
      last.leftOut++
      return undefined
    }
    warnings.set(message, { loggedAt: now, leftOut: 0 })
    const leftOut = last?.leftOut ?? 0
    return logger.log(
      leftOut === 0 ? line : { ...line, message: `${message} (and ${leftOut} more times since the last line)` },
    )
  })
}
