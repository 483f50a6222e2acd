import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { SigningKeyRepository } from "#src/domain/webhooks/Signatures.ts"
import { WebhookEndpointRepository } from "#src/domain/webhooks/WebhookEndpointRepository.ts"
import { insertOrg, newEntry } from "../support.ts"
import { claim, day, epoch, insertEndpoint, type It, plus, publish } from "./webhookSupport.ts"

const key = (n: number) => ({ publicKey: `public ${n}`, privateKey: `private ${n}` })

/** The contract of every SigningKeyRepository. */
export const signingKeys = (it: It) => {
  it.effect("signing keys: the first one stays, and a replaced one signs until its end", function* () {
    const keys = yield* SigningKeyRepository
    const endpoints = yield* WebhookEndpointRepository
    const [{ orgId }, { orgId: foreign }] = [yield* insertOrg(), yield* insertOrg()]
    const now = epoch()
    const ed25519 = yield* insertEndpoint(orgId, { signature: "ed25519" })
    const hmac = yield* insertEndpoint(orgId)
    assert.deepStrictEqual(yield* keys.find(orgId, now), [])
    yield* keys.insert(orgId, key(1), now)
    yield* keys.insert(orgId, key(2), now)
    assert.deepStrictEqual(yield* keys.find(orgId, now), ["public 1"])
    yield* keys.rotate(orgId, key(3), plus(now, day), now, newEntry())
    assert.deepStrictEqual(yield* keys.find(orgId, plus(now, day - 1)), ["public 3", "public 1"])
    assert.deepStrictEqual(yield* keys.find(orgId, plus(now, day)), ["public 3"])
    assert.deepStrictEqual(yield* keys.find(foreign, now), [])
    const keysOf = (id: string, at: typeof now) =>
      Effect.map(endpoints.findForSending(orgId, id, at), ({ signingKeys }) => signingKeys)
    assert.deepStrictEqual(yield* keysOf(ed25519, now), ["private 3", "private 1"])
    assert.deepStrictEqual(yield* keysOf(ed25519, plus(now, day)), ["private 3"])
    assert.deepStrictEqual(yield* keysOf(hmac, now), [])
    yield* publish(orgId, "a.b", now)
    const claimed = yield* claim(now)
    assert.deepStrictEqual(
      claimed.map((one) => [one.endpointId, one.signingKeys.map(({ owner, stored }) => [stored, owner])]).toSorted(),
      [
        [
          ed25519,
          [
            ["private 3", orgId],
            ["private 1", orgId],
          ],
        ],
        [hmac, []],
      ].toSorted(),
    )
    // A rotation also creates the first key of an org.
    yield* keys.rotate(foreign, key(4), plus(now, day), now, newEntry())
    assert.deepStrictEqual(yield* keys.find(foreign, now), ["public 4"])
  })
}
