import { DateTime, Duration, Equal } from "effect"
import { minFailuresToDeactivate, type RetryDecision, isAboutReceiver } from "#src/domain/webhooks/RetryDecision.ts"
import type { DeliveryState } from "#src/domain/webhooks/DeliveryLog.ts"
import type { AttemptRecord } from "#src/domain/webhooks/DeliveryQueue.ts"
import type { WebhookWorld } from "./WebhookWorld.ts"

const states: Record<RetryDecision["_tag"], DeliveryState> = {
  Delivered: "delivered",
  Retry: "pending",
  Exhausted: "failed",
  Deactivate: "failed",
}

const storable = (text: string | null | undefined) => text?.replaceAll("\0", "\uFFFD") ?? null

/** Records an attempt. A delivery that was canceled in flight stays canceled unless the attempt delivered it. */
export const recordAttempt = (
  { deliveries }: WebhookWorld["Service"],
  { delivery, startedAt, outcome, decision, nextAttemptAt }: AttemptRecord,
  now: DateTime.Utc,
) => {
  const stored = deliveries.get(delivery.deliveryId)!
  const moves = stored.row.state === "pending" || decision._tag === "Delivered"
  const number = delivery.attempts + 1
  deliveries.set(delivery.deliveryId, {
    ...stored,
    row: { ...stored.row, state: moves ? states[decision._tag] : stored.row.state, attempts: number, updated_at: now },
    attemptsSinceResend: stored.attemptsSinceResend + 1,
    claimId: null,
    dueAt: stored.row.state === "pending" && decision._tag === "Retry" ? nextAttemptAt : null,
    attempts: [
      ...stored.attempts,
      {
        number,
        started_at: startedAt,
        duration_ms: Math.round(Duration.toMillis(outcome.duration)),
        status: outcome.status,
        failure: outcome.failure?.kind ?? null,
        error: storable(outcome.failure?.message),
        body: storable(outcome.body),
      },
    ],
  })
}

/** Decides again about attempts that are to deactivate an endpoint which stays active. */
export const decideAgain = (
  { endpoints }: WebhookWorld["Service"],
  records: ReadonlyArray<AttemptRecord>,
  now: DateTime.Utc,
) => {
  const working = new Set(
    records.flatMap(({ decision, delivery }) => (decision._tag === "Delivered" ? [delivery.endpointId] : [])),
  )
  return records.map((record): AttemptRecord => {
    const { decision, delivery, nextAttemptAt } = record
    if (decision._tag !== "Deactivate") return record
    const { failingSince, row } = endpoints.get(delivery.endpointId ?? "") ?? {}
    const hasFailed = Equal.equals(failingSince, delivery.failingSince) && !working.has(delivery.endpointId)
    if (row?.active === true && row.url === delivery.url && (decision.reason === "gone" || hasFailed)) return record
    if (nextAttemptAt === null) return { ...record, decision: { _tag: "Exhausted" } }
    return { ...record, decision: { _tag: "Retry", wait: DateTime.distance(now, nextAttemptAt) } }
  })
}

/** Applies attempts to the health of their endpoints. Returns the ids of the deactivated endpoints. */
export const recordEndpoints = (
  world: WebhookWorld["Service"],
  records: ReadonlyArray<AttemptRecord>,
  now: DateTime.Utc,
) => {
  const { endpoints, failingCallbacks } = world
  const ended: Array<string> = []
  for (const { delivery, outcome, decision } of records) {
    if (delivery.endpointId === null && isAboutReceiver(outcome)) {
      if (decision._tag === "Delivered") failingCallbacks.delete(delivery.lane)
      else failingCallbacks.add(delivery.lane)
    }
    const endpoint = endpoints.get(delivery.endpointId ?? "")
    // After a change of its URL, an endpoint is another receiver.
    if (endpoint === undefined || endpoint.row.url !== delivery.url || !isAboutReceiver(outcome)) continue
    const id = endpoint.row.webhook_endpoint_id
    const { failingSince, row } = endpoint
    if (decision._tag === "Delivered") {
      endpoints.set(id, { ...endpoint, failingSince: null, failures: 0 })
      continue
    }
    const reason = decision._tag === "Deactivate" ? decision.reason : "failing"
    const ends = decision._tag === "Deactivate" && row.active
    if (ends) {
      ended.push(id)
      const change = { action: "webhook_endpoint.deactivate", target: id, details: { reason } } as const
      const entry = { id: delivery.deliveryId, at: now, actor: "service", ...change, requestId: null, person: null }
      world.audit.set(entry.id, { orgId: endpoint.orgId, row: entry })
    }
    endpoints.set(id, {
      ...endpoint,
      failingSince: failingSince ?? now,
      failures: failingSince === null ? 1 : Math.min(endpoint.failures + 1, minFailuresToDeactivate),
      deactivated: ends ? { at: now, reason } : endpoint.deactivated,
      row: ends ? { ...row, active: false, updated_at: now } : row,
    })
  }
  return ended
}
