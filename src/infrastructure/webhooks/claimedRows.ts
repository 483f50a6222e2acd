import { DateTime } from "effect"
import type { ClaimedDelivery } from "../../domain/webhooks/DeliveryQueue.ts"

/** A row that a claim returns: one for each delivery, and at least one, for the columns from `turns` on. */
export interface ClaimedRow {
  /** `null` in the only row of a claim without deliveries. */
  readonly id: string | null
  readonly org_id: string
  readonly endpoint_id: string | null
  readonly lane: string
  readonly attempts: number
  readonly tries: number
  readonly type: string
  /** `null` except in the first row of each event. */
  readonly body: string | null
  readonly event_id: string
  readonly url: string
  readonly secret: string
  readonly secret_owner: string
  readonly previous_secret: string | null
  readonly failing_since: Date | null
  readonly failures: number
  readonly headers: string | null
  readonly signing_keys: ReadonlyArray<string>
  readonly retry_delays: ReadonlyArray<number> | null
  readonly ordered: boolean
  /** The place among the claimed deliveries of its lane, from 0. */
  readonly place_in_lane: number
  readonly delay_ms: number | null
  /** When a lane may send again that waits for its limit per second. */
  readonly paced_until: Date | null
  /** The last lane of each org whose turn is not over. */
  readonly turns: Readonly<Record<string, string>> | null
  /** The org that had the last turn. */
  readonly last_org: string | null
  /** Whether the claim did not read a backlog to its end, or an org used its share of the claim. */
  readonly more: boolean
  /** Whether due deliveries were left because their org had no share. */
  readonly short: boolean
  /** Deliveries at the head that the claim parked. */
  readonly parked: number
}

/** Reads the rows of a claim as deliveries: the first of each lane, then the second of each. */
export const toClaimed = (rows: ReadonlyArray<ClaimedRow>, claimId: string): ReadonlyArray<ClaimedDelivery> => {
  const bodies = new Map<string, string>()
  for (const { body, event_id } of rows) if (body !== null) bodies.set(event_id, body)
  return rows
    .filter((row): row is ClaimedRow & { readonly id: string } => row.id !== null)
    .toSorted((a, b) => a.place_in_lane - b.place_in_lane || (a.id < b.id ? -1 : 1))
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
      signingKeys: row.signing_keys.map((stored) => ({ stored, owner: row.org_id })),
      headers: row.headers === null ? null : { stored: row.headers, owner: row.secret_owner },
      retryDelays: row.retry_delays,
      ordered: row.ordered,
      delayMillis: row.delay_ms,
      eventId: row.event_id,
      event: row.type,
      body: bodies.get(row.event_id)!,
      attempts: row.attempts,
      attemptsSinceResend: row.tries,
      failingSince: row.failing_since === null ? null : DateTime.fromDateUnsafe(row.failing_since),
      failures: row.failures,
    }))
}
