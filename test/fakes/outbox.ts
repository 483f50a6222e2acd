import type { DateTime } from "effect"
import { Effect } from "effect"
import type { SecureRandom } from "effect/crypto"
import type { FinishedJob } from "#src/domain/webhooks/Event.ts"
import { callbackLane } from "#src/domain/webhooks/lanes.ts"
import { eventBody, eventType } from "#src/domain/webhooks/Event.ts"
import { receivers } from "#src/domain/webhooks/Receivers.ts"
import type { StoredJob, WebhookWorld } from "./WebhookWorld.ts"
import { rowsOf } from "./WebhookWorld.ts"

/** Writes the event of a finished job and its deliveries, by the rules of the domain. */
export const writeEvent = Effect.fnUntraced(function* (
  world: WebhookWorld["Service"],
  random: SecureRandom.SecureRandom["Service"],
  { orgId, row, secret }: StoredJob,
  finished: Pick<FinishedJob, "status" | "result" | "error" | "mapped_stack">,
  nonce: string,
  now: DateTime.Utc,
) {
  const { job_id, workflow, deployment_id, callback_url, skip_callbacks } = row
  const event = eventType(finished.status)
  const eventId = yield* random.ulid
  const body = eventBody({ job_id, workflow, deployment_id, ...finished }, nonce)
  world.events.set(eventId, { id: eventId, jobId: job_id, type: event, body, createdAt: now })

  const endpoints = rowsOf(world.endpoints, orgId)
    .map(({ webhook_endpoint_id: id, active }) => ({ id, active }))
    .sort((a, b) => (a.id < b.id ? -1 : 1))
  const to = receivers({ callback_url, hasCallbackSecret: secret !== null, skip_callbacks }, endpoints)
  const add = Effect.fnUntraced(function* (endpoint: string | null, lane: string, state: "pending" | "skipped") {
    const id = yield* random.ulid
    world.deliveries.set(id, {
      orgId,
      row: {
        delivery_id: id,
        event_id: eventId,
        job_id,
        webhook_endpoint_id: endpoint,
        event,
        state,
        attempts: 0,
        created_at: now,
        updated_at: now,
      },
      payload: body,
      lane,
      attemptsSinceResend: 0,
      dueAt: state === "pending" ? now : null,
      // A new delivery of a lane with a backlog joins the backlog.
      parked: [...world.deliveries.values()].some(
        (one) => one.lane === lane && one.parked && one.row.state === "pending",
      ),
      claimId: null,
      attempts: [],
    })
  })
  for (const { endpointId, state } of to) {
    yield* add(endpointId, endpointId ?? callbackLane(orgId, callback_url!), state)
  }
})
