import { DateTime, Effect } from "effect"
import { SecureRandom } from "effect/crypto"
import * as Hex from "effect/encoding/Hex"
import { Cipher } from "../Cipher.ts"
import { Conflict } from "../Errors.ts"
import { eventBody, eventType } from "./Event.ts"
import type { StoredSecret } from "./DeliveryQueue.ts"
import { prepareSign } from "./prepareSign.ts"
import { Signer } from "./Signature.ts"
import { isDelivered } from "./RetryDecision.ts"
import { WebhookEndpointRepository } from "./WebhookEndpointRepository.ts"
import { WebhookSender } from "./WebhookSender.ts"

/** The response of an endpoint to a test. */
export interface TestResult {
  readonly delivered: boolean
  readonly status: number | null
  readonly body: string | null
  readonly error: string | null
}

/** The tests of one org's endpoints that may be in flight in this process. */
const maxTestsPerOrg = 4

const sameEndpoint = () => new Conflict({ error: "A test of this endpoint is in flight; wait for its answer." })
const sameOrg = () =>
  new Conflict({ error: `${maxTestsPerOrg} tests of your endpoints are in flight; wait for one of their answers.` })

/** Limits the endpoint tests in flight in this process: one for each endpoint, and `maxTestsPerOrg` for each org. */
const makeLimit = () => {
  // The ids of endpoints by org. An org with no test in flight has no entry.
  const inFlight = new Map<string, Set<string>>()

  const end = (orgId: string, endpointId: string) => {
    const ids = inFlight.get(orgId)!
    ids.delete(endpointId)
    if (ids.size === 0) inFlight.delete(orgId)
  }

  return <A, E, R>(
    orgId: string,
    endpointId: string,
    test: Effect.Effect<A, E, R>,
  ): Effect.Effect<A, E | Conflict, R> =>
    Effect.acquireUseRelease(
      Effect.suspend(() => {
        const ids = inFlight.get(orgId) ?? new Set()
        if (ids.has(endpointId)) return Effect.fail(sameEndpoint())
        if (ids.size >= maxTestsPerOrg) return Effect.fail(sameOrg())
        inFlight.set(orgId, ids.add(endpointId))
        return Effect.void
      }),
      () => test,
      () => Effect.sync(() => end(orgId, endpointId)),
    )
}

/**
 * Tests endpoints: sends a signed `job.completed` with made-up ids, and returns the response. Fails with a `Conflict` when
 * too many tests are in flight.
 */
export const make = Effect.gen(function* () {
  const repository = yield* WebhookEndpointRepository
  const cipher = yield* Cipher
  const signer = yield* Signer
  const sender = yield* WebhookSender
  const random = yield* SecureRandom.SecureRandom
  const limited = makeLimit()
  const decryptAll = Effect.forEach(({ stored, owner }: StoredSecret) => cipher.decrypt(stored, owner))

  const send = Effect.fnUntraced(function* (orgId: string, id: string) {
    const now = yield* DateTime.now
    const { url, ...stored } = yield* repository.findSigning(orgId, id, now)
    const status = "completed"
    const ids = { job_id: yield* random.ulid, workflow: "test", deployment_id: null }
    const result = { result: { test: true }, error: null, mapped_stack: null }
    const body = eventBody({ ...ids, status, ...result }, Hex.encode(yield* random.randomBytes(16)))
    const sign = yield* prepareSign(signer, decryptAll, {
      secrets: stored.secrets.map((secret) => ({ stored: secret, owner: id })),
      signingKeys: stored.signingKeys.map((key) => ({ stored: key, owner: orgId })),
      headers: stored.headers === null ? null : { stored: stored.headers, owner: id },
    })
    const timestamp = Math.floor(DateTime.toEpochMillis(now) / 1000)
    const headers = sign({ deliveryId: yield* random.ulid, event: eventType(status), body, timestamp })
    const outcome = yield* sender.send({ url, headers, body })
    return {
      delivered: isDelivered(outcome),
      status: outcome.status,
      body: outcome.body,
      error: outcome.failure?.message ?? null,
    }
  })

  return (orgId: string, id: string) => limited(orgId, id, send(orgId, id))
})
