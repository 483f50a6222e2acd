import { DateTime, Effect, Layer } from "effect"
import { SecureRandom } from "effect/crypto"
import { SqlClient, type Statement } from "effect/sql"
import { LRUCache } from "lru-cache"
import type { ClaimedDelivery } from "../../domain/webhooks/DeliveryQueue.ts"
import { DeliveryQueue } from "../../domain/webhooks/DeliveryQueue.ts"
import { Database } from "../database/Database.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import { texts } from "../database/arrays.ts"
import { claimSql, maxHead, minHead } from "./claimDeliveries.ts"
import { type ClaimedRow, toClaimed } from "./claimedRows.ts"
import { correctTimes } from "./correctTimes.ts"
import { countDue } from "./countDue.ts"
import { date } from "../database/fragments.ts"
import { recordAttempts } from "./recordAttempts.ts"

/**
 * Releases claims; of what was canceled meanwhile, which is in the queue no more, the claim ends. The deliveries are
 * locked first, in the order of their ids, as by everyone who changes them. Arrays and no joins: a join that was planned
 * beside few deliveries reads all that there are. `commit` is evaluated in the transaction.
 */
const releaseSql = (
  sql: SqlClient.SqlClient,
  unsorted: ReadonlyArray<ClaimedDelivery>,
  now: DateTime.Utc,
  commit: Statement.Fragment,
) => {
  const deliveries = unsorted.toSorted((a, b) => (a.deliveryId < b.deliveryId ? -1 : 1))
  const ids = texts(deliveries.map(({ deliveryId }) => deliveryId))
  const claims = texts(deliveries.map(({ claimId }) => claimId))
  return sql`
    WITH transaction AS MATERIALIZED (
      SELECT ${commit}
    ), held AS (
      SELECT given.*, d.lane FROM transaction CROSS JOIN unnest(${ids}, ${claims}) AS given (id, claim_id)
      CROSS JOIN LATERAL (SELECT lane FROM deliveries WHERE id = given.id FOR NO KEY UPDATE) AS d
    ), queued AS (
      UPDATE pending_deliveries p SET claim_id = NULL, lease_until = NULL,
        due_at = CASE WHEN p.parked THEN p.due_at ELSE ${date(now)} END, parked = true
      WHERE p.lane = ANY(ARRAY(SELECT lane FROM held)) AND p.delivery_id = ANY(${ids})
        AND p.claim_id = (SELECT claim_id FROM held WHERE id = p.delivery_id AND lane = p.lane)
    )
    UPDATE deliveries d SET claim_id = NULL, lease_until = NULL
    WHERE d.id = ANY(${ids}) AND d.claim_id = (SELECT claim_id FROM held WHERE id = d.id)`
}

/** For how many orgs this process knows where their turn ended; the others begin with their first lane. */
const maxTurns = 256

/** Where the claims of this process go on. */
const makeTurns = () => {
  const lastLanes = new LRUCache<string, string>({ max: maxTurns })
  let lastOrg = ""
  let head = minHead
  return {
    now: () => ({ lastOrg, lastLanes, head }),
    claimed: ([first]: ReadonlyArray<ClaimedRow>) => {
      const { turns, last_org, parked } = first!
      lastOrg = last_org ?? ""
      for (const [org, lane] of Object.entries(turns ?? {})) lastLanes.set(org, lane)
      head = parked > head / 2 ? Math.min(2 * head, maxHead) : minHead
    },
  }
}

/** The outbox in PostgreSQL. */
export const layer = Layer.effect(
  DeliveryQueue,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const random = yield* SecureRandom.SecureRandom
    const { kind } = yield* Database
    // A claim or a record that a crash of PostgreSQL takes is made again, and a release when its lease ends: it is not waited for until it is on the disk. For
    // the embedded database the end of the process is such a crash, and nothing but commits that wait puts its log there: a
    // claim ends with the process in any case, a record is to be kept.
    const soon = sql`set_config('synchronous_commit', 'off', true)`
    const recorded = kind === "postgres" ? soon : sql`NULL`
    const turns = makeTurns()

    return DeliveryQueue.of({
      claim: (claim) =>
        Effect.suspend(() => claimSql(sql, claim, turns.now(), soon)).pipe(
          Effect.map((rows) => {
            turns.claimed(rows)
            const { more, short } = rows[0]!
            return { deliveries: toClaimed(rows, claim.claimId), more, short }
          }),
          orUnavailable,
        ),

      record: (records, now) =>
        records.length === 0 ? Effect.void : recordAttempts(sql, random, records, now, recorded).pipe(orUnavailable),

      release: (deliveries, now) =>
        deliveries.length === 0
          ? Effect.void
          : releaseSql(sql, deliveries, now, recorded).pipe(Effect.asVoid, orUnavailable),

      nextDueAt: sql<{ next: Date | null }>`
        SELECT min(due_at) AS next FROM pending_deliveries WHERE NOT parked`.pipe(
        Effect.map(([row]) => (row?.next == null ? null : DateTime.fromDateUnsafe(row.next))),
        orUnavailable,
      ),

      countDue: (now, limit) => orUnavailable(countDue(sql, now, limit)),
      correctTimes: (correction) => orUnavailable(correctTimes(sql, correction)),
    })
  }),
)
