import { DateTime, Duration, Effect, Layer, Option, Queue, Stream } from "effect"
import { SecureRandom } from "effect/crypto"
import { SqlClient, type Statement } from "effect/sql"
import { monotonicMillis } from "../../domain/monotonicMillis.ts"
import { Wakeups } from "../../domain/Wakeups.ts"
import { isErased, maxBatchRows, type Sweep, SweepRepository, Sweeps } from "../../domain/sweeps/Sweeps.ts"
import { rowCost } from "../../domain/orgs/StoredBytes.ts"
import { texts } from "../database/fragments.ts"
import { answers, everywhere, nodeOfRow, Nodes, type NodesService, unreachable } from "../database/Nodes.ts"
import { orUnavailable, orUnavailableWithin } from "../database/orUnavailable.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import type { AuditEntry } from "../../domain/audit/AuditEntry.ts"
import type { Erased } from "../../domain/orgs/OrgErasure.ts"
import { audited } from "../audit/audited.ts"
import { erasedSoFar, sumOfErased } from "../orgs/erasureProgress.ts"
import { eraseBatch } from "./erase.ts"
import { moveBatch } from "./moveOrg.ts"
import { JobRepository } from "../../domain/jobs/JobRepository.ts"
import { makeTell } from "../../domain/jobs/tellJobs.ts"
import * as Limits from "../orgs/enforceLimits.ts"
import { cancelJobs, retryFailed } from "../jobs/retryJobs.ts"
import { resendBatch } from "../webhooks/deliveryLogSql.ts"
import { deliverEmitted, onEmitted, passEmitted } from "../queue/emitEvents.ts"
import { fanOut } from "../queue/insertEvents.ts"
import { cancelBatch } from "../queue/lanes.ts"
import { logged } from "../background.ts"

interface SweepRow {
  readonly id: string
  readonly org_id: string
  readonly kind: Sweep["kind"]
  /** The endpoint of `cancel` and of `resend`; in a sweep of `emit`, the one that gets no delivery. */
  readonly endpoint_id: string
  readonly project_id: string | null
  /** In a move, the new node. In an erasure, the node of the org, until the node has its own sweep. */
  readonly node: string | null
  /** In a move, the old node. In an erasure, the node that erases the other rows of the org. */
  readonly source: string | null
  readonly lane: string
  readonly event_id: string
  /** The endpoints of `deliver`, the events of `emit`, or the deliveries in flight of `cancel`. */
  readonly receivers: ReadonlyArray<string> | null
  /** In a move, when the org was switched to the new node. */
  readonly since: Date
  /** The filter of a resend, or of a sweep over jobs, in JSON. */
  readonly filter: string
  /** The deliveries resent, the jobs changed, or how much of an erasure, in percent. */
  readonly done: number
  /** The rows that an erasure has removed, by kind, in JSON. */
  readonly erased: string | null
  readonly done_to: string
  readonly turn: string
  readonly created_at: Date
}

/** The endpoints or events that a sweep has not reached. */
const leftOf = ({ done_to, receivers }: Pick<SweepRow, "done_to" | "receivers">) =>
  receivers!.filter((id) => id > done_to)

/** The result of a batch: the rows that it read, and where to continue; `null` at the end. */
interface Batch {
  readonly rows: number
  readonly doneTo: string | null
  readonly isWaiting?: boolean
  /** The jobs that it has changed. */
  readonly changed?: ReadonlyArray<string>
  /** The deliveries that it has resent, or how much of an erasure, in percent; else those jobs. */
  readonly done?: number
  readonly erased?: string
  /** The deliveries that it has inserted. */
  readonly deliveries?: number
}

/** Deliveries of an event that one batch inserts: each has new entries in nine indexes. */
const maxReceiversPerBatch = 500

/** Jobs that one batch moves from one table to another. */
const maxJobsPerBatch = 500

/** Events of the service's own whose deliveries one batch inserts. */
const maxEmittedPerBatch = 100

const sweptBatch = ({ done_to, filter, org_id }: SweepRow, limit: number, now: DateTime.Utc) => ({
  orgId: org_id,
  filter,
  doneTo: done_to,
  limit: Math.min(limit, maxJobsPerBatch),
  now,
})

/** The lanes whose deliveries are being canceled while a resend that reads them runs. */
const maxCancelingLanes = 20

/** How long the sweeps of a node wait after it has not answered, in milliseconds. */
const silentMillis = 10_000

/**
 * The nodes, without those that have just not answered: a sweep that waited for one would take the turns of others.
 * `silent` are their names.
 */
const answering = (nodes: NodesService) => {
  const until = new Map<string, number>()
  const isSilent = (name: string, now: number) => now < (until.get(name) ?? -Infinity)
  const named = Effect.fnUntraced(function* (name: string) {
    if (isSilent(name, yield* monotonicMillis)) return yield* unreachable
    const node = yield* Effect.option(nodes.named(name))
    if (Option.isSome(node) && (yield* answers(node.value))) return node.value
    until.set(name, (yield* monotonicMillis) + silentMillis)
    return yield* unreachable
  })
  const silent = Effect.map(monotonicMillis, (now) => [...until.keys()].filter((name) => isSilent(name, now)))
  return { nodes: { ...nodes, named }, silent }
}

/** SQL: whether the next batch of a sweep needs one of some nodes. */
const needs = (sql: SqlClient.SqlClient, names: ReadonlyArray<string>) => sql`
  ARRAY[s.node, CASE s.kind
    WHEN 'move' THEN s.source WHEN 'emit' THEN (SELECT node FROM orgs WHERE id = s.org_id)
  END] && ${texts(names)}`

/** Sweeps in PostgreSQL. */
export const layer = Layer.effect(
  SweepRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const usage = yield* OrgUsage
    const { nodes, silent } = answering(yield* Nodes)
    const jobLimit = yield* Limits.make("unfinishedJobs")
    const random = yield* SecureRandom.SecureRandom
    const { reportAll } = yield* JobRepository
    const tell = yield* makeTell

    /**
     * Runs the next batch of an erasure. When nothing of an org is left, here and on its node, its owners are free, and
     * its audit log gets the receipt.
     */
    const erase = Effect.fnUntraced(function* (sweep: SweepRow, now: DateTime.Utc, limit: number) {
      const erasure = { orgId: sweep.org_id, projectId: sweep.project_id }
      const { counts, hasFound, position, progress, rows } = yield* eraseBatch(sql, erasure, sweep.done_to, limit)
      const erased = sumOfErased(JSON.parse(sweep.erased ?? "{}"), counts)
      const soFar = { rows, done: Math.max(0, progress - sweep.done), erased: JSON.stringify(erased) }
      if (position !== null) return { ...soFar, doneTo: position }
      if (!isErased(hasFound, DateTime.fromDateUnsafe(sweep.created_at), now)) {
        // Another pass: at once when this one found rows, else when requests from before have ended.
        return { ...soFar, doneTo: "", isWaiting: !hasFound }
      }
      if (erasure.projectId !== null) return { rows, doneTo: null }
      const there = sweep.source && (yield* erasedSoFar((yield* nodes.named(sweep.source)).sql, sweep.id, sweep.org_id))
      if (there && there.endedAt === null) return { ...soFar, doneTo: "", isWaiting: true }
      yield* sql`DELETE FROM org_owners WHERE org_id = ${erasure.orgId}`
      yield* writeReceipt(sweep, now, there ? sumOfErased(erased, there.erased) : erased)
      return { rows, doneTo: null }
    })

    /**
     * Writes down what the erasure of an org has removed, and who deleted the org, whose entry has the id of the sweep.
     */
    const writeReceipt = Effect.fnUntraced(function* (
      { created_at, id: sweepId, org_id }: SweepRow,
      now: DateTime.Utc,
      erased: Partial<Erased>,
    ) {
      const [deletion] = yield* sql<{ actor: string }>`SELECT actor FROM audit_log WHERE id = ${sweepId}`
      const entry: AuditEntry = {
        id: yield* random.ulid,
        at: now,
        actor: "service",
        person: null,
        action: "org.erase",
        target: org_id,
        details: { deletedAt: created_at.toISOString(), deletedBy: deletion?.actor ?? null, erased },
        requestId: null,
      }
      yield* audited(sql, entry, sql`SELECT ${org_id}::text AS "orgId"`)
    })

    /**
     * Passes the erasure of an org to its node, which then finds nothing of the org, and erases its rows in a sweep.
     * Returns the sweep as it is from now on.
     */
    const passErasure = Effect.fnUntraced(function* (node: SqlClient.SqlClient, sweep: SweepRow) {
      yield* node`
        WITH gone AS (DELETE FROM orgs WHERE id = ${sweep.org_id})
        INSERT INTO sweeps (id, org_id, kind, created_at)
          VALUES (${sweep.id}, ${sweep.org_id}, 'erase', ${sweep.created_at})
        ON CONFLICT DO NOTHING`
      yield* sql`UPDATE sweeps SET node = NULL, source = ${sweep.node} WHERE id = ${sweep.id}`
      return { ...sweep, node: null, source: sweep.node }
    })

    /**
     * The sweeps that come next, about the same endpoint as this one and with together at most `room` events: many
     * changes of an org, each with an event of its own, are one transaction.
     */
    const joined = Effect.fnUntraced(function* (sweep: SweepRow, room: number) {
      const following = yield* sql<Pick<SweepRow, "id" | "endpoint_id" | "receivers" | "done_to">>`
        SELECT id, endpoint_id, receivers, done_to FROM sweeps
        WHERE kind = 'emit' AND id = ANY(ARRAY(
          SELECT id FROM sweeps WHERE org_id = ${sweep.org_id} AND turn > ${sweep.turn} ORDER BY turn LIMIT ${room}
        )) ORDER BY turn FOR UPDATE`
      let events = 0
      const end = following.findIndex((next) => {
        events += leftOf(next).length
        return next.endpoint_id !== sweep.endpoint_id || events > room
      })
      return end === -1 ? following : following.slice(0, end)
    })

    /** Inserts the deliveries of the next events of the service, or passes the events to the node of their org. */
    const emitBatch = Effect.fnUntraced(function* (sweep: SweepRow, limit: number) {
      const left = leftOf(sweep)
      const events = left.slice(0, Math.min(limit, maxEmittedPerBatch))
      // After a failure it runs alone, so that events that always fail do not stop those before them.
      const room = limit < maxBatchRows ? 0 : Math.max(0, maxEmittedPerBatch - left.length)
      const others = yield* joined(sweep, room)
      const sweeps = [events, ...others.map(leftOf)]
      const about = { orgId: sweep.org_id, except: sweep.endpoint_id }
      const [org] = yield* sql<{ node: string | null }>`SELECT node FROM orgs WHERE id = ${sweep.org_id}`
      const node = yield* nodeOfRow(nodes, org?.node)
      // On a node each is a sweep again, in the same order.
      if (node !== undefined) {
        yield* Effect.forEach(sweeps, (eventIds) => passEmitted(sql, node.sql, { ...about, eventIds }))
      }
      const eventIds = sweeps.flat()
      const deliveries = node === undefined ? yield* deliverEmitted(sql, { ...about, eventIds }) : 0
      if (others.length > 0) yield* sql`DELETE FROM sweeps WHERE id = ANY(${texts(others.map(({ id }) => id))})`
      return { rows: eventIds.length, deliveries, doneTo: events.length < left.length ? events.at(-1)! : null }
    })

    /** Runs the next batch of a sweep; returns how many rows it read, and the last of them when more may follow. */
    const runBatch = Effect.fnUntraced(function* (sweep: SweepRow, now: DateTime.Utc, limit: number) {
      switch (sweep.kind) {
        case "erase":
          return yield* erase(
            sweep.node === null ? sweep : yield* passErasure((yield* nodes.named(sweep.node)).sql, sweep),
            now,
            limit,
          )
        case "move": {
          const { node, source } = sweep
          return yield* moveBatch(sql, nodes, { ...sweep, node: node!, source: source! }, now, limit)
        }
        case "cancel": {
          const done = { doneTo: sweep.done_to, inFlight: sweep.receivers ?? [] }
          const { inFlight, last, rows } = yield* cancelBatch(
            sql,
            [{ orgId: sweep.org_id, lane: sweep.lane }],
            done,
            limit,
            now,
          )
          yield* sql`UPDATE sweeps SET receivers = ${texts(inFlight)} WHERE id = ${sweep.id}`
          const isEnd = rows < limit && inFlight.length === 0
          return { rows, doneTo: isEnd ? null : (last ?? sweep.done_to), isWaiting: rows < limit }
        }
        case "retryJobs":
          return yield* retryFailed(sql, usage, jobLimit, sweptBatch(sweep, limit, now))
        case "cancelJobs":
          return yield* cancelJobs(sql, random, reportAll, sweptBatch(sweep, limit, now))
        case "resend":
          return yield* resendBatch(sql, sweep.org_id, sweep.filter, sweep.done_to, limit, now)
        case "deliver": {
          const left = leftOf(sweep)
          const endpoints = left.slice(0, Math.min(limit, maxReceiversPerBatch))
          const createdAt = DateTime.fromDateUnsafe(sweep.created_at)
          const place = sweep.receivers!.length - left.length
          const fan = { orgId: sweep.org_id, eventId: sweep.event_id, endpoints, place, createdAt }
          const deliveries = yield* fanOut(sql, fan)
          return {
            rows: endpoints.length,
            deliveries,
            doneTo: endpoints.length < left.length ? endpoints.at(-1)! : null,
          }
        }
        case "emit":
          return yield* emitBatch(sweep, limit)
      }
    })

    return SweepRepository.of({
      next: Effect.fnUntraced(function* (afterOrg, setAside) {
        const away = yield* silent
        const isAway = away.length === 0 ? sql.literal("false") : needs(sql, away)
        // A resend reads the lanes of its org, or of its endpoint, whose deliveries are still to be canceled: it waits
        // while there are too many.
        const first = (orgs: Statement.Fragment) => sql`
          (SELECT id, org_id, kind FROM sweeps s
            WHERE ${orgs} AND id <> ALL(${texts(setAside)}) AND NOT (${isAway})
              AND (kind IN ('move', 'erase') OR NOT EXISTS (
                SELECT FROM org_moves m WHERE m.org_id = s.org_id AND m.state NOT IN ('copying', 'left')))
              AND NOT (kind = 'resend' AND EXISTS (
                SELECT FROM sweeps c WHERE c.org_id = s.org_id AND c.kind = 'cancel'
                  AND (s.endpoint_id IS NULL OR c.endpoint_id = s.endpoint_id) OFFSET ${maxCancelingLanes}))
            ORDER BY org_id, turn LIMIT 1)`
        const [row] = yield* sql<{ id: string; org_id: string; kind: Sweep["kind"] }>`
          ${first(sql`org_id > ${afterOrg}`)} UNION ALL ${first(sql`org_id <= ${afterOrg}`)} LIMIT 1`
        return row === undefined ? null : { sweepId: row.id, orgId: row.org_id, kind: row.kind }
      }, orUnavailable),

      advance: (sweepId, now, limit) =>
        Effect.gen(function* () {
          const [sweep] = yield* sql<SweepRow>`SELECT * FROM sweeps WHERE id = ${sweepId} FOR UPDATE SKIP LOCKED`
          if (sweep === undefined) return null
          const batch: Batch = yield* runBatch(sweep, now, limit)
          const { changed = [], deliveries = 0, doneTo, erased = null, isWaiting = false, rows } = batch
          yield* sql.afterCommit(
            Effect.sync(() => {
              usage.addBytes(sweep.org_id, deliveries * rowCost.delivery)
              tell(sweep.org_id, changed, sweep.kind === "cancelJobs" ? "canceled" : "queued")
            }),
          )
          if (["resend", "deliver"].includes(sweep.kind)) usage.notePending(sweep.org_id)
          yield* doneTo === null
            ? sql`DELETE FROM sweeps WHERE id = ${sweepId}`
            : sql`
                UPDATE sweeps SET done_to = ${doneTo}, done = done + ${batch.done ?? changed.length}::int,
                  erased = ${erased}::text,
                  -- Events of the service's own stay in their order.
                  turn = CASE WHEN kind = 'emit' THEN turn ELSE nextval('sweeps_turn_seq') END
                WHERE id = ${sweepId}`
          return { rows, isDone: doneTo === null, isWaiting }
        }).pipe(sql.withTransaction, orUnavailableWithin("sweep")),

      count: (limit) =>
        everywhere(sql, nodes, (sql) =>
          orUnavailable(
            sql<{ count: number }>`SELECT count(*)::int AS count FROM (SELECT FROM sweeps LIMIT ${limit}) AS open`,
          ),
        ).pipe(
          Effect.map((counts) =>
            Math.min(
              limit,
              counts.reduce((sum, [row]) => sum + row!.count, 0),
            ),
          ),
        ),
    })
  }),
).pipe(Layer.provide(OrgUsage.layer))

/** How often the worker looks for sweeps that other replicas started. */
const pollInterval = Duration.seconds(1)

/** How long the worker waits after a wake-up for others, so that many changes are one search. */
const collectTime = Duration.millis(20)

/** Runs sweeps: soon after this process starts one, and every second. */
export const sweepWorker = Layer.effectDiscard(
  Effect.gen(function* () {
    const { run } = yield* Sweeps
    const wakeups = yield* Wakeups
    const woken = yield* Queue.sliding<void>(1)
    yield* Effect.forkScoped(Stream.runForEach(wakeups.onSweeps, () => Queue.offer(woken, undefined)))
    onEmitted(yield* SqlClient.SqlClient, wakeups.sweeps)
    yield* logged("Sweeps do not run", run).pipe(
      Effect.andThen(Effect.timeoutOption(Queue.take(woken), pollInterval)),
      Effect.andThen(Effect.sleep(collectTime)),
      Effect.forever,
      Effect.forkScoped,
    )
  }),
)
