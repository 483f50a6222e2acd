import { DateTime, Effect, Layer } from "effect"
import {
  type Delivery,
  DeliveryLogRepository,
  deliveryNotFound,
  type DeliveryDetail,
  endpointInactive,
  endpointName,
  maxShownAttempts,
  maxTopEndpoints,
  type ResendFilter,
  resendNotFound,
} from "#src/domain/webhooks/DeliveryLog.ts"
import { sentBody } from "#src/domain/webhooks/Event.ts"
import { Conflict } from "#src/domain/Errors.ts"
import { endpointNotFound } from "#src/domain/webhooks/WebhookEndpointRepository.ts"
import { nextPlace } from "./outbox.ts"
import type { StoredDelivery } from "./WebhookWorld.ts"
import { ownedBy, WebhookWorld } from "./WebhookWorld.ts"
import { findOr, rowsAfter } from "./World.ts"

const conflict = (error: string) => Effect.fail(new Conflict({ error }))
const inactive = Effect.fail(endpointInactive())

const shown = ({ attempts, row, dueAt }: StoredDelivery): Delivery => ({
  ...row,
  ...lastOf(attempts.at(-1)),
  next_attempt_at: row.state === "pending" ? dueAt : null,
})

const lastOf = (attempt: DeliveryDetail["attempt_log"][number] | undefined) => ({
  last_status: attempt?.status ?? null,
  last_failure: attempt?.failure ?? null,
  last_duration_ms: attempt?.duration_ms ?? null,
})

/** The delivery log in memory. */
export const layer = Layer.effect(
  DeliveryLogRepository,
  Effect.map(WebhookWorld, ({ deliveries, endpoints }) => {
    const nameOf = (id: string) => {
      const endpoint = endpoints.get(id)?.row
      return endpoint === undefined ? null : endpointName(endpoint)
    }
    const isInFlight = ({ claimId, dueAt }: StoredDelivery, now: DateTime.Utc) =>
      claimId !== null && dueAt !== null && DateTime.isGreaterThan(dueAt, now)
    const resend = (delivery: StoredDelivery, now: DateTime.Utc) => {
      const inFlight = isInFlight(delivery, now)
      deliveries.set(delivery.row.delivery_id, {
        ...delivery,
        row: { ...delivery.row, state: "pending", updated_at: now },
        attemptsSinceResend: 0,
        place: nextPlace(),
        dueAt: inFlight ? delivery.dueAt : now,
        backlogged: false,
        claimId: inFlight ? delivery.claimId : null,
      })
    }

    const resendable = (orgId: string, filter: ResendFilter) =>
      [...deliveries.values()].filter((delivery) => {
        const { row } = delivery
        const { last_failure, last_status } = shown(delivery)
        return (
          delivery.orgId === orgId &&
          endpoints.get(row.webhook_endpoint_id ?? "")?.row.active === true &&
          (filter.state === undefined ? ["failed", "canceled", "skipped"] : [filter.state]).includes(row.state) &&
          (filter.webhook_endpoint_id ?? row.webhook_endpoint_id) === row.webhook_endpoint_id &&
          (filter.event_type ?? row.event) === row.event &&
          (filter.status ?? last_status) === last_status &&
          (filter.failure ?? last_failure) === last_failure &&
          (filter.since === undefined || DateTime.isGreaterThanOrEqualTo(row.created_at, filter.since)) &&
          (filter.until === undefined || DateTime.isLessThan(row.created_at, filter.until))
        )
      })

    return DeliveryLogRepository.of({
      list: (
        orgId,
        { webhook_endpoint_id, job_id, event_id, event_type, since, until, state, status, failure },
        page,
      ) =>
        Effect.sync(() => ({
          deliveries: rowsAfter(
            [...deliveries.values()]
              .filter(
                ({ orgId: owner, row }) =>
                  owner === orgId &&
                  (webhook_endpoint_id === undefined || row.webhook_endpoint_id === webhook_endpoint_id) &&
                  (job_id === undefined || row.job_id === job_id) &&
                  (event_id === undefined || row.event_id === event_id) &&
                  (event_type === undefined || row.event === event_type) &&
                  (since === undefined || DateTime.isGreaterThanOrEqualTo(row.created_at, since)) &&
                  (until === undefined || DateTime.isLessThan(row.created_at, until)) &&
                  (state === undefined || row.state === state),
              )
              .map(shown)
              .filter(
                ({ last_failure, last_status }) =>
                  (status === undefined || last_status === status) &&
                  (failure === undefined || last_failure === failure),
              ),
            (row) => row.delivery_id,
            page,
            -1,
          ),
          scannedTo: null,
        })),

      find: (orgId, deliveryId) =>
        Effect.map(findOr(ownedBy(deliveries, orgId, deliveryId), deliveryNotFound), (delivery) => ({
          ...shown(delivery),
          payload: sentBody(
            endpoints.get(delivery.row.webhook_endpoint_id ?? "")?.settings.payload ?? "envelope",
            delivery.payload,
          ),
          attempt_log: delivery.attempts.slice(-maxShownAttempts),
        })),

      retry: Effect.fnUntraced(function* (orgId, deliveryId, now) {
        const delivery = yield* findOr(ownedBy(deliveries, orgId, deliveryId), deliveryNotFound)
        if (isInFlight(delivery, now))
          return yield* conflict("An attempt of this delivery is in flight; try again when it has ended.")
        const endpointId = delivery.row.webhook_endpoint_id
        if (endpointId !== null) {
          const endpoint = endpoints.get(endpointId)
          if (endpoint === undefined) return yield* conflict("The webhook endpoint was deleted.")
          if (!endpoint.row.active) return yield* inactive
        }
        resend(delivery, now)
      }),

      requireActive: Effect.fnUntraced(function* (orgId, endpointId) {
        const endpoint = yield* findOr(ownedBy(endpoints, orgId, endpointId), endpointNotFound)
        if (!endpoint.row.active) return yield* inactive
      }),

      countResend: (orgId, filter) => Effect.sync(() => ({ count: resendable(orgId, filter).length, isAll: true })),
      // The fake has no sweeps: a resend has ended when it is answered.
      resend: (orgId, { filter }, { at }) =>
        Effect.sync(() => resendable(orgId, filter).forEach((delivery) => resend(delivery, at))),
      resends: () => Effect.succeed([]),
      cancelResend: () => Effect.fail(resendNotFound()),

      causes: (orgId, { since, until, webhook_endpoint_id }) =>
        Effect.sync(() => {
          const failing = [...deliveries.values()].filter(
            ({ attempts, orgId: owner, row }) =>
              owner === orgId &&
              (row.state === "failed" || row.state === "pending") &&
              (webhook_endpoint_id === undefined || row.webhook_endpoint_id === webhook_endpoint_id) &&
              (since === undefined || DateTime.isGreaterThanOrEqualTo(row.created_at, since)) &&
              (until === undefined || DateTime.isLessThan(row.created_at, until)) &&
              attempts.length > 0 &&
              (attempts.at(-1)!.status ?? 0) !== 200,
          )
          const groups = Map.groupBy(
            failing,
            ({ attempts }) => `${attempts.at(-1)!.status} ${attempts.at(-1)!.failure}`,
          )
          return [...groups.values()]
            .toSorted((a, b) => b.length - a.length)
            .map((group) => {
              const newest = group.toSorted((a, b) => (a.row.delivery_id < b.row.delivery_id ? 1 : -1))[0]!
              const { body, error, failure, started_at: at, status } = newest.attempts.at(-1)!
              return {
                status,
                failure,
                deliveries: group.length,
                endpoints: new Set(group.map(({ row }) => row.webhook_endpoint_id)).size,
                top_endpoints: [...Map.groupBy(group, ({ row }) => row.webhook_endpoint_id ?? "")]
                  .map(([id, own]) => ({ webhook_endpoint_id: id, name: nameOf(id), deliveries: own.length }))
                  .toSorted(
                    (a, b) => b.deliveries - a.deliveries || (a.webhook_endpoint_id < b.webhook_endpoint_id ? -1 : 1),
                  )
                  .slice(0, maxTopEndpoints),
                latest: { delivery_id: newest.row.delivery_id, at, text: error ?? body },
              }
            })
        }),
    })
  }),
)
