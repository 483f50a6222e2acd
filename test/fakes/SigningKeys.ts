import { DateTime, Effect, Layer } from "effect"
import { SigningKeyRepository } from "#src/domain/webhooks/Signatures.ts"
import { WebhookWorld } from "./WebhookWorld.ts"
import { keepEntry } from "./World.ts"

/** Ed25519 keys of orgs in memory. */
export const layer = Layer.effect(
  SigningKeyRepository,
  Effect.map(WebhookWorld, (world) => {
    const { signingKeys } = world
    return SigningKeyRepository.of({
      find: (orgId, now) =>
        Effect.sync(() =>
          (signingKeys.get(orgId) ?? [])
            .filter(({ until }) => until === null || DateTime.isGreaterThan(until, now))
            .map(({ key }) => key.publicKey),
        ),
      insert: (orgId, key) =>
        Effect.map(world.needOrg(orgId), () => {
          if (!signingKeys.has(orgId)) signingKeys.set(orgId, [{ key, until: null }])
        }),
      rotate: (orgId, key, until, _, entry) =>
        Effect.map(world.needOrg(orgId), () => {
          keepEntry(world, orgId, entry)
          const [current] = signingKeys.get(orgId) ?? []
          signingKeys.set(orgId, [{ key, until: null }, ...(current === undefined ? [] : [{ ...current, until }])])
        }),
    })
  }),
)
