import { DateTime, Duration, Effect, Layer, Schedule } from "effect"
import { SqlClient, SqlError, type Statement } from "effect/sql"
import type { Unavailable } from "../../domain/Errors.ts"
import { type Records, Retention, RetentionRepository } from "../../domain/Retention.ts"
import { serviceEventTypes } from "../../domain/ServiceEvent.ts"
import { logged } from "../background.ts"
import { idAt, listedId, texts } from "../database/fragments.ts"
import { CommitMillis } from "../database/boundedTransactions.ts"
import { deadlines } from "../database/deadlines.ts"
import { orUnavailableWithin } from "../database/orUnavailable.ts"
import { bytesOf } from "../orgs/enforceByteLimit.ts"
import { subtractStoredBytes } from "../orgs/enforceLimits.ts"
import { isOfEvent, lockResends, pendingEvents } from "../queue/lanes.ts"

/*
 * A range of time is a partition of each table of the records (ADR 32). Its name ends with its lower bound, the
 * beginning of an id, and it ends where the next one begins: `events_01JDZ…`. The last has no upper bound. `events_old`
 * has what is older than the first range. A range that is being removed is no partition any more: `gone_events_01JDZ…`.
 */

/** A table of records, with the column that begins with their time, and the first column of its primary key. */
interface Table {
  readonly name: string
  readonly key: "id" | "delivery_id" | "end_id"
  readonly order: "id" | "delivery_id"
  /** SQL: the bytes of a row that the usage of its org counts. */
  readonly bytes?: string
}

const isOfService = `type IN (${serviceEventTypes.map((type) => `'${type}'`).join(", ")})`

/** The tables of records, the one that is counted first. */
const tables: Readonly<Record<Records, ReadonlyArray<Table>>> = {
  webhooks: [
    // Events of the service's own do not count: nobody stored them.
    { name: "events", key: "id", order: "id", bytes: `CASE WHEN ${isOfService} THEN 0 ELSE ${bytesOf("event")} END` },
    { name: "deliveries", key: "id", order: "id", bytes: bytesOf("delivery") },
    { name: "delivery_attempts", key: "delivery_id", order: "delivery_id", bytes: bytesOf("attempt") },
    { name: "finished_jobs", key: "end_id", order: "id", bytes: bytesOf("job", "result") },
  ],
  audit: [{ name: "audit_log", key: "id", order: "id" }],
}

/**
 * Limits of the wait for each lock, and of all that is done while it is held, in milliseconds. Requests wait meanwhile.
 * The second doubles with each try: on a machine without free CPU, even a change of the catalog takes longer.
 */
const lockMillis = 30
const statementMillis = 100
/** Tries to get the locks. */
const lockRetries = Schedule.max([Schedule.spaced("500 millis"), Schedule.recurs(4)])
/** Events with pending deliveries that are moved out of a range. With more, the range waits. */
const maxMoved = 1_000
/** Rows that one statement reads to sum their bytes. */
const summedRows = 50_000

const stateOf = ({ reason }: SqlError.SqlError) => (reason.cause as { readonly code?: string } | undefined)?.code ?? ""
/** SQLSTATEs of lock_timeout and statement_timeout. */
const slowStates = new Set(["55P03", "57014"])
/** SQLSTATEs of a table that another replica has just removed or created, or of a range that overlaps its range. */
const otherStates = new Set(["42P01", "42P07", "42P17"])
const isSlow = (error: SqlError.SqlError | Unavailable) => SqlError.isSqlError(error) && slowStates.has(stateOf(error))
const isOther = (error: SqlError.SqlError | Unavailable) =>
  SqlError.isSqlError(error) && otherStates.has(stateOf(error))

/** Fails with `removed` when the table is gone: another replica has dropped it. */
const bounded = <A, R>(effect: Effect.Effect<A, SqlError.SqlError, R>, deadline: "sweep" | "drop" = "sweep") =>
  effect.pipe(
    Effect.mapError((error) => (stateOf(error) === "42P01" ? ("removed" as const) : error)),
    orUnavailableWithin(deadline),
  )
/** How often a batch of a removal is tried again, so that one slow batch does not make all of them run again. */
const batchRetries = { times: 3, while: (error: "removed" | Unavailable | SqlError.SqlError) => error !== "removed" }

const partition = (table: Table, low: string) => `${table.name}_${low.toLowerCase()}`

interface EventOfJob {
  readonly id: string
  readonly orgId: string
  readonly job: string | null
}

/** SQL: whether a sweep still has to create deliveries of events before `high`. */
const hasSweep = (high: string) => `EXISTS (
  SELECT FROM sweeps
  WHERE kind = 'deliver' AND event_id < '${high}' OR kind = 'emit' AND receivers[1] < '${high}')`

/** Bytes that a statement has removed of an org. */
interface Freed {
  readonly orgId: string
  readonly bytes: number
}

type Removed = Freed & { readonly rows: number }

const sumByOrg = (freed: ReadonlyArray<Freed>) => {
  const bytes = new Map<string, number>()
  for (const { orgId, bytes: more } of freed) bytes.set(orgId, (bytes.get(orgId) ?? 0) + more)
  return bytes
}

/** The removal of old jobs and events in PostgreSQL. */
export const layer = Layer.effect(
  RetentionRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient

    /** The lower bounds of the ranges, oldest first: those that are partitions, or those that are being removed. */
    const lowsOf = (records: Records, prefix: "" | "gone_" = "") => {
      const name = `${prefix}${tables[records][0]!.name}_`
      return Effect.map(
        sql<{ low: string }>`
          SELECT upper(substr(relname, ${name.length + 1})) AS low FROM pg_class
          WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND starts_with(relname, ${name})
            AND relname <> ${`${name}old`} ORDER BY low`,
        (rows) => rows.map(({ low }) => low),
      )
    }

    /** The time of this process or of the database, which is earlier: a clock that is ahead must remove nothing. */
    const earliest = (now: DateTime.Utc) =>
      Effect.map(sql<{ now: Date }>`SELECT now() AS now`, ([row]) =>
        Math.min(DateTime.toEpochMillis(now), row!.now.getTime()),
      )

    /**
     * Changes partitions, in a transaction that no request waits for longer than some milliseconds: it gives way to
     * those that hold a table. One replica at a time. Returns `null` when it has given way.
     *
     * @param locked the statements, which run in one round trip with the locks; nothing else is sent while they are
     * held
     * @param prepare runs before the tables are locked
     * @param rest runs at the end of the transaction
     */
    const whileLocked = <A>(
      records: Records,
      locked: ReadonlyArray<string>,
      rest: Effect.Effect<A, SqlError.SqlError | Unavailable>,
      prepare: Effect.Effect<unknown, SqlError.SqlError> = Effect.void,
    ) => {
      let tries = 0
      return Effect.gen(function* () {
        const limit = statementMillis * 2 ** tries++
        const [lock] = yield* sql<{ ours: boolean }>`
          SELECT pg_try_advisory_xact_lock(hashtextextended('gatehouse:retention', 0)) AS ours`
        if (!lock!.ours) return null
        yield* prepare
        yield* sql`SELECT set_config('lock_timeout', ${`${lockMillis}ms`}, true),
          set_config('statement_timeout', ${`${limit}ms`}, true)`
        // Only the parents: every statement of a request begins with them.
        const locks = tables[records].map(({ name }) => `LOCK TABLE ONLY ${name} IN ACCESS EXCLUSIVE MODE`)
        yield* sql.unsafe(`DO $do$ BEGIN ${[...locks, ...locked].join("; ")}; END $do$`)
        return yield* rest
      }).pipe(
        sql.withTransaction,
        Effect.retry({ while: isSlow, schedule: lockRetries }),
        Effect.catchIf(isSlow, () =>
          Effect.as(Effect.logInfo(`A partition of ${tables[records][0]!.name} is locked; it is tried again`), null),
        ),
        Effect.catchIf(isOther, () => Effect.succeed(null)),
      )
    }

    /** SQL: the columns of a table that a row can be inserted with. */
    const columnsOf = ({ name }: Table) =>
      Effect.map(
        sql<{ columns: string }>`
          SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) AS columns FROM pg_attribute
          WHERE attrelid = ${name}::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''`,
        ([row]) => row!.columns,
      )

    const rowsOf = ({ key, name }: Table, from: string, events: ReadonlyArray<EventOfJob>) => {
      const ids = texts(events.map(({ id }) => id))
      if (name === "events") return sql`id = ANY(${ids})`
      if (name === "finished_jobs")
        return sql`id = ANY(${texts(events.map(({ job }) => job))}) AND end_id = ANY(${ids})`
      return sql`${sql(key)} = ANY(ARRAY(
        SELECT own.key FROM unnest(${ids}, ${texts(events.map(({ orgId }) => orgId))}) AS e (id, org_id)
        CROSS JOIN LATERAL unnest(ARRAY(
          SELECT ${sql(key)} FROM ${sql(from)} WHERE org_id = e.org_id AND ${isOfEvent(sql, key, "e.id")}
        )) AS own (key)))`
    }

    /** Moves the rows of a table that is no partition to the partitions that they belong to. */
    const moveRows = Effect.fnUntraced(function* (table: Table, from: string, condition: Statement.Fragment) {
      const columns = sql.literal(yield* columnsOf(table))
      yield* sql`
        WITH moved AS (DELETE FROM ${sql(from)} WHERE ${condition} RETURNING ${columns})
        INSERT INTO ${sql(table.name)} (${columns}) SELECT * FROM moved`
    })

    /** Creates a table for a range, with the settings of the last one. It becomes a partition later. */
    const createTable = Effect.fnUntraced(function* (table: Table, last: string, low: string) {
      const name = partition(table, low)
      yield* sql.unsafe(`CREATE TABLE ${name} (LIKE ${table.name} INCLUDING ALL)`)
      const settings = yield* sql<{ setting: string }>`
        SELECT format('SET (%s)', array_to_string(reloptions, ', ')) AS setting FROM pg_class
        WHERE oid = ${partition(table, last)}::regclass AND reloptions IS NOT NULL
        UNION ALL SELECT format('ALTER COLUMN %I SET (%s)', attname, array_to_string(attoptions, ', '))
          FROM pg_attribute
        WHERE attrelid = ${partition(table, last)}::regclass AND attoptions IS NOT NULL`
      for (const { setting } of settings) yield* sql.unsafe(`ALTER TABLE ${name} ${setting}`)
    })

    /**
     * The statements that end the last range at `low`, where a new one begins. Rows of a clock that is far ahead move
     * to the new one.
     */
    const splitLast = (records: Records, last: string, low: string) =>
      Effect.map(
        Effect.forEach(tables[records], (table) =>
          Effect.map(columnsOf(table), (columns) => {
            const [name, old] = [table.name, partition(table, last)]
            return [
              `ALTER TABLE ${name} DETACH PARTITION ${old}`,
              `ALTER TABLE ${name} ATTACH PARTITION ${partition(table, low)} FOR VALUES FROM ('${low}') TO (MAXVALUE)`,
              `WITH moved AS (DELETE FROM ${old} WHERE ${table.key} >= '${low}' RETURNING ${columns})
                INSERT INTO ${name} (${columns}) SELECT * FROM moved`,
              `ALTER TABLE ${name} ATTACH PARTITION ${old} FOR VALUES FROM ('${last}') TO ('${low}')`,
            ]
          }),
        ),
        (statements) => statements.flat(),
      )

    /** The events with pending deliveries in a table of events. */
    const eventsPending = (events: string, before: string, limit: number) => sql<{ id: string }>`
      SELECT DISTINCT event_id AS id
      FROM (SELECT event_id, delivery_id FROM pending_deliveries WHERE delivery_id < ${before}) AS p
      WHERE EXISTS (SELECT FROM ${sql(events)} WHERE id = p.event_id) LIMIT ${limit}`

    /** Moves events with everything of them from a range that is being removed to `events_old`. */
    const moveEvents = Effect.fnUntraced(function* (low: string, ids: ReadonlyArray<string>) {
      if (ids.length === 0) return
      const gone = (table: Table) => `gone_${partition(table, low)}`
      const events = yield* sql<EventOfJob>`
        SELECT id, org_id AS "orgId", job_id AS job FROM ${sql(gone(tables.webhooks[0]!))}
          WHERE id = ANY(${texts(ids)})`
      for (const table of tables.webhooks) {
        yield* moveRows(table, gone(table), rowsOf(table, gone(table), events))
      }
    })

    /** Forgets the idempotency keys of the events before `high`, but for those that have stayed behind their range. */
    const forgetKeys = (high: string) =>
      sql`
        DELETE FROM event_keys WHERE event_id = ANY(ARRAY(
          SELECT event_id FROM event_keys k WHERE event_id < ${high}
            AND NOT EXISTS (SELECT FROM events_old WHERE id = k.event_id)
          ORDER BY event_id LIMIT 1000)) RETURNING 1`.pipe(
        orUnavailableWithin("sweep"),
        Effect.repeat({ while: (rows) => rows.length === 1_000 }),
      )

    /** SQL: the idempotency keys and the unique keys of rows of finished jobs. */
    const keysOfJobs = (rows: Statement.Fragment) => sql`
      SELECT org_id, '' AS workflow, idempotency_key AS key, id FROM ${rows} AND idempotency_key IS NOT NULL
      UNION ALL SELECT org_id, workflow, unique_key, id FROM ${rows} AND unique_key IS NOT NULL`

    /** SQL: whether a row `k` of the keys is that of a job in a table of `keysOfJobs`. */
    const isKeyOfJob = () =>
      sql.literal("k.org_id = job.org_id AND k.workflow = job.workflow AND k.key = job.key AND k.job_id = job.id")

    /** Makes the oldest range no partition any more: from the commit on, nobody sees it. `null` when it has to wait. */
    const detachOldest = Effect.fnUntraced(function* (records: Records, low: string, high: string) {
      const statements = tables[records].flatMap((table) => {
        const [name, old] = [table.name, partition(table, low)]
        return [
          `ALTER TABLE ${name} DETACH PARTITION ${old}`,
          `ALTER TABLE ${old} RENAME TO gone_${old}`,
          `ALTER TABLE ${name} DETACH PARTITION ${name}_old`,
          `ALTER TABLE ${name} ATTACH PARTITION ${name}_old FOR VALUES FROM (MINVALUE) TO ('${high}')`,
        ]
      })
      if (records === "audit") return yield* whileLocked(records, statements, Effect.succeed(low))
      const pending = yield* eventsPending("events", high, maxMoved + 1)
      const [open] = yield* sql<{ sweep: boolean }>`SELECT ${sql.literal(hasSweep(high))} AS sweep`
      if (pending.length > maxMoved || open!.sweep) return null
      const events = pending.map(({ id }) => id)
      const wait = `IF ${hasSweep(high)} THEN RAISE lock_not_available; END IF`
      const move = Effect.as(moveEvents(low, events), low)
      return yield* whileLocked(records, [wait, ...statements], move)
    })

    /** Adds the bytes of a table's rows by org, and forgets the keys of jobs. Returns the number of rows. */
    const sumRows = Effect.fnUntraced(function* (table: Table, name: string, bytes: Map<string, number>) {
      let after: string | null = ""
      let count = 0
      while (after !== null) {
        const {
          rows,
          upTo,
        }: { rows: ReadonlyArray<{ orgId: string; bytes: number; rows: number }>; upTo: string | null } =
          yield* Effect.gen(function* () {
            const key = sql(table.order)
            const [last] = yield* sql<{ key: string }>`
              SELECT ${key} AS key FROM ${sql(name)} WHERE ${key} > ${after} ORDER BY ${key}
                LIMIT 1 OFFSET ${summedRows - 1}`
            const batch = sql`${sql(name)} WHERE ${key} > ${after}
              AND ${last === undefined ? sql`true` : sql`${key} <= ${last.key}`}`
            if (table.name === "finished_jobs") {
              yield* sql`DELETE FROM job_keys k USING (${keysOfJobs(batch)}) AS job WHERE ${isKeyOfJob()}`
            }
            // Materialized: a plan with parallel workers would take all cores from the requests.
            const rows = yield* sql<{ orgId: string; bytes: number; rows: number }>`
              WITH sized AS MATERIALIZED (SELECT org_id, ${sql.literal(table.bytes ?? "0")} AS bytes FROM ${batch})
              SELECT org_id AS "orgId", sum(bytes)::float8 AS bytes, count(*)::int AS rows FROM sized GROUP BY org_id`
            return { rows, upTo: last?.key ?? null }
          }).pipe(bounded, Effect.retry(batchRetries))
        for (const row of rows) {
          bytes.set(row.orgId, (bytes.get(row.orgId) ?? 0) + row.bytes)
          count += row.rows
        }
        after = upTo
      }
      return count
    })

    /**
     * Drops a range that is no partition any more. Nobody reads or locks it, so this may take as long as it needs; a
     * replica that is stopped meanwhile leaves it to the next run. What has become pending while the range was removed
     * returns first. Returns the number of rows of the first table.
     */
    const dropGone = Effect.fnUntraced(function* (records: Records, low: string) {
      const gone = (table: Table) => `gone_${partition(table, low)}`
      if (records === "webhooks") {
        yield* Effect.gen(function* () {
          const events = yield* eventsPending(gone(tables.webhooks[0]!), "~", maxMoved)
          yield* moveEvents(
            low,
            events.map(({ id }) => id),
          )
          return events.length
        }).pipe(sql.withTransaction, bounded, Effect.repeat({ while: (moved) => moved > 0 }))
        // Not before the range is detached: a key holds as long as its event is seen.
        const [first] = yield* bounded(lowsOf(records))
        yield* forgetKeys(first!)
      }
      const bytes = new Map<string, number>()
      const counts: Array<number> = []
      for (const table of tables[records]) {
        if (table.bytes !== undefined || counts.length === 0) counts.push(yield* sumRows(table, gone(table), bytes))
      }
      yield* Effect.gen(function* () {
        for (const table of tables[records]) yield* sql.unsafe(`DROP TABLE ${gone(table)}`)
        yield* subtractStoredBytes(sql, bytes)
      }).pipe(sql.withTransaction, Effect.provideService(CommitMillis, deadlines.drop), (removal) =>
        bounded(removal, "drop"),
      )
      return counts[0]!
    })

    /**
     * SQL: whether nothing of an event `e` is pending, and no sweep still has to create deliveries of it.
     *
     * @param pending the events with pending deliveries, of which `e` may be one
     */
    const isSettled = (pending: Statement.Fragment) => sql`
      e.id NOT IN ${pending} AND NOT EXISTS (
        SELECT FROM sweeps s WHERE s.event_id = e.id OR s.kind = 'emit' AND e.id = ANY(s.receivers)
      )`

    /**
     * Removes the rows of finished jobs, and forgets the keys of those that it has removed: a job that is retried
     * meanwhile keeps its keys. The keys are locked first, in the order in which a retry takes them.
     */
    const removeJobs = Effect.fnUntraced(function* (from: string, isGone: Statement.Fragment, bytes: string) {
      yield* sql`
        SELECT FROM job_keys k JOIN (${keysOfJobs(sql`${sql(from)} WHERE ${isGone}`)}) AS job ON ${isKeyOfJob()}
        ORDER BY k.workflow, k.key FOR UPDATE OF k`
      return yield* sql<Removed>`
        WITH gone AS (
          DELETE FROM ${sql(from)} WHERE ${isGone}
          RETURNING id, org_id, workflow, idempotency_key, unique_key, ${sql.literal(bytes)} AS bytes
        ), forgotten AS (
          DELETE FROM job_keys k USING (${keysOfJobs(sql`gone WHERE true`)}) AS job WHERE ${isKeyOfJob()}
        )
        SELECT org_id AS "orgId", sum(bytes)::float8 AS bytes, count(*)::int AS rows FROM gone GROUP BY org_id`
    })

    /**
     * Removes events with their deliveries, attempts and keys; and the rows of jobs for which `isJobGone` is true then.
     */
    const removeEvents = Effect.fnUntraced(function* (
      suffix: "" | "_old",
      events: ReadonlyArray<EventOfJob>,
      isJobGone: Statement.Fragment,
    ) {
      const freed: Array<Removed> = []
      for (const table of tables.webhooks) {
        const from = `${table.name}${suffix}`
        const removed =
          table.name === "finished_jobs"
            ? removeJobs(from, isJobGone, table.bytes!)
            : sql<Removed>`
                WITH gone AS (
                  DELETE FROM ${sql(from)} WHERE ${rowsOf(table, from, events)}
                  RETURNING org_id, ${sql.literal(table.bytes!)} AS bytes
                )
                SELECT org_id AS "orgId", sum(bytes)::float8 AS bytes, count(*)::int AS rows FROM gone GROUP BY org_id`
        freed.push(...(yield* removed))
      }
      yield* sql`DELETE FROM event_keys WHERE event_id = ANY(${texts(events.map(({ id }) => id))})`
      yield* subtractStoredBytes(sql, sumByOrg(freed))
    })

    /**
     * Removes events of `events_old` without a pending delivery, while nobody can make one pending, and jobs of
     * `finished_jobs_old` that have no event there.
     */
    const removeLeft = Effect.fnUntraced(function* (limit: number) {
      const newest = sql.literal("(SELECT max(id) FROM events_old)")
      const pending = pendingEvents(sql, sql`SELECT DISTINCT org_id FROM events_old`, sql.literal("''"), newest)
      const events = yield* sql<EventOfJob>`
        SELECT id, org_id AS "orgId", job_id AS job FROM events_old e
        WHERE ${isSettled(pending)} ORDER BY id LIMIT ${limit}`
      const isJobGone = sql`id = ANY(ARRAY(
        SELECT id FROM finished_jobs_old f WHERE NOT EXISTS (SELECT FROM events_old WHERE id = f.end_id)
          LIMIT ${limit}))`
      yield* removeEvents("_old", events, isJobGone)
      return events.length
    })

    return RetentionRepository.of({
      prepare: (records, now, range) =>
        Effect.gen(function* () {
          const [length, at] = [Duration.toMillis(range), yield* earliest(now)]
          let last = (yield* lowsOf(records)).at(-1)!
          for (let end = Math.floor(at / length) + 1; last <= idAt(at + length); end++) {
            const low = idAt(end * length)
            if (low <= last) continue
            const [from, all] = [last, tables[records]]
            const create = Effect.forEach(all, (table) => createTable(table, from, low))
            const split = yield* splitLast(records, from, low)
            const isSplit = yield* whileLocked(records, split, Effect.succeed(low), create)
            if (isSplit === null) return
            last = low
          }
        }).pipe(orUnavailableWithin("sweep")),

      removeOldest: (records, now, age) =>
        Effect.gen(function* () {
          let [gone] = yield* orUnavailableWithin("sweep")(lowsOf(records, "gone_"))
          if (gone === undefined) {
            const isDetached = yield* orUnavailableWithin("sweep")(
              Effect.gen(function* () {
                const [low, high] = yield* lowsOf(records)
                const before = idAt((yield* earliest(now)) - Duration.toMillis(age))
                if (high === undefined || high > before) return null
                return yield* detachOldest(records, low!, high)
              }),
            )
            if (isDetached === null) return null
            ;[gone] = yield* orUnavailableWithin("sweep")(lowsOf(records, "gone_"))
          }
          return gone === undefined ? null : yield* dropGone(records, gone)
        }).pipe(Effect.catch((error) => (error === "removed" ? Effect.succeed(null) : Effect.fail(error)))),

      removeLeft: (limit) =>
        Effect.gen(function* () {
          const left = yield* sql`(SELECT FROM events_old LIMIT 1) UNION ALL (SELECT FROM finished_jobs_old LIMIT 1)`
          return left.length === 0 ? 0 : ((yield* whileLocked("webhooks", [], removeLeft(limit))) ?? 0)
        }).pipe(orUnavailableWithin("sweep")),

      shorterOrgs: (afterOrg, limit) =>
        sql<{ orgId: string; days: number }>`
          SELECT id AS "orgId", retention_days AS days FROM orgs WHERE retention_days IS NOT NULL AND id > ${afterOrg}
          ORDER BY id LIMIT ${limit}`.pipe(orUnavailableWithin("sweep")),

      removeOfOrg: Effect.fnUntraced(
        function* (orgId, now, age, after, limit) {
          const end = idAt((yield* earliest(now)) - Duration.toMillis(age))
          yield* lockResends(sql, orgId, "alone")
          const looked = yield* sql<EventOfJob>`
            SELECT id, org_id AS "orgId", job_id AS job FROM events
            WHERE org_id = ${orgId} AND id > ${after} AND id < ${end} ORDER BY id LIMIT ${limit}`
          const [first, last] = [looked[0]?.id ?? "", looked.at(-1)?.id ?? ""]
          const pending = pendingEvents(
            sql,
            sql`SELECT ${orgId}::text COLLATE "C" AS org_id`,
            sql`${first}`,
            sql`${last}`,
          )
          const events = yield* sql<EventOfJob>`
            SELECT id, org_id AS "orgId", job_id AS job FROM events e
            WHERE id = ANY(${texts(looked.map(({ id }) => id))}) AND org_id = ${orgId}
              AND ${isSettled(pending)}`
          yield* removeEvents("", events, rowsOf(tables.webhooks[3]!, "finished_jobs", events))
          return { removed: events.length, next: looked.length === limit ? looked.at(-1)!.id : null }
        },
        sql.withTransaction,
        orUnavailableWithin("sweep"),
      ),

      removeJobsOfOrg: Effect.fnUntraced(
        function* (orgId, now, age, after, limit) {
          const end = idAt((yield* earliest(now)) - Duration.toMillis(age))
          const id = sql.literal(listedId)
          const looked = yield* sql<EventOfJob & { readonly isGone: boolean }>`
            SELECT f.end_id AS id, ${orgId}::text AS "orgId", f.id AS job, f.end_id < ${end}
              AND NOT EXISTS (SELECT FROM events WHERE id = f.end_id) AS "isGone"
            FROM (VALUES ('completed'), ('failed'), ('canceled')) AS s (status) CROSS JOIN LATERAL (
              SELECT id, end_id FROM finished_jobs WHERE org_id = ${orgId} AND status = s.status AND ${id} > ${after}
                AND ${id} < ${end}
              ORDER BY ${id} LIMIT ${limit}
            ) AS f ORDER BY f.id LIMIT ${limit}`
          const jobs = looked.filter(({ isGone }) => isGone)
          yield* removeEvents("", [], rowsOf(tables.webhooks[3]!, "finished_jobs", jobs))
          return { removed: jobs.length, next: looked.length === limit ? looked.at(-1)!.job! : null }
        },
        sql.withTransaction,
        orUnavailableWithin("sweep"),
      ),
    })
  }),
)

/**
 * Removes what is past its retention about every minute, and what is past that of its org about every ten minutes. The
 * jitter spreads the work of replicas.
 */
export const retentionWorker = Layer.effectDiscard(
  Effect.gen(function* () {
    const { removeOfOrgs, removeOld } = yield* Retention
    const pass = Effect.tap(removeOld, (removed) =>
      removed === 0 ? Effect.void : Effect.logInfo(`${removed} events past RETENTION_DAYS are removed`),
    )
    yield* logged("Old events are not removed", pass).pipe(
      Effect.repeat(Schedule.jittered(Schedule.spaced("1 minute"))),
      Effect.forkScoped,
    )
    const passOfOrgs = Effect.tap(removeOfOrgs, (removed) =>
      removed === 0
        ? Effect.void
        : Effect.logInfo(`${removed} events and jobs past the retention of their orgs are removed`),
    )
    yield* logged("Old events of orgs are not removed", passOfOrgs).pipe(
      Effect.repeat(Schedule.jittered(Schedule.spaced("10 minutes"))),
      Effect.forkScoped,
    )
  }),
)
