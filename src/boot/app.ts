// First: it compiles the schemas made after it, which halves the time to decode a request and encode its response.
// oxlint-disable-next-line import/no-unassigned-import -- imported for its side effect
import "effect/schema/SchemaJITCompiler/enable"
import * as NodeCrypto from "@effect/platform-node/NodeCrypto"
import { Effect, Layer, References } from "effect"
import { HttpServer } from "effect/http"
import { Idempotency } from "../domain/Idempotency.ts"
import { AuditRetentionDays, Retention, RetentionDays } from "../domain/Retention.ts"
import { Wakeups } from "../domain/Wakeups.ts"
import { Activities } from "../domain/activity/Activities.ts"
import { ActivityRecorder } from "../domain/activity/ActivityRecorder.ts"
import { LiveFeed } from "../domain/activity/LiveFeed.ts"
import { ServiceStates } from "../domain/activity/ServiceStates.ts"
import { AlertWatch } from "../domain/alerts/AlertWatch.ts"
import { Alerts } from "../domain/alerts/Alerts.ts"
import { ConsoleUrl } from "../domain/alerts/tellAlert.ts"
import { AuditLog } from "../domain/audit/AuditLog.ts"
import { Deployments, RegistrationPolicy } from "../domain/deployments/Deployments.ts"
import { ChatRateLimits } from "../domain/docs/ChatRateLimits.ts"
import { Chats } from "../domain/docs/Chats.ts"
import { DocsFetcher } from "../domain/docs/DocsFetcher.ts"
import { DocsQuestions } from "../domain/docs/DocsQuestions.ts"
import { DocsReaders, DocsWakeup, StoredDocs } from "../domain/docs/StoredDocs.ts"
import { ChatBodyMemory } from "../http/server/requestBody.ts"
import { LanguageModel } from "../domain/docs/LanguageModel.ts"
import { UnverifiedSentences } from "../domain/docs/verifyAnswer.ts"
import { JobSchedules } from "../domain/jobs/JobSchedules.ts"
import { JobTemplates } from "../domain/jobs/JobTemplates.ts"
import { Jobs } from "../domain/jobs/Jobs.ts"
import { ApiKeys } from "../domain/keys/ApiKeys.ts"
import { Roles } from "../domain/keys/Roles.ts"
import { KeyTokens, TokenIssuer } from "../domain/keys/KeyTokens.ts"
import { KeyUsageReport } from "../domain/keys/KeyUsage.ts"
import { LeakedKeys } from "../domain/keys/LeakedKeys.ts"
import { DefaultLimits } from "../domain/orgs/OrgLimits.ts"
import { Orgs } from "../domain/orgs/Orgs.ts"
import { Projects } from "../domain/projects/Projects.ts"
import * as People from "../domain/sessions/People.ts"
import { Sessions } from "../domain/sessions/Sessions.ts"
import { Sweeps } from "../domain/sweeps/Sweeps.ts"
import { DeliveryLog } from "../domain/webhooks/DeliveryLog.ts"
import { Dispatcher } from "../domain/webhooks/Dispatcher.ts"
import { Events } from "../domain/webhooks/Events.ts"
import { EventTypes } from "../domain/webhooks/EventTypes.ts"
import { PendingLimit } from "../domain/webhooks/PendingLimit.ts"
import { ReceiverUrlRules } from "../domain/callableUrls.ts"
import { defaultDelays, RetryDelays } from "../domain/webhooks/RetryDecision.ts"
import { Signer, SigningKeys } from "../domain/webhooks/Signatures.ts"
import { WebhookEndpoints } from "../domain/webhooks/WebhookEndpoints.ts"
import * as Server from "../http/server/Server.ts"
import { TrustedProxies } from "../http/clientAddress.ts"
import { AdminTokens } from "../http/credentials.ts"
import { TokenGuesses } from "../http/server/Authorization.ts"
import * as HotPath from "../http/server/hotPath.ts"
import * as NodeServer from "../http/server/listener.ts"
import { MetricsToken } from "../http/server/metrics.ts"
import { PortalLook } from "../http/server/portalLook.ts"
import { callbackPath } from "../http/server/signIn.ts"
import { StartupError } from "../infrastructure/StartupError.ts"
import * as ActivitySql from "../infrastructure/activity/activitySql.ts"
import * as ActivityWorker from "../infrastructure/activity/ActivityWorker.ts"
import * as LiveChannel from "../infrastructure/activity/liveChannel.ts"
import { logAudit } from "../infrastructure/audit/audited.ts"
import * as AlertsSql from "../infrastructure/alerts/alertsSql.ts"
import * as MailSender from "../infrastructure/alerts/MailSender.ts"
import * as AuditLogSql from "../infrastructure/audit/auditLogSql.ts"
import { warnOfOtherKey } from "../infrastructure/checks/checkSecrets.ts"
import * as Cipher from "../infrastructure/crypto/AesCipher.ts"
import * as EncryptionKeys from "../infrastructure/crypto/EncryptionKeys.ts"
import { keyHash, secureRandom, signatures } from "../infrastructure/crypto/nodeCrypto.ts"
import * as AfterCommit from "../infrastructure/database/AfterCommit.ts"
import { Database, databaseSize, readiness } from "../infrastructure/database/Database.ts"
import * as DeploymentsSql from "../infrastructure/deployments/deploymentsSql.ts"
import * as DocsIndexes from "../infrastructure/docs/ThreadedIndexes.ts"
import * as DocsQuestionsSql from "../infrastructure/docs/docsQuestionsSql.ts"
import * as Documents from "../infrastructure/docs/FetchedDocuments.ts"
import * as ProjectDocsSql from "../infrastructure/docs/projectDocsSql.ts"
import { ZipReader } from "../infrastructure/docs/ZipReader.ts"
import * as IdempotencySql from "../infrastructure/idempotency/idempotencySql.ts"
import * as JobsSql from "../infrastructure/jobs/jobsSql.ts"
import * as JobSchedulesSql from "../infrastructure/jobs/jobSchedulesSql.ts"
import * as ApiKeysSql from "../infrastructure/keys/apiKeysSql.ts"
import * as GithubSignatures from "../infrastructure/keys/GithubSignatures.ts"
import * as KeyCache from "../infrastructure/keys/KeyCache.ts"
import * as KeyCountersSql from "../infrastructure/keys/keyCountersSql.ts"
import * as RolesSql from "../infrastructure/keys/rolesSql.ts"
import * as TokenKeysSql from "../infrastructure/keys/tokenKeysSql.ts"
import * as KeyUsageSql from "../infrastructure/keys/keyUsageSql.ts"
import { operatorHttp } from "../infrastructure/net/foreignTls.ts"
import { SafeHttp } from "../infrastructure/net/SafeHttp.ts"
import * as Oidc from "../infrastructure/oidc/CiTokenVerifier.ts"
import * as IdentityProvider from "../infrastructure/oidc/IdentityProvider.ts"
import * as OrgsSql from "../infrastructure/orgs/orgsSql.ts"
import * as OrgUsageWorker from "../infrastructure/orgs/OrgUsageWorker.ts"
import * as ProjectsSql from "../infrastructure/projects/projectsSql.ts"
import * as RetentionSql from "../infrastructure/retention/retentionSql.ts"
import * as SessionsSql from "../infrastructure/sessions/sessionsSql.ts"
import * as SweepsSql from "../infrastructure/sweeps/sweepsSql.ts"
import * as ProcessMetrics from "../infrastructure/telemetry/ProcessMetrics.ts"
import * as ClockSteps from "../infrastructure/webhooks/ClockSteps.ts"
import * as DeliveryLogSql from "../infrastructure/webhooks/deliveryLogSql.ts"
import * as DeliveryQueueSql from "../infrastructure/webhooks/deliveryQueueSql.ts"
import * as DeliveryMetrics from "../infrastructure/webhooks/DeliveryTelemetry.ts"
import * as DeliveryWorker from "../infrastructure/webhooks/DeliveryWorker.ts"
import * as EventsSql from "../infrastructure/webhooks/eventsSql.ts"
import * as EventTypesSql from "../infrastructure/webhooks/eventTypesSql.ts"
import * as PendingDeliveriesSql from "../infrastructure/orgs/pendingDeliveriesSql.ts"
import * as SigningKeysSql from "../infrastructure/webhooks/signingKeysSql.ts"
import * as WebhookEndpointsSql from "../infrastructure/webhooks/webhookEndpointsSql.ts"
import * as WebhookSender from "../infrastructure/webhooks/HttpWebhookSender.ts"
import { type Settings, urlHost } from "./config.ts"
import { cachesWithin, memoryLimit, releaseMemory } from "./memory.ts"
import * as Tenants from "./TenantNodes.ts"

/** Without traces: polls every second would drown the traces of requests. */
const untraced = Layer.provide(Layer.succeed(References.TracerEnabled, false))

/** The background workers on the rows of tenants. */
const tenantWorkers = Layer.mergeAll(
  ClockSteps.layer,
  DeliveryWorker.layer,
  IdempotencySql.idempotencyWorker,
  JobsSql.jobWorker,
  OrgUsageWorker.layer,
  RetentionSql.retentionWorker,
  SweepsSql.sweepWorker,
).pipe(untraced)

/** All background workers of the platform's database. */
const workers = Layer.mergeAll(
  ActivityWorker.layer,
  AlertsSql.alertWorker,
  DocsQuestionsSql.questionWorker,
  ProjectDocsSql.docsWorker,
  KeyUsageSql.usageWorker,
  KeyUsageSql.usageRetentionWorker,
  SessionsSql.sessionWorker,
  tenantWorkers,
  Layer.effectDiscard(Effect.forkScoped(warnOfOtherKey)),
).pipe(untraced)

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
    NodeServer.layer(hot, {
      host: settings.host,
      port: settings.port,
      maxConnections: ProcessMetrics.openFiles().clients,
    }),
  ).pipe(
    Layer.unwrap,
    Layer.catchTag("ServeError", ({ cause }) => Layer.effectContext(cannotListen(settings, cause))),
  )

/** What reaches outside of the thread: the network, the database, chance, and zips. A simulation has its own. */
const outside = (settings: Settings) => ({
  listener: listener(settings),
  // Deliveries and documents share one connection pool.
  receivers: SafeHttp.layer(settings),
  issuers: operatorHttp,
  random: secureRandom,
  zips: ZipReader.layer,
})

/**
 * The whole service as a layer. It listens after everything else has started, and stops in the opposite order. Provides
 * the HTTP server and the services behind it. The caller provides the logger and the tracer. Fails with a
 * `StartupError`.
 */
export const app = (settings: Settings, { issuers, listener, random, receivers, zips } = outside(settings)) =>
  Layer.mergeAll(Server.layer, ProcessMetrics.layer, logWelcome(settings)).pipe(
    Layer.provideMerge(listener),
    Layer.provideMerge(Layer.mergeAll(workers, Tenants.layer(Layer.provideMerge(tenantWorkers, webhooks(settings))))),
    Layer.provideMerge(Layer.merge(KeyTokens.layer, alerts(settings))),
    Layer.provide(Layer.mergeAll(TokenKeysSql.layer, Layer.succeed(TokenIssuer, settings.baseUrl))),
    Layer.provideMerge(Layer.mergeAll(platform(settings), webhooks(settings), chat(settings))),
    Layer.provide([receivers, issuers, zips]),
    Layer.provideMerge(LiveFeed.layer.pipe(Layer.provide(LiveChannel.layer))),
    Layer.provideMerge(ActivityRecorder.layer.pipe(Layer.provideMerge(ActivitySql.layer))),
    Layer.provideMerge(Database.layer(settings)),
    Layer.provideMerge(Layer.mergeAll(NodeCrypto.layer, random, keyHash)),
    Layer.provide(Layer.succeed(DefaultLimits, settings.limits)),
    Layer.provide(Layer.succeed(RetentionDays, settings.retentionDays)),
    Layer.provide(Layer.succeed(AuditRetentionDays, settings.auditRetentionDays)),
    Layer.provide(Layer.succeed(KeyCache.KeyCacheSize, settings.keyCacheSize ?? cachesWithin(memoryLimit()).keys)),
    Layer.provide(TokenGuesses.layer),
    Layer.provide(Layer.succeed(AdminTokens, { tokens: settings.adminTokens, baseUrl: settings.baseUrl })),
    Layer.provide(Layer.succeed(MetricsToken, settings.metricsToken)),
    Layer.provide(Layer.succeed(PortalLook, settings.portal)),
    Layer.provide(Layer.succeed(TrustedProxies, settings.trustedProxies)),
  )

/** The services of the platform interface: keys, orgs, projects, deployments. */
const platform = (settings: Settings) => {
  const repositories = Layer.mergeAll(
    ApiKeysSql.layer,
    RolesSql.layer,
    DeploymentsSql.layer,
    KeyCountersSql.layer,
    KeyUsageSql.layer,
    OrgsSql.layer,
    ProjectsSql.layer,
  )
  const policy = RegistrationPolicy.layer({
    allowedOwners: settings.allowedOwners ?? "linked",
    defaultBranches: settings.defaultBranches,
    // When several entries have one name, the first wins: a map keeps the last, so the list is reversed.
    issuers: new Map(settings.ciProviders.toReversed().map(({ issuer, provider }) => [provider, issuer])),
    pinFault: (name, pins) => settings.ciProviders.find(({ provider }) => provider === name)?.pinFault(pins),
  })
  const keys = AfterCommit.keys.pipe(Layer.provideMerge(KeyCache.layer), Layer.provide(KeyCache.keyRevocations))
  const tokens = Oidc.layer(settings.ciProviders)
  const reportSignatures = GithubSignatures.layer(settings.githubKeysUrl)
  return Layer.mergeAll(
    ApiKeys.layer,
    Deployments.layer,
    KeyUsageReport.layer,
    LeakedKeys.layer,
    Orgs.layer,
    Projects.layer,
    Roles.layer,
  ).pipe(
    Layer.provideMerge(ServiceStates.layer),
    Layer.provideMerge(Layer.merge(readiness, databaseSize)),
    Layer.provideMerge(Activities.layer),
    Layer.provideMerge(people(settings).pipe(Layer.provideMerge(Sessions.layer), Layer.provide(SessionsSql.layer))),
    Layer.provideMerge(Layer.mergeAll(keys, policy, tokens, reportSignatures, audit, KeyCache.validationMetrics)),
    Layer.provideMerge(repositories),
  )
}

/** Who signs in with the company's identity. */
const people = ({ baseUrl, people: settings }: Settings) =>
  settings === undefined
    ? Layer.succeed(People.People, undefined)
    : People.layer(settings).pipe(
        Layer.provide(IdentityProvider.layer({ ...settings, redirectUri: `${baseUrl}${callbackPath}` })),
      )

/** Alerts, and the looks at what they watch. */
const alerts = (settings: Settings) =>
  Layer.merge(Alerts.layer, AlertWatch.layer).pipe(
    Layer.provide([AlertsSql.layer, MailSender.layer(settings)]),
    Layer.provide(Layer.succeed(ConsoleUrl, `${settings.baseUrl}/console`)),
  )

/** Whether traces are exported. If so, deliveries carry trace headers. */
const isTraced = ({ otlp }: Settings) => otlp !== undefined

const repositories = Layer.mergeAll(
  DeliveryLogSql.layer,
  DeliveryMetrics.layer.pipe(Layer.provide(DeliveryQueueSql.layer)),
  EventsSql.layer,
  EventTypesSql.layer,
  IdempotencySql.layer,
  JobsSql.layer,
  JobSchedulesSql.layer,
  PendingDeliveriesSql.layer,
  RetentionSql.layer,
  SigningKeysSql.layer,
  SweepsSql.layer.pipe(Layer.provide(JobsSql.layer)),
  WebhookEndpointsSql.layer,
)

/** The share of this process's slots that the workers of each database have. */
const shareOf = ({ nodes }: Settings) => {
  const { maxBytes, maxInFlight } = DeliveryWorker.defaultOptions
  const databases = 1 + nodes.size
  return {
    maxInFlight: Math.ceil(Math.min(maxInFlight, ProcessMetrics.openFiles().attempts) / databases),
    maxBytes: Math.ceil(maxBytes / databases),
  }
}

/**
 * The services of the webhook interface (endpoints, jobs, schedules, deliveries), and idempotency, which shares the
 * cipher.
 */
const webhooks = (settings: Settings) => {
  const cipher = Layer.unwrap(Effect.map(EncryptionKeys.load(settings), Cipher.layer))
  const plainSender = WebhookSender.layer(settings.webhookTimeout)
  const [dispatcher, sender] = isTraced(settings)
    ? [
        DeliveryMetrics.dispatcher.pipe(Layer.provide(Dispatcher.layer)),
        DeliveryMetrics.sender.pipe(Layer.provide(plainSender)),
      ]
    : [Dispatcher.layer, plainSender]
  const tools = Layer.mergeAll(
    audit,
    // With its exporter.
    isTraced(settings) ? logAudit : Layer.empty,
    cipher,
    sender,
    Layer.provideMerge(Signer.layer, signatures),
    AfterCommit.wakeups.pipe(Layer.provide(Wakeups.layer)),
    Layer.succeed(ReceiverUrlRules, {
      httpsOnly: settings.adminTokens !== undefined,
      allowPrivateNetworks: settings.allowPrivateNetworks,
    }),
    Layer.succeed(RetryDelays, settings.webhookRetryDelays ?? defaultDelays),
    Layer.succeed(DeliveryWorker.DeliveryWorkerOptions, {
      ...DeliveryWorker.defaultOptions,
      laneCap: settings.endpointConcurrency,
      ...shareOf(settings),
      attemptTimeout: settings.webhookTimeout,
    }),
  )
  return Layer.mergeAll(
    DeliveryLog.layer,
    dispatcher,
    Events.layer,
    EventTypes.layer,
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

/**
 * Chat over documentation, and documentation that is stored with projects. Loads the model's SDK only if a model is
 * configured.
 */
const chat = ({ ai, aiUnverified, chatIndexMemory }: Settings) => {
  const caches = cachesWithin(memoryLimit())
  const model =
    ai === undefined
      ? LanguageModel.none
      : Layer.unwrap(
          Effect.map(
            Effect.promise(() => import("../infrastructure/docs/HttpLanguageModel.ts")),
            (module) => module.layer(ai),
          ),
        )
  const indexes = DocsIndexes.layer(chatIndexMemory ?? caches.indexes)
  return Layer.mergeAll(Chats.layer, DocsFetcher.layer, DocsReaders.layer).pipe(
    Layer.provideMerge(Layer.merge(DocsQuestions.layer, StoredDocs.layer)),
    Layer.provide([model, Layer.succeed(UnverifiedSentences, aiUnverified), audit]),
    Layer.provide([DocsQuestionsSql.layer, ProjectDocsSql.layer]),
    Layer.provide(Documents.layer({ maxBytes: caches.documents })),
    Layer.provideMerge(Layer.mergeAll(ChatRateLimits.layer, DocsWakeup.layer, indexes)),
    Layer.provideMerge(Layer.succeed(ChatBodyMemory, { bytes: caches.chatBodies, release: releaseMemory })),
  )
}

/** The audit log, which records the changes of the services below. */
const audit = AuditLog.layer.pipe(Layer.provide(AuditLogSql.layer))

/** The welcome at a terminal: address, mode, database, console, docs and a first request. */
export const welcomeText = (
  url: string,
  { adminTokens, databaseUrl, dataDir }: Pick<Settings, "adminTokens" | "databaseUrl" | "dataDir">,
) => {
  const guarded = adminTokens !== undefined
  const embedded = `embedded database in ${dataDir === "memory" ? "memory: nothing is kept" : dataDir}`
  const token = (adminTokens?.length ?? 0) > 1 ? "${ADMIN_TOKEN%%,*}" : "$ADMIN_TOKEN"
  const credential = guarded ? ` -H "authorization: Bearer ${token}"` : ""
  return [
    `Gatehouse listens on ${url} (${guarded ? "guarded" : "open"} mode, ${databaseUrl === undefined ? embedded : "PostgreSQL"})`,
    `  console  ${url}/console`,
    `  docs     ${url}/docs`,
    `  try      curl -X POST ${url}/api/v0/projects${credential} -H "content-type: application/json" -d '{"name":"docs"}'`,
  ].join("\n")
}

/** The same facts as fields of a JSON log line. */
const welcomeFields = (url: string, { adminTokens, databaseUrl, dataDir }: Settings) => ({
  url,
  mode: adminTokens === undefined ? "open" : "guarded",
  ...(databaseUrl === undefined ? { database: "embedded", dataDir } : { database: "postgres" }),
  console: `${url}/console`,
  docs: `${url}/docs`,
})

/** Logs the address and the mode once the server listens, and warns about settings that should be set. */
const logWelcome = (settings: Settings) =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const server = yield* HttpServer.HttpServer
      const port = "port" in server.address ? server.address.port : settings.port
      const url = `http://${urlHost(settings.host)}:${port}`
      yield* settings.logFormat === "pretty"
        ? Effect.logInfo(welcomeText(url, settings))
        : Effect.annotateLogs(Effect.logInfo(`Gatehouse listens on ${url}`), welcomeFields(url, settings))
      for (const sentence of settings.misspelt) yield* Effect.logWarning(sentence)
      for (const name of settings.quotedSecrets) {
        yield* Effect.logWarning(
          `${name} begins or ends with a quotation mark or white space, which is part of the secret here. If a file of variables has kept it, remove it there`,
        )
      }
      if (settings.adminTokens !== undefined && !settings.isBaseUrlSet) {
        yield* Effect.logWarning(
          `BASE_URL is not set: the service uses ${settings.baseUrl} as its address and as the audience of CI tokens. Set its public address, for example BASE_URL=https://gatehouse.example.com`,
        )
      }
      if (settings.allowedOwners === undefined) {
        yield* Effect.logWarning(
          "OIDC_ALLOWED_OWNERS is not set: only linked repositories and those of an org's owners may register deployments. To allow others, set their owners, for example OIDC_ALLOWED_OWNERS=acme",
        )
      }
    }),
  )
