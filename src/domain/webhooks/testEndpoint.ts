import { DateTime, Effect } from "effect"
import { SecureRandom } from "effect/crypto"
import { Cipher } from "../Cipher.ts"
import { Conflict, InvalidRequest } from "../Errors.ts"
import { envelopeBody, makeNonce } from "../ServiceEvent.ts"
import { StoredJson } from "../StoredJson.ts"
import { batchBody, batchType, jobEventBody, sentBody } from "./Event.ts"
import { isServiceType, testTypeOf } from "./EventPatterns.ts"
import { dataText } from "./Events.ts"
import { EventTypeRepository } from "./EventTypes.ts"
import { isDelivered } from "./RetryDecision.ts"
import { exampleData } from "./serviceEventData.ts"
import { prepareSign, Signer } from "./Signatures.ts"
import type { TestWebhookEndpoint } from "./WebhookEndpoint.ts"
import { WebhookEndpointRepository } from "./WebhookEndpointRepository.ts"
import { WebhookSender } from "./WebhookSender.ts"

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

/** The body of a test event: with the data of the request, or else made-up data of its type. */
const testBody = Effect.fnUntraced(function* (
  random: SecureRandom.SecureRandom["Service"],
  type: string,
  data: unknown,
  createdAt: DateTime.Utc,
) {
  const nonce = yield* makeNonce(random)
  const id = yield* random.ulid
  if (type === "job.failed" && data !== undefined) {
    return yield* new InvalidRequest({ error: "data must be absent: a job.failed has an error and no result." })
  }
  const example = isServiceType(type) ? exampleData(type) : { test: true }
  const text = yield* dataText(data === undefined ? example : data, "data")
  const job = { job_id: id, workflow: "test", deployment_id: null, mapped_stack: null }
  if (type === "job.failed") return jobEventBody({ ...job, status: "failed", result: null, error: "A test." }, nonce)
  if (type === "job.completed") {
    return jobEventBody({ ...job, status: "completed", result: new StoredJson(text), error: null }, nonce)
  }
  return envelopeBody({ id, type, createdAt }, nonce, text)
})

/**
 * Tests endpoints: sends a signed event, stores nothing, and returns what was sent and the response. Fails with a
 * `Conflict` when too many tests are in flight.
 */
export const makeSendTest = Effect.gen(function* () {
  const repository = yield* WebhookEndpointRepository
  const cipher = yield* Cipher
  const signer = yield* Signer
  const sender = yield* WebhookSender
  const random = yield* SecureRandom.SecureRandom
  const catalogue = yield* EventTypeRepository
  const limited = makeLimit()
  /** The example of a type of the catalogue. */
  const exampleOf = (orgId: string, type: string) =>
    catalogue.find(orgId, type).pipe(
      Effect.map(({ example }) => example ?? undefined),
      Effect.catchTag("NotFound", () => Effect.undefined),
    )

  const send = Effect.fnUntraced(function* (orgId: string, { data, id, type }: typeof TestWebhookEndpoint.Type) {
    const now = yield* DateTime.now
    const { eventTypes, headerNames, url, ...stored } = yield* repository.findForSending(orgId, id, now)
    const event = type ?? testTypeOf(eventTypes)
    const example = data === undefined ? yield* exampleOf(orgId, event) : data
    const one = sentBody(stored.payload, yield* testBody(random, event, example, now))
    const payload = stored.batch === null ? one : batchBody([one])
    const { auth, sign } = yield* prepareSign(cipher, signer, {
      secrets: stored.secrets.map((secret) => ({ stored: secret, owner: id })),
      signingKeys: stored.signingKeys.map((key) => ({ stored: key, owner: orgId })),
      headers: stored.headers === null ? null : { stored: stored.headers, owner: id },
      auth: stored.auth === null ? null : { stored: stored.auth, owner: id },
    })
    const timestamp = Math.floor(DateTime.toEpochMillis(now) / 1000)
    const sentType = stored.batch === null ? event : batchType
    const headers = sign({ deliveryId: yield* random.ulid, event: sentType, body: payload, timestamp, headerNames })
    const outcome = yield* sender.send({ url, owner: orgId, headers, body: payload, auth })
    return {
      event,
      payload,
      delivered: isDelivered(outcome),
      status: outcome.status,
      body: outcome.body,
      error: outcome.failure?.message ?? null,
    }
  })

  return (orgId: string, input: typeof TestWebhookEndpoint.Type) => limited(orgId, input.id, send(orgId, input))
})
