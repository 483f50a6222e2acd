import { DateTime, Effect } from "effect"
import type { SecureRandom } from "effect/crypto"
import type { JobEnd } from "#src/domain/jobs/JobEnd.ts"
import { jobEventBody, jobEventType, type FinishedJob } from "#src/domain/webhooks/Event.ts"
import { type Receiver, receivers, receives, topicsOf } from "#src/domain/webhooks/EventPatterns.ts"
import { callbackLane } from "#src/infrastructure/queue/lanes.ts"
import { passes } from "./eventFilter.ts"
import type { StoredEvent, StoredJob, WebhookWorld } from "./WebhookWorld.ts"

/** The org's endpoints that want an event, in the order of their ids. */
export const candidates = (
  { endpoints }: WebhookWorld["Service"],
  orgId: string,
  { body, channels, type }: { readonly type: string; readonly body: string; readonly channels: ReadonlyArray<string> },
) =>
  [...endpoints.values()]
    .filter(({ settings }) => receives(settings.eventTypes, topicsOf(type), settings.channels, channels))
    .filter(({ orgId: owner, settings }) => owner === orgId && passes(settings.filter, body))
    .map(({ row: { webhook_endpoint_id: id, active } }) => ({ id, active }))
    .sort((a, b) => (a.id < b.id ? -1 : 1))

let places = 0
/** A place after all others of every lane. */
export const nextPlace = () => ++places

/** Writes an event and its deliveries. */
export const insertEvent = Effect.fnUntraced(function* (
  world: WebhookWorld["Service"],
  random: SecureRandom.SecureRandom["Service"],
  event: StoredEvent,
  to: ReadonlyArray<Receiver>,
  callback: string,
) {
  const { body, createdAt, id: event_id, jobId: job_id, orgId, type } = event
  world.events.set(event_id, event)
  for (const { endpointId, state } of to) {
    const lane = endpointId ?? callback
    const id = yield* random.ulid
    const within = world.endpoints.get(lane)?.settings.batch?.within_ms ?? 0
    const millis = DateTime.toEpochMillis(createdAt)
    const dueAt = within === 0 ? createdAt : DateTime.makeUnsafe((Math.floor(millis / within) + 1) * within)
    world.deliveries.set(id, {
      orgId,
      row: {
        delivery_id: id,
        event_id,
        job_id,
        webhook_endpoint_id: endpointId,
        event: type,
        state,
        attempts: 0,
        created_at: createdAt,
        updated_at: createdAt,
      },
      payload: body,
      lane,
      attemptsSinceResend: 0,
      place: nextPlace(),
      dueAt: state === "pending" ? dueAt : null,
      // A new delivery of a lane with a backlog joins the backlog.
      backlogged: [...world.deliveries.values()].some(
        (one) => one.lane === lane && one.backlogged && one.row.state === "pending",
      ),
      claimId: null,
      attempts: [],
    })
  }
})

/** Writes the event of a finished job and its deliveries, by the rules of the domain. */
export const writeEvent = Effect.fnUntraced(function* (
  world: WebhookWorld["Service"],
  random: SecureRandom.SecureRandom["Service"],
  { orgId, row, secret }: StoredJob,
  finished: Pick<FinishedJob, "status" | "result" | "error" | "mapped_stack">,
  { endId: id, nonce, now }: Pick<JobEnd, "endId" | "nonce" | "now">,
) {
  const { job_id, workflow, deployment_id, callback_url, skip_callbacks } = row
  const type = jobEventType(finished.status)
  const body = jobEventBody({ job_id, workflow, deployment_id, ...finished }, nonce)
  const to = receivers(
    { callback_url, hasCallbackSecret: secret !== null, skip_callbacks },
    candidates(world, orgId, { type, body, channels: [] }),
  )
  const callback = callback_url === null ? "" : callbackLane(orgId, callback_url)
  const event = { orgId, id, jobId: job_id, idempotencyKey: null, channels: [], type, body, createdAt: now }
  yield* insertEvent(world, random, event, to, callback)
})
