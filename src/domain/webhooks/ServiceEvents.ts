import type { DateTime } from "effect"
import { Effect } from "effect"
import type { SecureRandom } from "effect/crypto"
import * as Hex from "effect/encoding/Hex"
import { type NewEvent, ownBody } from "./Event.ts"
import type { ServiceEventType } from "./EventPatterns.ts"
import type { DeactivatedReason } from "./WebhookEndpoint.ts"

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

/** The event that an endpoint was deactivated. */
export const deactivated = (endpointId: string, reason: typeof DeactivatedReason.Type): NewServiceEvent => ({
  type: "endpoint.deactivated",
  data: { webhook_endpoint_id: endpointId, reason },
  except: endpointId,
})

/** Makes an event of the service's own, for the repository that writes the change that it is about. */
export const makeServiceEvent = Effect.fnUntraced(function* (
  random: SecureRandom.SecureRandom["Service"],
  { type, data, except = null }: NewServiceEvent,
  createdAt: DateTime.Utc,
) {
  const event = { id: yield* random.ulid, type, createdAt }
  const nonce = Hex.encode(yield* random.randomBytes(16))
  const body = ownBody(event, nonce, JSON.stringify(data))
  return { ...event, body, idempotencyKey: null, except } satisfies ServiceEvent
})
