import { Array, Formatter, Logger, References } from "effect"
import { LRUCache } from "lru-cache"

/** One JSON object per line: `timestamp`, `level`, `message`, the annotations, and the `cause` if there is one. */
export const json: Logger.Logger<unknown, string> = Logger.map(
  Logger.formatStructured,
  ({ timestamp, level, message, annotations, cause }) =>
    Formatter.formatJson({ timestamp, level, message, ...annotations, ...(cause === undefined ? {} : { cause }) }),
)

/** A warning is logged at most once in this time. */
const repeatIntervalMillis = 60_000
/** Limit of the different warnings that are tracked. */
const maxTrackedWarnings = 100

/**
 * Logs a repeated warning at most once a minute, with the number of repetitions that were left out: while the database is
 * down, background work fails every second. Lines with annotations (about one request or delivery) are never left out.
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
