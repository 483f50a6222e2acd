// First: it compiles the schemas made after it, which halves the time to decode a request and encode its answer.
// oxlint-disable-next-line import/no-unassigned-import -- imported for its side effect
import "effect/schema/SchemaJITCompiler/enable"
import * as NodeCrypto from "@effect/platform-node/NodeCrypto"
import { Effect, Layer, References } from "effect"
import { type Settings, urlHost } from "./config.ts"
import { ActivityRecorder } from "../domain/activity/ActivityRecorder.ts"
import { LiveFeed } from "../domain/activity/LiveFeed.ts"
import { DefaultLimits } from "../domain/orgs/OrgLimits.ts"
import { RetentionDays } from "../domain/Retention.ts"
import { AdminTokens } from "../http/server/AdminTokens.ts"
import { TrustedProxies } from "../http/server/clientAddress.ts"
import { MetricsToken } from "../http/server/metricsAccess.ts"
import * as ActivitySql from "../infrastructure/activity/ActivityRepository.ts"
import * as LiveChannel from "../infrastructure/activity/LiveChannel.ts"
import { Database } from "../infrastructure/database/Database.ts"
import { SafeHttp } from "../infrastructure/net/SafeHttp.ts"
import * as SecureRandom from "../infrastructure/crypto/SecureRandom.ts"
import * as KeyCache from "../infrastructure/keys/KeyCache.ts"
import * as KeyHash from "../infrastructure/keys/KeyHash.ts"
import { cachesWithin, memoryLimit } from "./memory.ts"
import * as HotPath from "../http/server/hotPath.ts"
import * as NodeServer from "../http/server/nodeServer.ts"
import * as Server from "../http/server/Server.ts"
import * as ActivityWorker from "../infrastructure/activity/ActivityWorker.ts"
import { openFiles } from "../infrastructure/telemetry/openFiles.ts"
import * as ProcessMetrics from "../infrastructure/telemetry/ProcessMetrics.ts"
import * as ClockSteps from "../infrastructure/webhooks/ClockStepWorker.ts"
import * as DeliveryWorker from "../infrastructure/webhooks/DeliveryWorker.ts"
import * as DocsQuestionWorker from "../infrastructure/docs/DocsQuestionWorker.ts"
import * as DocsWorker from "../infrastructure/docs/DocsWorker.ts"
import * as IdempotencyKeysWorker from "../infrastructure/idempotency/IdempotencyWorker.ts"
import * as JobsWorker from "../infrastructure/jobs/JobWorker.ts"
import { StartupError } from "../infrastructure/StartupError.ts"
import * as KeyUsageRetentionWorker from "../infrastructure/keys/KeyUsageRetentionWorker.ts"
import * as KeyUsage from "../infrastructure/keys/KeyUsageWorker.ts"
import * as OrgUsageWorker from "../infrastructure/orgs/OrgUsageWorker.ts"
import * as RetentionWorker from "../infrastructure/retention/RetentionWorker.ts"
import * as SessionsWorker from "../infrastructure/sessions/SessionWorker.ts"
import * as SweepsWorker from "../infrastructure/sweeps/SweepWorker.ts"
import { logWelcome } from "./welcome.ts"
import { chat } from "./chat.ts"
import { platform } from "./platform.ts"
import { isTraced, webhooks } from "./webhooks.ts"

/** The background workers, without traces: their polls every second would drown the traces of requests. */
const workers = Layer.mergeAll(
  ActivityWorker.layer,
  ClockSteps.layer,
  DeliveryWorker.layer,
  DocsQuestionWorker.layer,
  DocsWorker.layer,
  IdempotencyKeysWorker.layer,
  JobsWorker.layer,
  KeyUsage.layer,
  KeyUsageRetentionWorker.layer,
  OrgUsageWorker.layer,
  RetentionWorker.layer,
  SessionsWorker.layer,
  SweepsWorker.layer,
).pipe(Layer.provide(Layer.succeed(References.TracerEnabled, false)))

/** The hot path; off when traces are exported, because it makes no spans. */
const hotPath = (settings: Settings): typeof HotPath.make =>
  isTraced(settings) ? Effect.succeed(HotPath.none) : HotPath.make

/** What is wrong and what to do when the server cannot listen, by the system's error code. */
const listenFaults: Readonly<Record<string, string>> = {
  EADDRINUSE: "the port is in use. Stop the other process or set PORT",
  EACCES: "this user may not open the port. Set PORT to 1024 or more",
  EADDRNOTAVAIL: "this machine does not have the address. Set HOST to an address of this machine",
  ENOTFOUND: "the name does not resolve. Set HOST to an address of this machine",
}

const cannotListen = ({ host, port }: Settings, cause: unknown) => {
  const { code = "no code" } = cause as NodeJS.ErrnoException
  const fault = listenFaults[code] ?? `the system refuses it (${code}). Set HOST or PORT`
  return new StartupError({ message: `Cannot listen on ${urlHost(host)}:${port}: ${fault}`, cause })
}

const listener = (settings: Settings) =>
  Effect.map(hotPath(settings), (hot) =>
    NodeServer.layer(hot, { host: settings.host, port: settings.port, maxConnections: openFiles().clients }),
  ).pipe(
    Layer.unwrap,
    Layer.catchTag("ServeError", ({ cause }) => Layer.effectContext(cannotListen(settings, cause))),
  )

/**
 * The whole service as a layer. It listens after everything else has started, and stops in the opposite order. Provides
 * the HTTP server and the services behind it. The caller provides the logger and the tracer. Fails with a `StartupError`.
 */
export const app = (settings: Settings) =>
  Layer.mergeAll(Server.layer, ProcessMetrics.layer, logWelcome(settings)).pipe(
    Layer.provideMerge(listener(settings)),
    Layer.provideMerge(workers),
    Layer.provideMerge(Layer.mergeAll(platform(settings), webhooks(settings), chat(settings))),
    // Deliveries and documents share one connection pool.
    Layer.provide(SafeHttp.layer(settings)),
    Layer.provideMerge(LiveFeed.layer.pipe(Layer.provide(LiveChannel.layer))),
    Layer.provideMerge(ActivityRecorder.layer.pipe(Layer.provideMerge(ActivitySql.layer))),
    Layer.provideMerge(Database.layer(settings)),
    Layer.provideMerge(Layer.mergeAll(NodeCrypto.layer, SecureRandom.layer, KeyHash.layer)),
    Layer.provide(Layer.succeed(DefaultLimits, settings.limits)),
    Layer.provide(Layer.succeed(RetentionDays, settings.retentionDays)),
    Layer.provide(Layer.succeed(KeyCache.KeyCacheSize, settings.keyCacheSize ?? cachesWithin(memoryLimit()).keys)),
    Layer.provide(Layer.succeed(AdminTokens, { tokens: settings.adminTokens, baseUrl: settings.baseUrl })),
    Layer.provide(Layer.succeed(MetricsToken, settings.metricsToken)),
    Layer.provide(Layer.succeed(TrustedProxies, settings.trustedProxies)),
  )
