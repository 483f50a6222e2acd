import { Effect, Layer } from "effect"
import type { Settings } from "./config.ts"
import { JobTemplates } from "../domain/jobs/JobTemplates.ts"
import { ReceiverUrlRules } from "../domain/webhooks/ReceiverUrlRules.ts"
import { DeliveryLog } from "../domain/webhooks/DeliveryLog.ts"
import { Events } from "../domain/webhooks/Events.ts"
import { Dispatcher } from "../domain/webhooks/Dispatcher.ts"
import { Idempotency } from "../domain/Idempotency.ts"
import { Jobs } from "../domain/jobs/Jobs.ts"
import { JobSchedules } from "../domain/jobs/JobSchedules.ts"
import { PendingLimit } from "../domain/orgs/PendingLimit.ts"
import { defaultDelays, RetryDelays } from "../domain/webhooks/retryDelays.ts"
import { Retention } from "../domain/Retention.ts"
import { SigningKeys } from "../domain/webhooks/SigningKeys.ts"
import { Signer } from "../domain/webhooks/Signature.ts"
import { Sweeps } from "../domain/sweeps/Sweeps.ts"
import { Wakeups } from "../domain/webhooks/Wakeups.ts"
import { WebhookEndpoints } from "../domain/webhooks/WebhookEndpoints.ts"
import * as Live from "../infrastructure/activity/liveRepositories.ts"
import * as Counted from "../infrastructure/activity/countedRepositories.ts"
import * as AfterCommit from "../infrastructure/database/AfterCommit.ts"
import * as Cipher from "../infrastructure/crypto/Cipher.ts"
import * as DeliveryMetrics from "../infrastructure/webhooks/DeliveryMetrics.ts"
import * as DeliveryTraces from "../infrastructure/webhooks/DeliveryTraces.ts"
import * as EncryptionKeys from "../infrastructure/crypto/EncryptionKeys.ts"
import * as Signatures from "../infrastructure/crypto/Signatures.ts"
import { openFiles } from "../infrastructure/telemetry/openFiles.ts"
import * as DeliveryLogSql from "../infrastructure/webhooks/DeliveryLogRepository.ts"
import * as DeliveryQueueSql from "../infrastructure/webhooks/DeliveryQueueRepository.ts"
import * as EventsSql from "../infrastructure/webhooks/EventRepository.ts"
import * as IdempotencySql from "../infrastructure/idempotency/IdempotencyRepository.ts"
import * as JobsSql from "../infrastructure/jobs/JobRepository.ts"
import * as JobSchedulesSql from "../infrastructure/jobs/JobScheduleRepository.ts"
import * as PendingDeliveriesSql from "../infrastructure/webhooks/PendingDeliveries.ts"
import * as RetentionSql from "../infrastructure/retention/RetentionRepository.ts"
import * as SigningKeysSql from "../infrastructure/webhooks/SigningKeyRepository.ts"
import * as SweepsSql from "../infrastructure/sweeps/SweepRepository.ts"
import * as WebhookEndpointsSql from "../infrastructure/webhooks/WebhookEndpointRepository.ts"
import * as WebhookSender from "../infrastructure/webhooks/WebhookSender.ts"
import * as DeliveryWorker from "../infrastructure/webhooks/DeliveryWorker.ts"
import { audit } from "./audit.ts"

/** Whether traces are exported. If so, deliveries carry trace headers. */
export const isTraced = ({ otlpEndpoint }: Settings) => otlpEndpoint !== undefined

const repositories = Layer.mergeAll(
  DeliveryLogSql.layer,
  Live.deliveries.pipe(
    Layer.provide(Counted.deliveries),
    Layer.provide(DeliveryMetrics.layer),
    Layer.provide(DeliveryQueueSql.layer),
  ),
  EventsSql.layer,
  IdempotencySql.layer,
  Live.jobs.pipe(Layer.provide(Counted.jobs), Layer.provide(JobsSql.layer)),
  JobSchedulesSql.layer,
  PendingDeliveriesSql.layer,
  RetentionSql.layer,
  SigningKeysSql.layer,
  SweepsSql.layer,
  Live.endpoints.pipe(Layer.provide(WebhookEndpointsSql.layer)),
)

/**
 * The services of the webhook interface (endpoints, jobs, schedules, deliveries), and idempotency, which shares the
 * cipher.
 */
export const webhooks = (settings: Settings) => {
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
    Layer.succeed(ReceiverUrlRules, {
      httpsOnly: settings.adminTokens !== undefined,
      allowPrivateNetworks: settings.allowPrivateNetworks,
    }),
    Layer.succeed(RetryDelays, settings.webhookRetryDelays ?? defaultDelays),
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
