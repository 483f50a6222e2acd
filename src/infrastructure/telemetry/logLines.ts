import { Array, Formatter, Logger, References } from "effect"
import { LRUCache } from "lru-cache"

/** One JSON object a line: `timestamp`, `level`, `message`, what the line is about, and the `cause` where there is one. */
export const json: Logger.Logger<unknown, string> = Logger.map(
  Logger.formatStructured,
  ({ timestamp, level, message, annotations, cause }) =>
    Formatter.formatJson({ timestamp, level, message, ...annotations, ...(cause === undefined ? {} : { cause }) }),
)

/** For how long a warning is not repeated, in milliseconds. */
const window = 60_000
/** How many different warnings are remembered. */
const maxRemembered = 100

/**
 * Says a warning once, and while it goes on once a minute with how often it was left out: what is tried every second
 * fails every second when the database is away. Lines about one request or delivery are never left out.
 */
export const rated = <Output>(logger: Logger.Logger<unknown, Output>): Logger.Logger<unknown, Output | undefined> => {
  const said = new LRUCache<string, { readonly at: number; leftOut: number }>({ max: maxRemembered })
  return Logger.make((line) => {
    const [message] = Array.ensure(line.message)
    const about = Object.keys(line.fiber.getRef(References.CurrentLogAnnotations))
    if (line.logLevel !== "Warn" || typeof message !== "string" || about.length > 0) return logger.log(line)
    const at = line.date.getTime()
    const last = said.get(message)
    if (last !== undefined && at - last.at < window) {
      last.leftOut++
      return undefined
    }
    said.set(message, { at, leftOut: 0 })
    const leftOut = last?.leftOut ?? 0
    return logger.log(
      leftOut === 0 ? line : { ...line, message: `${message} (and ${leftOut} times more since the last)` },
    )
  })
}
