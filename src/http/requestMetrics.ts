import { type Context, Duration, Effect, Metric } from "effect"

const duration = Metric.histogram("http_request_duration_seconds", {
  description: "How long requests took, by method and status.",
  boundaries: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
})

const methods = new Set(["GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS"])
const series = new Map<string, Metric.Histogram<number>>()

/** The series of a method and a status. A client can make up methods, not series: what is no method of HTTP is `other`. */
const seriesOf = (sent: string, status: number) => {
  const method = methods.has(sent) ? sent : "other"
  const key = `${method} ${status}`
  const known = series.get(key)
  if (known !== undefined) return known
  const made = Metric.withAttributes(duration, { method, status: String(status) })
  series.set(key, made)
  return made
}

/** Counts a request that was answered, and its time in seconds. */
export const record = (context: Context.Context<never>, method: string, status: number, seconds: number) =>
  seriesOf(method, status).updateUnsafe(seconds, context)

/** Counts an effect that answers a request, and how long it took. */
export const measured = <A extends { readonly status: number }, E, R>(method: string, answer: Effect.Effect<A, E, R>) =>
  Effect.tap(Effect.timed(answer), ([took, { status }]) =>
    Metric.update(seriesOf(method, status), Duration.toSeconds(took)),
  ).pipe(Effect.map(([, answered]) => answered))
