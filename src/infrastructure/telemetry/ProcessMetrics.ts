import { type Context, Effect, Function, Layer, Metric, Schedule } from "effect"
import { monitorEventLoopDelay } from "node:perf_hooks"

/** The interval of the event loop's delay timer; any delay above it is lag. */
const timerIntervalMillis = 10

/** The lag of the event loop in the last ten seconds, in seconds. */
const eventLoopLag = Effect.gen(function* () {
  const histogram = yield* Effect.acquireRelease(
    Effect.sync(() => {
      const histogram = monitorEventLoopDelay({ resolution: timerIntervalMillis })
      histogram.enable()
      return histogram
    }),
    (histogram) => Effect.sync(() => histogram.disable()),
  )
  const lag = { p50: 0, p99: 0, max: 0 }
  const lagSeconds = (nanoseconds: number) => Math.max(0, nanoseconds / 1e9 - timerIntervalMillis / 1000)
  const update = Effect.sync(() => {
    lag.p50 = lagSeconds(histogram.percentile(50))
    lag.p99 = lagSeconds(histogram.percentile(99))
    lag.max = lagSeconds(histogram.max)
    histogram.reset()
  })
  yield* Effect.forkScoped(Effect.repeat(Effect.delay(update, "10 seconds"), Schedule.forever))
  return lag
})

/** Registers a metric until the scope closes. `get` is called at each scrape. */
const register = <Input, State>(metric: Metric.Metric<Input, State>, get: () => State) =>
  Effect.contextWith((context: Context.Context<never>) =>
    Effect.acquireRelease(
      Effect.sync(() =>
        Metric.registerUnsafe(metric, context, { get, update: Function.constVoid, modify: Function.constVoid }),
      ),
      (registration) => Effect.sync(() => registration.remove()),
    ),
  )

const gauge = (name: string, description: string, value: () => number) =>
  register(Metric.gauge(name, { description }), () => ({ value: value() }))

/** Metrics of the process, with the names of Prometheus's client libraries. */
export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    yield* register(
      Metric.counter("process_cpu_seconds_total", {
        description: "Processor time that the process has used, in seconds.",
        incremental: true,
      }),
      () => {
        const { user, system } = process.cpuUsage()
        return { count: (user + system) / 1e6, incremental: true }
      },
    )
    const startedAt = Date.now() / 1000 - process.uptime()
    yield* gauge("process_start_time_seconds", "When the process started, in seconds of Unix time.", () => startedAt)
    yield* gauge("process_resident_memory_bytes", "Memory that the process holds, in bytes.", () =>
      process.memoryUsage.rss(),
    )
    yield* gauge(
      "nodejs_heap_size_used_bytes",
      "Memory that JavaScript objects hold, in bytes.",
      () => process.memoryUsage().heapUsed,
    )
    const lag = yield* eventLoopLag
    const description = "Lag of the event loop in the last ten seconds, in seconds"
    yield* gauge("nodejs_eventloop_lag_p50_seconds", `${description}: the median.`, () => lag.p50)
    yield* gauge("nodejs_eventloop_lag_p99_seconds", `${description}: the 99th percentile.`, () => lag.p99)
    yield* gauge("nodejs_eventloop_lag_max_seconds", `${description}: the maximum.`, () => lag.max)
  }),
)

interface Report {
  excludeNetwork: boolean
  readonly getReport: () => { readonly userLimits?: { readonly open_files?: { readonly soft: unknown } } }
}

/** Limit of the open files and sockets of this process; infinite if the system reports none. */
const openFilesLimit = () => {
  const report = process.report as unknown as Report
  const { excludeNetwork } = report
  // The network part would look up the names of all peers.
  report.excludeNetwork = true
  const soft = Number(report.getReport().userLimits?.open_files?.soft)
  report.excludeNetwork = excludeNetwork
  return soft > 0 ? soft : Number.POSITIVE_INFINITY
}

/**
 * Shares of the limit of open files (`ulimit -n`). Without them, clients could use all of it, and deliveries would fail
 * as if their receivers were down.
 */
export const openFiles = () => {
  const limit = openFilesLimit()
  return {
    /** Connections of clients; further connections are closed at once. */
    clients: Math.floor((limit * 3) / 4),
    /** Delivery attempts in flight. */
    attempts: Math.floor(limit / 8),
  }
}
