import { Context, DateTime, Duration, Effect, Fiber, Metric, Option, type Redacted, Result } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { PrometheusMetrics } from "effect/observability"
import { DatabaseSize } from "../../domain/activity/ServiceStates.ts"
import { Forbidden, Unauthorized } from "../../domain/Errors.ts"
import { SweepRepository } from "../../domain/sweeps/Sweeps.ts"
import { DeliveryQueue } from "../../domain/webhooks/DeliveryQueue.ts"
import { identify } from "./Authorization.ts"
import * as Credentials from "../credentials.ts"
import { isFromThisMachine } from "../clientAddress.ts"
import { exemplars } from "./requestTelemetry.ts"

/**
 * `GET /metrics` for Prometheus; `MetricsToken` says who may read it. Queries the backlog at most once in five seconds,
 * the size once in a minute.
 */
export const layer = HttpRouter.use(
  Effect.fnUntraced(function* (router) {
    const repositories = Context.make(DeliveryQueue, yield* DeliveryQueue).pipe(
      Context.add(SweepRepository, yield* SweepRepository),
    )
    const backlog = yield* Effect.cachedWithTTL(Effect.provideContext(measureBacklog, repositories), "5 seconds")
    const size = Effect.provideService(measureDatabaseSize, DatabaseSize, yield* DatabaseSize)
    const measured = Effect.all([backlog, yield* Effect.cachedWithTTL(size, "1 minute")], { concurrency: 2 })
    const text = Effect.andThen(measured, PrometheusMetrics.format())
    const answer = Effect.zipWith(text, HttpServerRequest.HttpServerRequest, (body, { headers }) =>
      acceptsOpenMetrics(headers["accept"])
        ? HttpServerResponse.text(openMetrics(body), {
            contentType: "application/openmetrics-text; version=1.0.0; charset=utf-8",
          })
        : HttpServerResponse.text(body, { contentType: "text/plain; version=0.0.4; charset=utf-8" }),
    )
    yield* router.add("GET", "/metrics", yield* guardedByToken(answer))
  }),
)

/** Whether a scraper prefers OpenMetrics to the text format: it names the type, with no smaller weight. */
const acceptsOpenMetrics = (accept = "") => {
  const weight = weightOf(accept, "application/openmetrics-text")
  return weight > 0 && weight >= weightOf(accept, "text/plain")
}

/** The greatest weight that `Accept` gives a media type; 0 if it does not name it. Source: RFC 9110, section 12.5.1. */
const weightOf = (accept: string, type: string) =>
  accept
    .toLowerCase()
    .split(",")
    .map((range) => range.split(";").map((part) => part.trim()))
    .reduce((greatest, [name, ...parameters]) => {
      const weight = name === type ? Number(parameters.find((_) => _.startsWith("q="))?.slice(2) ?? 1) : 0
      return weight > greatest ? weight : greatest
    }, 0)

/**
 * The text format of Prometheus as OpenMetrics 1.0: the family of a counter has no `_total`, the buckets of traced
 * requests have an exemplar, and the end is marked.
 */
const openMetrics = (text: string) => {
  const lines = text.split("\n").map((line) => {
    if (line.startsWith("# ")) return line.replace(/^(# (?:HELP|TYPE) \w+)_total /, "$1 ")
    const labels =
      line.startsWith("http_request_duration_seconds_bucket{") &&
      line.slice(line.indexOf("{") + 1, line.lastIndexOf("}"))
    const found = labels === false ? undefined : exemplars.get(labels)
    return found === undefined ? line : `${line} # {trace_id="${found.traceId}"} ${found.seconds} ${found.at}`
  })
  return `${lines.join("\n")}# EOF\n`
}

const due = Metric.gauge("gatehouse_deliveries_due", {
  description: "Deliveries that are due and not claimed, of all replicas; counted up to 100000.",
})
const oldestDue = Metric.gauge("gatehouse_deliveries_oldest_due_seconds", {
  description: "How long the oldest due delivery has been due, in seconds; 0 when none is due.",
})

const openSweeps = Metric.gauge("gatehouse_sweeps_open", {
  description: "Background changes of many rows that are not finished, of all replicas; counted up to 1000.",
})
/** The count of sweeps stops here. */
const maxSweeps = 1_000

/** The count of due deliveries stops here: the statement must stay fast. */
const maxDue = 100_000

/** Updates the gauges of the backlog from the database. Removes them when the database does not answer. */
const measureBacklog = Effect.gen(function* () {
  const queue = yield* DeliveryQueue
  const sweeps = yield* SweepRepository
  const now = yield* DateTime.now
  // Detached: on a dead connection, the interruption of a statement takes longer than the statement.
  const counts = yield* Effect.forkDetach(Effect.all([queue.countDue(now, maxDue), sweeps.count(maxSweeps)]))
  const [{ count, oldestDueAt }, open] = yield* Effect.timeout(Fiber.join(counts), "2 seconds")
  yield* Metric.update(openSweeps, open)
  yield* Metric.update(due, count)
  const age = oldestDueAt === null ? 0 : Duration.toSeconds(DateTime.distance(oldestDueAt, now))
  yield* Metric.update(oldestDue, age)
}).pipe(
  Effect.catchCause((cause) =>
    Effect.logDebug("The backlog cannot be measured", cause).pipe(
      Effect.andThen(Metric.remove(openSweeps)),
      Effect.andThen(Metric.remove(due)),
      Effect.andThen(Metric.remove(oldestDue)),
    ),
  ),
)

const databaseSize = Metric.gauge("gatehouse_database_size_bytes", {
  description: "Size of the database with its indexes, in bytes.",
})

/** Updates the size of the database. Removes it when the database does not answer. */
const measureDatabaseSize = DatabaseSize.pipe(
  Effect.flatMap(({ bytes }) => Effect.forkDetach(bytes)),
  Effect.flatMap((size) => Effect.timeout(Fiber.join(size), "2 seconds")),
  Effect.flatMap((bytes) => Metric.update(databaseSize, bytes)),
  Effect.catchCause((cause) =>
    Effect.andThen(Effect.logDebug("The size of the database cannot be measured", cause), Metric.remove(databaseSize)),
  ),
)

/** METRICS_TOKEN. Without it, only this machine and the administrator read the metrics in guarded mode. */
export class MetricsToken extends Context.Reference<Redacted.Redacted<string> | undefined>(
  "gatehouse/http/metricsAccess/MetricsToken",
  { defaultValue: () => undefined },
) {}

const noCredential = new Unauthorized({
  error:
    "The metrics need a credential: Authorization: Bearer <token>, with METRICS_TOKEN or the administrator's token.",
})
const forbidden = new Forbidden({
  error: "This credential may not read the metrics. Send METRICS_TOKEN or the administrator's token.",
})

/** Succeeds if a request may read the metrics: every request in open mode; in guarded mode see `MetricsToken`. */
const makeCheck = Effect.gen(function* () {
  const metricsToken = yield* MetricsToken
  const { open, toCaller } = yield* identify
  const isMetricsToken = Credentials.tokenCheck(metricsToken === undefined ? [] : [metricsToken])

  return Effect.gen(function* () {
    if (open) return
    const request = yield* HttpServerRequest.HttpServerRequest
    const { headers, remoteAddress } = request
    const credential = Result.getOrUndefined(Credentials.parse(headers))
    if (credential?.bearer === true && isMetricsToken(credential.token)) return
    const { principal } = yield* toCaller(request, "metrics")
    if (principal._tag === "Administrator") return
    if (metricsToken === undefined && isFromThisMachine(Option.getOrUndefined(remoteAddress), headers)) return
    return yield* principal._tag === "Anonymous" ? noCredential : forbidden
  })
})

const refusal =
  (status: number, headers: Readonly<Record<string, string>> = {}) =>
  ({ code, error }: { readonly code: string; readonly error: string }) =>
    Effect.succeed(HttpServerResponse.jsonUnsafe({ error, code }, { status, headers }))

/** Refuses requests that may not read the metrics, with the body of the platform interface. */
const guardedByToken = <E, R>(answer: Effect.Effect<HttpServerResponse.HttpServerResponse, E, R>) =>
  Effect.map(makeCheck, (check) =>
    check.pipe(
      Effect.matchEffect({
        onSuccess: () => answer,
        onFailure: (fault): Effect.Effect<HttpServerResponse.HttpServerResponse> =>
          fault._tag === "Unauthorized"
            ? refusal(401, { "www-authenticate": "Bearer" })(fault)
            : fault._tag === "TooManyRequests"
              ? refusal(429, { "retry-after": String(fault.retryAfterSeconds) })(fault)
              : refusal(fault._tag === "Forbidden" ? 403 : 503)(fault),
      }),
    ),
  )
