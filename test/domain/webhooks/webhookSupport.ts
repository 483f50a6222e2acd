import { DateTime, Effect, Layer } from "effect"
import { AuditLog } from "#src/domain/audit/AuditLog.ts"
import { JobTemplates } from "#src/domain/jobs/JobTemplates.ts"
import { ReceiverUrlRules } from "#src/domain/callableUrls.ts"
import { DeliveryLog } from "#src/domain/webhooks/DeliveryLog.ts"
import { Dispatcher } from "#src/domain/webhooks/Dispatcher.ts"
import { Events } from "#src/domain/webhooks/Events.ts"
import { Jobs } from "#src/domain/jobs/Jobs.ts"
import { JobSchedules } from "#src/domain/jobs/JobSchedules.ts"
import { Signer, SigningKeys } from "#src/domain/webhooks/Signatures.ts"
import { CurrentPrincipal, Principal } from "#src/domain/Principal.ts"
import { Wakeups } from "#src/domain/Wakeups.ts"
import { WebhookEndpoints } from "#src/domain/webhooks/WebhookEndpoints.ts"
import { signatures } from "#src/infrastructure/crypto/nodeCrypto.ts"
import * as Cipher from "../../fakes/Cipher.ts"
import * as crypto from "../../fakes/crypto.ts"
import * as fakes from "../../fakes/webhooks.ts"
import * as WebhookSender from "../../fakes/WebhookSender.ts"
import { World } from "../../fakes/World.ts"

/** Every service of the webhook interface over the fakes; `options` replace single layers. */
export const services = (
  options: {
    readonly httpsOnly?: boolean
    readonly allowPrivateNetworks?: boolean
    readonly repositories?: typeof fakes.layer
  } = {},
) =>
  Layer.mergeAll(
    DeliveryLog.layer,
    Dispatcher.layer,
    Events.layer,
    Jobs.layer,
    JobSchedules.layer,
    WebhookEndpoints.layer,
  ).pipe(
    Layer.provideMerge(SigningKeys.layer),
    Layer.provideMerge(Layer.merge(AuditLog.layer, JobTemplates.layer)),
    Layer.provideMerge(options.repositories ?? fakes.layer),
    Layer.provideMerge(WebhookSender.layer),
    Layer.provideMerge(Layer.mergeAll(Cipher.layer, Wakeups.layer, Layer.provideMerge(Signer.layer, signatures))),
    Layer.provideMerge(
      Layer.succeed(ReceiverUrlRules, {
        httpsOnly: options.httpsOnly ?? true,
        allowPrivateNetworks: options.allowPrivateNetworks ?? false,
      }),
    ),
    Layer.provideMerge(crypto.layer),
  )

/** Runs as this org. */
export const as = (orgId: string) =>
  Effect.provideService(CurrentPrincipal, {
    principal: Principal.OrgKey({ orgId, keyId: `key of ${orgId}` }),
    open: false,
  })

export const makeOrg = Effect.fnUntraced(function* (orgId: string) {
  const { orgs } = yield* World
  orgs.set(orgId, { orgId, name: "Acme", createdAt: DateTime.makeUnsafe(0) })
  return orgId
})

/** Literal hosts of urls, by whether they may be called, with several notations of one address. */
export const literalHosts = {
  private: ["10.0.0.1", "0xa000001", "167772161", "012.0.0.1", "10.1", "127.0.0.1.", "[::1]", "[fd12::1]"],
  special: ["169.254.169.254", "0xA9FEA9FE", "[::ffff:10.0.0.1]", "[::ffff:8.8.8.8]", "[64:ff9b::808:808]", "0.0.0.0"],
  // The address of a name is resolved at the call.
  allowed: ["8.8.8.8", "0x08080808", "[2606:4700:4700::1111]", "example.com", "localhost", "10.0.0.1.example.com"],
}

/** The literal hosts that are refused when private networks may, or may not, be called. */
export const refusedHosts = (allowPrivateNetworks: boolean) =>
  allowPrivateNetworks ? literalHosts.special : [...literalHosts.private, ...literalHosts.special]

/** Lets other fibers run until they wait for time or for each other. */
export const settle = Effect.replicateEffect(Effect.yieldNow, 50, { discard: true })
