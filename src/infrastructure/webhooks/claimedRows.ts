import { DateTime } from "effect"
import type { ClaimedDelivery } from "../../domain/webhooks/DeliveryQueue.ts"
import type { EventType } from "../../domain/webhooks/Delivery.ts"

/** What a claim returns: a row for each delivery, and at least one, for `turns` and `more`. */
export interface ClaimedRow {
  /** `null` in the one row of a claim that took nothing. */
  readonly id: string | null
  readonly org_id: string
  readonly endpoint_id: string | null
  readonly lane: string
  readonly attempts: number
  readonly tries: number
  readonly type: EventType
  /** `null` but in the first row of each event. */
  readonly body: string | null
  readonly event_id: string
  readonly url: string
  readonly secret: string
  readonly secret_owner: string
  readonly previous_secret: string | null
  readonly failing_since: Date | null
  readonly failures: number
  /** Of each org that had a turn, the last lane that was looked at. */
  readonly turns: Readonly<Record<string, string>> | null
  /** The org that had its turn last. */
  readonly last_org: string | null
  /** Whether a backlog was not looked through to its end, or an org had its share of it. */
  readonly more: boolean
  /** Whether an org had no share left for something that is due. */
  readonly short: boolean
  /** How many due deliveries at the head had no room. */
  readonly parked: number
}

/** The deliveries of a claim's rows, in the order of their ids. */
export const toClaimed = (rows: ReadonlyArray<ClaimedRow>, claimId: string): ReadonlyArray<ClaimedDelivery> => {
  const bodies = new Map<string, string>()
  for (const { body, event_id } of rows) if (body !== null) bodies.set(event_id, body)
  return rows
    .filter((row): row is ClaimedRow & { readonly id: string } => row.id !== null)
    .toSorted((a, b) => (a.id < b.id ? -1 : 1))
    .map((row) => ({
      deliveryId: row.id,
      claimId,
      orgId: row.org_id,
      endpointId: row.endpoint_id,
      lane: row.lane,
      url: row.url,
      secrets: [row.secret, row.previous_secret]
        .filter((stored) => stored !== null)
        .map((stored) => ({ stored, owner: row.secret_owner })),
      event: row.type,
      body: bodies.get(row.event_id)!,
      attempts: row.attempts,
      attemptsSinceResend: row.tries,
      failingSince: row.failing_since === null ? null : DateTime.fromDateUnsafe(row.failing_since),
      failures: row.failures,
    }))
}
