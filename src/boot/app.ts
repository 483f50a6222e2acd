// First: it compiles the schemas made after it, which halves the time to decode a request and encode its answer.
// oxlint-disable-next-line import/no-unassigned-import -- imported for its side effect
import "effect/schema/SchemaJITCompiler/enable"
import * as NodeCrypto from "@effect/platform-node/NodeCrypto"
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { Effect, Layer, References } from "effect"
import { type Settings, urlHost } from "./config.ts"
import { Activities } from "../domain/activity/Activities.ts"
import { ActivityRecorder } from "../domain/activity/ActivityRecorder.ts"
import { LiveFeed } from "../domain/activity/LiveFeed.ts"
import { ApiKeys } from "../domain/keys/ApiKeys.ts"
import { KeyUsages } from "../domain/keys/KeyUsages.ts"
import { LeakedKeys } from "../domain/keys/LeakedKeys.ts"
import { AuditLog } from "../domain/audit/AuditLog.ts"
import { ChatBodyMemory } from "../domain/chat/ChatBodyMemory.ts"
import { UnverifiedSentences } from "../domain/chat/verifyAnswer.ts"
import { Chats } from "../domain/chat/Chats.ts"
import { JobTemplates } from "../domain/jobs/JobTemplates.ts"
import { ReceiverRules } from "../domain/webhooks/ReceiverRules.ts"
import { DeliveryLog } from "../domain/webhooks/DeliveryLog.ts"
import { Events } from "../domain/webhooks/Events.ts"
import { Dispatcher } from "../domain/webhooks/Dispatcher.ts"
import { Deployments } from "../domain/deployments/Deployments.ts"
import { RegistrationPolicy } from "../domain/deployments/RegistrationPolicy.ts"
import { Idempotency } from "../domain/Idempotency.ts"
import { LanguageModel } from "../domain/chat/LanguageModel.ts"
import { Jobs } from "../domain/jobs/Jobs.ts"
import { JobSchedules } from "../domain/jobs/JobSchedules.ts"
import { DefaultLimits } from "../domain/orgs/OrgLimits.ts"
import { Orgs } from "../domain/orgs/Orgs.ts"
import { PendingLimit } from "../domain/orgs/PendingLimit.ts"
import { Projects } from "../domain/projects/Projects.ts"
import * as RetryPolicy from "../domain/webhooks/RetryPolicy.ts"
import { Retention, RetentionDays } from "../domain/Retention.ts"
import { Sessions } from "../domain/sessions/Sessions.ts"
import { SigningKeys } from "../domain/webhooks/SigningKeys.ts"
import { Signer } from "../domain/webhooks/Signature.ts"
import { Sweeps } from "../domain/webhooks/Sweeps.ts"
import { Wakeups } from "../domain/webhooks/Wakeups.ts"
import { WebhookEndpoints } from "../domain/webhooks/WebhookEndpoints.ts"
import { AdminTokens } from "../http/server/AdminTokens.ts"
import { TrustedProxies } from "../http/server/clientAddress.ts"
import * as HotPath from "../http/server/hotPath.ts"
import { MetricsToken } from "../http/server/metricsAccess.ts"
import * as NodeServer from "../http/server/nodeServer.ts"
import * as Server from "../http/server/Server.ts"
import * as ActivitySql from "../infrastructure/activity/ActivityRepository.ts"
import * as ActivityWorker from "../infrastructure/activity/ActivityWorker.ts"
import * as LiveChannel from "../infrastructure/activity/LiveChannel.ts"
import * as Published from "../infrastructure/activity/published.ts"
import * as Recorded from "../infrastructure/activity/recorded.ts"
import * as AfterCommit from "../infrastructure/database/AfterCommit.ts"
import * as Cipher from "../infrastructure/crypto/Cipher.ts"
import { Database } from "../infrastructure/database/Database.ts"
import * as DeliveryMetrics from "../infrastructure/webhooks/DeliveryMetrics.ts"
import * as DeliveryTraces from "../infrastructure/webhooks/DeliveryTraces.ts"
import * as DocsIndexes from "../infrastructure/chat/DocsIndexes.ts"
import * as Documents from "../infrastructure/chat/Documents.ts"
import * as EncryptionKeys from "../infrastructure/crypto/EncryptionKeys.ts"
import * as Signatures from "../infrastructure/crypto/Signatures.ts"
import * as KeyCache from "../infrastructure/keys/KeyCache.ts"
import * as GithubKeys from "../infrastructure/keys/GithubKeys.ts"
import * as KeyCountersSql from "../infrastructure/keys/KeyCounterRepository.ts"
import * as KeyHash from "../infrastructure/keys/KeyHash.ts"
import * as KeyRevocations from "../infrastructure/keys/KeyRevocations.ts"
import * as Oidc from "../infrastructure/oidc/Oidc.ts"
import { openFiles } from "../infrastructure/telemetry/openFiles.ts"
import * as ProcessMetrics from "../infrastructure/telemetry/ProcessMetrics.ts"
import * as Readiness from "../infrastructure/database/Readiness.ts"
import { SafeHttp } from "../infrastructure/net/SafeHttp.ts"
import * as SecureRandom from "../infrastructure/crypto/SecureRandom.ts"
import * as ApiKeysSql from "../infrastructure/keys/ApiKeyRepository.ts"
import * as AuditLogSql from "../infrastructure/audit/AuditLogRepository.ts"
import * as DeliveryLogSql from "../infrastructure/webhooks/DeliveryLogRepository.ts"
import * as DeliveryQueueSql from "../infrastructure/webhooks/DeliveryQueueRepository.ts"
import * as EventsSql from "../infrastructure/webhooks/EventRepository.ts"
import * as DeploymentsSql from "../infrastructure/deployments/DeploymentRepository.ts"
import * as IdempotencySql from "../infrastructure/idempotency/IdempotencyRepository.ts"
import * as JobsSql from "../infrastructure/jobs/JobRepository.ts"
import * as JobSchedulesSql from "../infrastructure/jobs/JobScheduleRepository.ts"
import * as OrgsSql from "../infrastructure/orgs/OrgRepository.ts"
import * as PendingDeliveriesSql from "../infrastructure/webhooks/PendingDeliveries.ts"
import * as ProjectsSql from "../infrastructure/projects/ProjectRepository.ts"
import * as RetentionSql from "../infrastructure/retention/RetentionRepository.ts"
import * as SessionsSql from "../infrastructure/sessions/SessionRepository.ts"
import * as SigningKeysSql from "../infrastructure/webhooks/SigningKeyRepository.ts"
import * as SweepsSql from "../infrastructure/webhooks/SweepRepository.ts"
import * as WebhookEndpointsSql from "../infrastructure/webhooks/WebhookEndpointRepository.ts"
import * as WebhookSender from "../infrastructure/webhooks/WebhookSender.ts"
import * as ClockSteps from "../infrastructure/webhooks/ClockStepWorker.ts"
import * as DeliveryWorker from "../infrastructure/webhooks/DeliveryWorker.ts"
import * as IdempotencyKeysWorker from "../infrastructure/idempotency/IdempotencyWorker.ts"
import * as JobsWorker from "../infrastructure/jobs/JobWorker.ts"
import { StartupError } from "../infrastructure/StartupError.ts"
import * as ValidationMetrics from "../infrastructure/keys/validationMetrics.ts"
import * as KeyUsageRetentionWorker from "../infrastructure/keys/KeyUsageRetentionWorker.ts"
import * as KeyUsageSql from "../infrastructure/keys/KeyUsageRepository.ts"
import * as KeyUsage from "../infrastructure/keys/KeyUsageWorker.ts"
import * as OrgUsageWorker from "../infrastructure/orgs/OrgUsageWorker.ts"
import * as RetentionWorker from "../infrastructure/retention/RetentionWorker.ts"
import * as SessionsWorker from "../infrastructure/sessions/SessionWorker.ts"
import * as SweepsWorker from "../infrastructure/webhooks/SweepWorker.ts"
import { cachesWithin, memoryLimit } from "./memory.ts"
import { releaseMemory } from "./releaseMemory.ts"
import { announce } from "./welcome.ts"

/** The audit log, which records the changes of the services below. */
const audit = AuditLog.layer.pipe(Layer.provide(AuditLogSql.layer))

/** The services of the platform interface: keys, orgs, projects, deployments. */
const platform = (settings: Settings) => {
  const deployments = Published.deployments.pipe(Layer.provide([DeploymentsSql.layer, ProjectsSql.layer]))
  const repositories = Layer.mergeAll(
    ApiKeysSql.layer,
    deployments,
    KeyCountersSql.layer,
    KeyUsageSql.layer,
    OrgsSql.layer,
    ProjectsSql.layer,
  )
  const policy = Layer.succeed(RegistrationPolicy, {
    allowedOwners: settings.allowedOwners ?? "linked",
    defaultBranches: settings.defaultBranches,
    // The first entry of a name has it, so the entries are read from the last to the first.
    issuers: new Map(settings.ciProviders.toReversed().map(({ issuer, provider }) => [provider, issuer])),
  })
  const keys = AfterCommit.keys.pipe(Layer.provide(KeyCache.layer), Layer.provide(KeyRevocations.layer))
  const validations = Recorded.validations.pipe(Layer.provide(ValidationMetrics.layer))
  const tokens = Oidc.layer(settings.ciProviders)
  const signatures = GithubKeys.layer(settings.githubKeysUrl)
  return Layer.mergeAll(
    ApiKeys.layer,
    Deployments.layer,
    KeyUsages.layer,
    LeakedKeys.layer,
    Orgs.layer,
    Projects.layer,
    Readiness.layer,
  ).pipe(
    Layer.provideMerge(Activities.layer),
    Layer.provideMerge(Sessions.layer.pipe(Layer.provide(SessionsSql.layer))),
    Layer.provideMerge(Layer.mergeAll(keys, policy, tokens, signatures, audit, validations)),
    Layer.provideMerge(repositories),
    Layer.provide(NodeHttpClient.layerUndici),
  )
}

/** Whether traces are exported. If so, deliveries carry trace headers. */
const isTraced = ({ otlpEndpoint }: Settings) => otlpEndpoint !== undefined

/**
 * The services of the webhook interface (endpoints, jobs, schedules, deliveries), and idempotency, which shares the
 * cipher.
 */
const webhooks = (settings: Settings) => {
  const repositories = Layer.mergeAll(
    DeliveryLogSql.layer,
    Published.deliveries.pipe(
      Layer.provide(Recorded.deliveries),
      Layer.provide(DeliveryMetrics.layer),
      Layer.provide(DeliveryQueueSql.layer),
    ),
    EventsSql.layer,
    IdempotencySql.layer,
    Published.jobs.pipe(Layer.provide(Recorded.jobs), Layer.provide(JobsSql.layer)),
    JobSchedulesSql.layer,
    PendingDeliveriesSql.layer,
    RetentionSql.layer,
    SigningKeysSql.layer,
    SweepsSql.layer,
    Published.endpoints.pipe(Layer.provide(WebhookEndpointsSql.layer)),
  )
  const cipher = Layer.unwrap(Effect.map(EncryptionKeys.load(settings), Cipher.layer))
  const plainSender = WebhookSender.layer({ timeout: settings.webhookTimeout })
  const [dispatcher, sender] = isTraced(settings)
    ? [
        DeliveryTraces.dispatcher.pipe(Layer.provide(Dispatcher.layer)),
        DeliveryTraces.sender.pipe(Layer.provide(plainSender)),
      ]
    : [Dispatcher.layer, plainSender]
  const tools = Layer.mergeAll(
    audit,
    cipher,
    sender,
    Layer.provideMerge(Signer.layer, Signatures.layer),
    AfterCommit.wakeups.pipe(Layer.provide(Wakeups.layer)),
    Layer.succeed(ReceiverRules, {
      httpsOnly: settings.adminTokens !== undefined,
      allowPrivateNetworks: settings.allowPrivateNetworks,
    }),
    Layer.succeed(RetryPolicy.RetryDelays, settings.webhookRetryDelays ?? RetryPolicy.defaultDelays),
    Layer.succeed(DeliveryWorker.DeliveryWorkerOptions, {
      ...DeliveryWorker.defaultOptions,
      laneCap: settings.endpointConcurrency,
      maxInFlight: Math.min(DeliveryWorker.defaultOptions.maxInFlight, openFiles().attempts),
      attemptTimeout: settings.webhookTimeout,
    }),
  )
  return Layer.mergeAll(
    DeliveryLog.layer,
    dispatcher,
    Events.layer,
    Idempotency.layer,
    Jobs.layer,
    JobSchedules.layer,
    PendingLimit.layer,
    Retention.layer,
    Sweeps.layer,
    WebhookEndpoints.layer,
  ).pipe(
    Layer.provideMerge(Layer.merge(JobTemplates.layer, SigningKeys.layer)),
    Layer.provideMerge(repositories),
    Layer.provideMerge(tools),
  )
}

/** Chat over documentation. Loads the model's SDK only if a model is configured. */
const chat = ({ ai, aiUnverified, chatIndexMemory }: Settings) => {
  const caches = cachesWithin(memoryLimit())
  const model =
    ai === undefined
      ? LanguageModel.none
      : Layer.unwrap(
          Effect.map(
            Effect.promise(() => import("../infrastructure/chat/LanguageModel.ts")),
            (module) => module.layer(ai),
          ),
        )
  return Chats.layer.pipe(
    Layer.provide([
      model,
      Layer.succeed(UnverifiedSentences, aiUnverified),
      Documents.layer({ maxBytes: caches.documents }),
      DocsIndexes.layer(chatIndexMemory ?? caches.indexes),
    ]),
    Layer.provideMerge(Layer.succeed(ChatBodyMemory, { bytes: caches.chatBodies, release: releaseMemory })),
  )
}

/** The background workers, without traces: their polls every second would drown the traces of requests. */
const workers = Layer.mergeAll(
  ActivityWorker.layer,
  ClockSteps.layer,
  DeliveryWorker.layer,
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
  Layer.mergeAll(Server.layer, ProcessMetrics.layer, announce(settings)).pipe(
    Layer.provideMerge(listener(settings)),
    Layer.provideMerge(workers),
    Layer.provideMerge(Layer.mergeAll(platform(settings), webhooks(settings), chat(settings))),
    // Deliveries and documents share one connection pool.
    Layer.provide(SafeHttp.layer({ allowPrivateNetworks: settings.allowPrivateNetworks })),
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
