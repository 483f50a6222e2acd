import { DateTime, Effect } from "effect"
import type { SecureRandom } from "effect/crypto"
import * as Hex from "effect/encoding/Hex"

/** The types of the service's own events. */
export const serviceEventTypes = [
  "endpoint.deactivated",
  "delivery.failed",
  "deployment.registered",
  "deployment.promoted",
  "key.created",
  "key.rotated",
  "key.deleted",
  "key.leaked",
] as const
export type ServiceEventType = (typeof serviceEventTypes)[number]

/** An event without a job: one that a user publishes, or one of the service's own. */
export interface NewEvent {
  readonly id: string
  readonly type: string
  /** The exact bytes of every delivery. */
  readonly body: string
  readonly idempotencyKey: string | null
  /** Empty: it reaches no endpoint that has channels. */
  readonly channels: ReadonlyArray<string>
  readonly createdAt: DateTime.Utc
}

/** The body of an event without a job. `data` is its JSON text, so that it is encoded once. */
export const envelopeBody = (
  { createdAt, id, type }: Pick<NewEvent, "id" | "type" | "createdAt">,
  nonce: string,
  data: string,
): string => {
  const head = JSON.stringify({ event: type, event_id: id, nonce, created_at: DateTime.formatIso(createdAt) })
  return `${head.slice(0, -1)},"data":${data}}`
}

/** A random value that makes each event's signature another one, in lower-case hexadecimal digits. */
export const makeNonce = (random: SecureRandom.SecureRandom["Service"]) =>
  Effect.map(random.randomBytes(16), Hex.encode)

/** An event of the service's own, without its id and its time. */
export interface NewServiceEvent {
  readonly type: ServiceEventType
  /** The ids concerned, and what a reader needs to act. */
  readonly data: Readonly<Record<string, unknown>>
  /** The endpoint that the event is about: it gets no delivery. */
  readonly except?: string | null | undefined
}

/** An event of the service's own. It is written only while another endpoint of the org names its type. */
export interface ServiceEvent extends NewEvent {
  /** The endpoint that gets no delivery; `null` when the event is about none. */
  readonly except: string | null
}

/** Makes an event of the service's own, for the repository that writes the change that it is about. */
export const makeServiceEvent = Effect.fnUntraced(function* (
  random: SecureRandom.SecureRandom["Service"],
  { type, data, except = null }: NewServiceEvent,
  createdAt: DateTime.Utc,
) {
  const event = { id: yield* random.ulid, type, createdAt }
  const nonce = yield* makeNonce(random)
  const body = envelopeBody(event, nonce, JSON.stringify(data))
  return { ...event, body, idempotencyKey: null, channels: [], except } satisfies ServiceEvent
})
