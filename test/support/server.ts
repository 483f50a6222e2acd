import {
  Cause,
  Clock,
  ConfigProvider,
  Context,
  Duration,
  Effect,
  Exit,
  Layer,
  Logger,
  Metric,
  References,
  type Scope,
  Tracer,
} from "effect"
import { HttpServer } from "effect/http"
import { SqlClient } from "effect/sql"
import { Agent } from "node:http"
import { inspect } from "node:util"
import { app } from "#src/boot/app.ts"
import * as Config from "#src/boot/config.ts"
import { Nodes } from "#src/infrastructure/database/Nodes.ts"
import { adminClient, freshPostgres } from "./databases.ts"
import { type Send, sender } from "./wire.ts"

/** The administrator's token of every guarded server of the tests. */
export const adminToken = "administrator-of-the-tests-0123456789"

/** The environment variables of a test server: those of docs/configuration.md. */
export type Environment = Readonly<Record<string, string>>

const defaults: Environment = { PORT: "0", BASE_URL: "https://gatehouse.example" }

/** The variables of an embedded database in memory, for what is promised of that one. */
export const embedded: Environment = { DATA_DIR: "memory" }

/** A key for a server on PostgreSQL, which requires one. */
export const encryptionKey = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="

/** The variables of guarded mode. */
export const guarded: Environment = { ADMIN_TOKEN: adminToken }

/** The variables of a new database on the run's PostgreSQL, which is dropped when the scope closes. */
export const onPostgres = (environment: Environment = {}) =>
  Effect.map(Effect.orDie(freshPostgres()), (DATABASE_URL): Environment => ({
    ...environment,
    DATABASE_URL,
    ENCRYPTION_KEY: encryptionKey,
  }))

/**
 * The variables of a new database with open nodes, which get the new orgs in turn. The nodes are databases of one
 * server.
 */
export const onNodes = (environment: Environment = {}, names: ReadonlyArray<string> = ["a", "b"]) =>
  Effect.gen(function* () {
    const DATABASE_URL = yield* freshPostgres()
    const nodes = yield* Effect.forEach(names, (name) => Effect.map(freshPostgres(), (url) => `${name}=${url}`))
    yield* Effect.flatMap(adminClient(DATABASE_URL), (sql) =>
      Effect.forEach(names, (name) => sql`INSERT INTO open_nodes (name) VALUES (${name})`),
    ).pipe(Effect.scoped)
    return { ...environment, DATABASE_URL, NODES: nodes.join(" "), ENCRYPTION_KEY: encryptionKey } satisfies Environment
  }).pipe(Effect.orDie)

/** Options of the server. */
export interface ServerOptions {
  /**
   * Whether a sleep of half a second or more never ends, so that nothing can depend on a poll interval or a timeout.
   */
  readonly endlessSleeps?: boolean
  /** Whether a node is down: the server does not wait until its nodes can be used. */
  readonly lacksNode?: boolean
  /** References of the service with other values, such as a shorter interval. */
  readonly references?: Layer.Layer<never>
}

/**
 * The database of a server that names none: one on the run's PostgreSQL, which costs 0.1 s of CPU time; a new embedded
 * one costs 2 s. TEST_SERVERS=embedded puts such servers there, and TEST_SERVERS=nodes puts their orgs on nodes.
 */
const database = (environment: Environment): Effect.Effect<Environment, never, Scope.Scope> => {
  if (environment["DATABASE_URL"] !== undefined || environment["DATA_DIR"] !== undefined) return Effect.succeed({})
  const servers = process.env["TEST_SERVERS"]
  return servers === "embedded" ? Effect.succeed(embedded) : servers === "nodes" ? onNodes() : onPostgres()
}

/** What the layer of the whole service provides. */
export type Services = Layer.Success<ReturnType<typeof app>>

/** A running service, from the environment variables to the wire, with access to its internals for tests. */
export class TestServer extends Context.Service<
  TestServer,
  {
    readonly url: string
    readonly send: Send
    readonly sql: SqlClient.SqlClient
    /** Everything behind it, if it runs in this process. */
    readonly services?: Context.Context<Services>
    /** The whole log so far, at every level. */
    readonly logs: () => string
    /** Every span so far, as an exporter sends it: name, attributes, events, and the cause of a failure. */
    readonly spans: () => string
    /** The number of requests with a span: each that reaches the router has one. */
    readonly routed: () => number
    /** The number of them that are not answered yet. */
    readonly unanswered: () => number
    /** Moves the server's clock forward, without waking sleeping fibers. */
    readonly advance: (duration: Duration.Input) => Effect.Effect<void>
  }
>()("test/TestServer") {
  /** A server in this process on a free loopback port, by default with a new database on the run's PostgreSQL. */
  static readonly layer = <E = never, R = never>(
    environment: Environment | Effect.Effect<Environment, E, R> = {},
    options: ServerOptions = {},
  ) => Layer.effect(TestServer, start(environment, options))
}

const start = Effect.fnUntraced(function* <E, R>(
  environment: Environment | Effect.Effect<Environment, E, R>,
  { endlessSleeps = false, lacksNode = false, references = Layer.empty }: ServerOptions,
) {
  const wanted = Effect.isEffect(environment) ? yield* environment : environment
  const variables = { ...defaults, ...(yield* database(wanted)), ...wanted }
  const settings = yield* Config.load.pipe(
    Effect.provide(ConfigProvider.layer(ConfigProvider.fromEnvRecord(variables))),
  )
  const log: Array<string> = []
  const spans: Array<Tracer.NativeSpan> = []
  const { clock, advance } = movable(yield* Clock.Clock, endlessSleeps)
  const observed = Layer.mergeAll(
    references,
    Logger.layer([Logger.map(Logger.formatJson, (line) => void log.push(line))]),
    Layer.succeed(References.MinimumLogLevel, "All"),
    Layer.succeed(Clock.Clock, clock),
    Layer.succeed(Metric.MetricRegistry, new Map()),
    Layer.succeed(
      Tracer.Tracer,
      Tracer.make({
        span: (options) => {
          const span = new Tracer.NativeSpan(options)
          spans.push(span)
          return span
        },
      }),
    ),
  )
  // A separate memo map, so that two servers in one test share nothing.
  const context = yield* Layer.buildWithMemoMap(
    Layer.provide(app(settings), observed),
    yield* Layer.makeMemoMap,
    yield* Effect.scope,
  )
  // A node can be used some time after the service listens.
  if (!lacksNode) yield* Effect.forEach(Context.get(context, Nodes).all, ({ migrated }) => migrated)
  const { address } = Context.get(context, HttpServer.HttpServer)
  const url = HttpServer.formatAddress(address)
  const agent = yield* Effect.acquireRelease(
    Effect.sync(() => new Agent({ keepAlive: true })),
    (agent) => Effect.sync(() => agent.destroy()),
  )
  return TestServer.of({
    url,
    send: sender(url, agent),
    sql: Context.get(context, SqlClient.SqlClient),
    services: context,
    logs: () => log.join("\n"),
    spans: () => spans.map(exported).join("\n"),
    routed: () => spans.filter(({ kind }) => kind === "server").length,
    unanswered: () => spans.filter(({ kind, status }) => kind === "server" && status._tag === "Started").length,
    advance,
  })
})

/** Exporters omit the value of a success. */
const exported = ({ name, attributes, events, status }: Tracer.NativeSpan) => {
  const cause = status._tag === "Ended" && Exit.isFailure(status.exit) ? Cause.pretty(status.exit.cause) : undefined
  return inspect({ name, attributes, events, cause }, { depth: 8, maxStringLength: null, maxArrayLength: null })
}

/** A clock that runs like the live one, ahead of it by the time it was moved. */
const movable = (live: Clock.Clock, endlessSleeps: boolean) => {
  let ahead = 0
  const clock: Clock.Clock = {
    currentTimeMillisUnsafe: () => live.currentTimeMillisUnsafe() + ahead,
    currentTimeMillis: Effect.map(live.currentTimeMillis, (millis) => millis + ahead),
    currentTimeNanosUnsafe: () => live.currentTimeNanosUnsafe() + BigInt(ahead) * 1_000_000n,
    currentTimeNanos: Effect.map(live.currentTimeNanos, (nanos) => nanos + BigInt(ahead) * 1_000_000n),
    monotonicTimeNanosUnsafe: () => live.monotonicTimeNanosUnsafe() + BigInt(ahead) * 1_000_000n,
    monotonicTimeNanos: Effect.map(live.monotonicTimeNanos, (nanos) => nanos + BigInt(ahead) * 1_000_000n),
    sleep: (duration) => (endlessSleeps && Duration.toMillis(duration) >= 500 ? Effect.never : live.sleep(duration)),
  }
  const advance = (duration: Duration.Input) =>
    Effect.sync(() => void (ahead += Duration.toMillis(Duration.fromInputUnsafe(duration))))
  return { clock, advance }
}
