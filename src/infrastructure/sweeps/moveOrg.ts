import { Clock, DateTime, Effect } from "effect"
import type { SqlClient, SqlError } from "effect/sql"
import { Unavailable } from "../../domain/Errors.ts"
import { afterCallbacks, afterOrg } from "../queue/lanes.ts"
import { lockName, outsideTransaction } from "../database/boundedTransactions.ts"
import { date, idAt, listedId, texts } from "../database/fragments.ts"
import { type NodesService, placementChannel } from "../database/Nodes.ts"
import { eraseBatch, erasePending } from "./erase.ts"
import { type CopiedOrg, copiedColumns, writeCopy } from "../orgs/orgsSql.ts"

/** A table of tenants whose rows move with their org. */
interface MovedTable {
  readonly name: string
  /** The columns after `org_id` of the index by which its rows are read. */
  readonly order: ReadonlyArray<string>
  /** SQL: the rows that move; default all. */
  readonly where?: string
  /** Whether the rows of the platform's database stay there. */
  readonly platformStays?: boolean
}

/** Every table with an `org_id` is here, or is the platform's: `test/contract/orgs/Move.test.ts`. */
export const movedTables: ReadonlyArray<MovedTable> = [
  { name: "org_signing_keys", order: [] },
  { name: "webhook_endpoints", order: ["id"] },
  { name: "endpoint_throttles", order: ["endpoint_id"] },
  { name: "failing_callbacks", order: ["lane"] },
  { name: "job_schedules", order: ["id"] },
  { name: "jobs", order: ["status", listedId] },
  { name: "finished_jobs", order: ["status", listedId] },
  { name: "job_keys", order: ["workflow", "key"] },
  { name: "workflows", order: ["workflow"] },
  { name: "event_types", order: ["id"] },
  { name: "event_keys", order: ["key"] },
  { name: "events", order: ["id"] },
  { name: "deliveries", order: ["id"] },
  { name: "delivery_attempts", order: ["delivery_id", "number"] },
  { name: "pending_deliveries", order: ["lane", "delivery_id"] },
  { name: "sweeps", order: ["id"], where: "kind NOT IN ('move', 'erase')" },
  { name: "idempotency_keys", order: ["caller", "operation", "key"] },
  { name: "audit_log", order: ["id"], platformStays: true },
]

/**
 * Rows and bytes of one step. The org is frozen after a step with fewer changes than this: such a step has read all of
 * them, so only changes that were made during it are left.
 */
const maxRows = 1_000
/** Time after which a batch takes no further rows: the transaction of its sweep must not be idle for ten seconds. */
const maxBatchMillis = 1_000
const maxBytes = 8 * 1024 * 1024
/** How long the old rows stay for a replica that has not heard of the move. */
const settleTime = "1 minute"
/** Events of the last seconds before the switch stay in the platform's database, whose outbox may have some of them. */
const outboxMillis = 10_000

type Sql = SqlClient.SqlClient

/** The move of an org, as its sweep has it. `''` is the platform's database. */
interface Move {
  readonly id: string
  readonly org_id: string
  readonly source: string
  readonly node: string
  readonly done_to: string
  readonly since: Date | null
}

/** What a batch did: the rows that it read, and the next position; `null` at the end. */
interface Moved {
  readonly rows: number
  readonly doneTo: string | null
  readonly isWaiting?: boolean
}

/** The columns of a table that are written, and those of its primary key. */
interface Columns {
  readonly name: string
  readonly columns: ReadonlyArray<string>
  readonly key: ReadonlyArray<string>
}

const columnsOf = (sql: Sql) =>
  Effect.map(
    sql<Columns>`
      SELECT t.name,
        (SELECT json_agg(attname ORDER BY attnum) FROM pg_attribute
          WHERE attrelid = t.name::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = '') AS columns,
        (SELECT json_agg(a.attname ORDER BY a.attnum) FROM pg_index i
          JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)
          WHERE i.indrelid = t.name::regclass AND i.indisprimary) AS key
      FROM unnest(${texts(movedTables.map(({ name }) => name))}) AS t (name)`,
    (rows) => new Map(rows.map((row) => [row.name, row])),
  )

/** SQL: whether two rows have the same primary key. */
const sameKey = ({ key }: Columns, a: string, b: string) => key.map((c) => `${a}.${c} = ${b}.${c}`).join(" AND ")

/**
 * Reads the next rows of a table after a position, as JSON. `isLast`: there were no others. Rows that are added later
 * are read as changes, so that reading a table ends even while rows are added to it.
 */
const readNext = (
  sql: Sql,
  { name, order, where = "true" }: MovedTable,
  orgId: string,
  after: ReadonlyArray<string>,
  limit: number,
) => {
  const columns = sql.literal(["org_id", ...order].join(", "))
  const position = order.map((column, n) => after[n] ?? (column === "number" ? "0" : ""))
  // A range of the index by org: by the primary key, a plan would read the rows of other orgs.
  const range =
    name === "failing_callbacks"
      ? sql`org_id = ${orgId} AND lane > ${after[0] ?? orgId + afterOrg} AND lane < ${orgId + afterCallbacks} ORDER BY lane`
      : order.length === 0
        ? sql`org_id = ${orgId}`
        : sql`(${columns}) > (${sql.csv([orgId, ...position].map((v) => sql`${v}`))})
            AND org_id <= ${orgId} ORDER BY ${columns}`
  const each = `CASE WHEN ${where} THEN json_build_array(row_to_json(d)) ELSE '[]' END`
  const fits = sql.literal(`bytes_before < ${maxBytes}`)
  return sql<{ rows: string; read: number; last: ReadonlyArray<string> | null; isLast: boolean }>`
    SELECT coalesce(json_agg(e ORDER BY n) FILTER (WHERE e IS NOT NULL), '[]')::text AS rows,
      coalesce(max(n) FILTER (WHERE ${fits}), 0)::int AS read,
      (array_agg(place ORDER BY n DESC) FILTER (WHERE ${fits}))[1] AS last,
      coalesce(max(n), 0) < ${limit} AND coalesce(bool_and(${fits}), true) AS "isLast"
    FROM (
      SELECT *, sum(octet_length(found::text)) OVER (ORDER BY n) - octet_length(found::text) AS bytes_before FROM (
        SELECT row_number() OVER () AS n, json_build_array(${sql.literal(order.map((c) => `d.${c}`).join(", "))}) AS place,
          ${sql.literal(each)} AS found
        FROM (SELECT * FROM ${sql.literal(name)} WHERE ${range} LIMIT ${limit}) AS d
      ) AS d
    ) AS d LEFT JOIN LATERAL json_array_elements(found) AS e ON ${fits}`.pipe(Effect.map(([row]) => row!))
}

/** Rows for the new database. */
interface Copy {
  readonly table: Columns
  /** The primary keys of rows that are replaced by `rows`, as JSON. */
  readonly keys: string
  readonly rows: string
}

/** Takes changes that the triggers noted, and reads the changed rows. */
const readChanges = Effect.fnUntraced(function* (
  sql: Sql,
  columns: ReadonlyMap<string, Columns>,
  orgId: string,
  limit: number,
) {
  const changes = yield* sql<{ table: string; keys: string; count: number }>`
    WITH taken AS (
      DELETE FROM moved_rows WHERE org_id = ${orgId} AND number = ANY(ARRAY(
        SELECT number FROM moved_rows WHERE org_id = ${orgId} ORDER BY number LIMIT ${limit}
      )) RETURNING table_name, key::text
    )
    SELECT table_name AS table, json_agg(DISTINCT key)::text AS keys, count(*)::int AS count FROM taken GROUP BY table_name`
  const copies = yield* Effect.forEach(changes, ({ keys, table }) =>
    Effect.gen(function* () {
      const of = columns.get(table)!
      const where = movedTables.find(({ name }) => name === table)?.where ?? "true"
      const keyed = `[${(JSON.parse(keys) as ReadonlyArray<string>).join()}]`
      const [row] = yield* sql<{ rows: string }>`
        SELECT coalesce(json_agg(r), '[]')::text AS rows
        FROM json_populate_recordset(NULL::${sql.literal(table)}, ${keyed}::text::json) AS k
        CROSS JOIN LATERAL (
          SELECT * FROM ${sql.literal(`${table} AS t WHERE ${sameKey(of, "t", "k")} AND ${where}`)} LIMIT 1
        ) AS r`
      return { table: of, keys: keyed, rows: row!.rows } satisfies Copy
    }),
  )
  return { copies, count: changes.reduce((sum, { count }) => sum + count, 0) }
})

/** Writes rows at the new database, in a transaction. */
export const writeCopies = Effect.fnUntraced(function* (sql: Sql, copies: ReadonlyArray<Copy>) {
  // Planner (a move finds rows by their keys): a plan that was made for few rows would hash the whole table.
  yield* sql`SELECT set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)`
  for (const { keys, table } of copies) {
    const { name } = table
    yield* sql`
      DELETE FROM ${sql.literal(`${name} AS t`)}
      USING json_populate_recordset(NULL::${sql.literal(name)}, ${keys}::text::json) AS k
      WHERE ${sql.literal(sameKey(table, "t", "k"))}`
  }
  for (const { rows, table } of copies) {
    if (rows === "[]") continue
    const names = sql.literal(table.columns.join(", "))
    yield* sql`
      INSERT INTO ${sql.literal(table.name)} (${names}) SELECT ${names}
      FROM json_populate_recordset(NULL::${sql.literal(table.name)}, ${rows}::text::json)
      -- A row that changed may be among the next ones, too.
      ON CONFLICT (${sql.literal(table.key.join(", "))}) DO NOTHING`
  }
})

/** Where the copy of all rows is: a table, and the last row that was read; or `done`. */
const positionOf = (doneTo: string): readonly [table: number, after: ReadonlyArray<string>] => {
  const [, table = "0", after = "[]"] = /^copy (\d+) (.*)$/s.exec(doneTo) ?? []
  return doneTo === "drain" ? [movedTables.length, []] : [Number(table), JSON.parse(after) as ReadonlyArray<string>]
}

const lost = new Unavailable({ error: "Another replica has moved these rows." })

/**
 * Moves the rows of an org between databases, in small steps (ADR 36). `sql` is the platform's database, in the
 * transaction that holds the sweep; everything else runs in transactions of its own.
 */
export const moveBatch = Effect.fnUntraced(function* (
  sql: Sql,
  nodes: NodesService,
  move: Move,
  now: DateTime.Utc,
  limit: number,
): Effect.fn.Return<Moved, SqlError.SqlError | Unavailable> {
  const { id, org_id: orgId } = move
  const databaseOf = (name: string) =>
    name === "" ? Effect.succeed(sql) : Effect.map(nodes.named(name), (node): Sql => node.sql)
  const [source, target] = [yield* databaseOf(move.source), yield* databaseOf(move.node)]
  const apart = outsideTransaction(sql)
  const tables = movedTables.filter(({ platformStays }) => move.source !== "" || platformStays !== true)

  const columns = yield* columnsOf(sql)

  /** Creates or drops the triggers that note changes, table by table: each waits for the writers of its table. */
  const setTriggers = Effect.fnUntraced(function* (exist: boolean) {
    const quoted = `'${orgId.replaceAll("'", "''")}'`
    for (const { name, where } of tables) {
      for (const [row, events] of [
        ["new", "INSERT OR UPDATE"],
        ["old", "DELETE"],
      ] as const) {
        const trigger = `"moves_${orgId}_${row}"`
        const statement = exist
          ? `CREATE OR REPLACE TRIGGER ${trigger} BEFORE ${events} ON ${name} FOR EACH ROW
            WHEN (${row}.org_id = ${quoted}${where === undefined ? "" : ` AND ${row}.${where}`})
            EXECUTE FUNCTION note_moving(${quoted}, ${[name, ...columns.get(name)!.key].join(", ")})`
          : `DROP TRIGGER IF EXISTS ${trigger} ON ${name}`
        const run = source.withTransaction(
          Effect.andThen(source`SET LOCAL lock_timeout = '1s'`, source.unsafe(statement)),
        )
        // The platform's table is in use by the transaction that holds this sweep.
        yield* exist || name !== "sweeps" ? apart(run) : run
      }
    }
  })

  /** Copies changes, and, when there are few, the next rows. Returns how much, and the position. */
  const copy = Effect.fnUntraced(function* (doneTo: string) {
    const [table, after] = positionOf(doneTo)
    const size = Math.min(limit, maxRows)
    const [arriving] = yield* target<{ step: number }>`
      SELECT step FROM org_moves WHERE org_id = ${orgId} AND id = ${id} AND state = 'arriving'`
    if (arriving === undefined) return yield* lost
    return yield* source.withTransaction(
      Effect.gen(function* () {
        // Rows that were added and removed since the last step are read as they are at one time.
        yield* source`SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`
        const changes = yield* readChanges(source, columns, orgId, size)
        const spec = changes.count < size ? tables[table] : undefined
        const next = spec && (yield* readNext(source, spec, orgId, after, size))
        const copies: ReadonlyArray<Copy> = next
          ? [...changes.copies, { table: columns.get(spec!.name)!, keys: next.rows, rows: next.rows }]
          : changes.copies
        yield* target.withTransaction(
          Effect.gen(function* () {
            const [ours] = yield* target`
              UPDATE org_moves SET step = step + 1
              WHERE org_id = ${orgId} AND id = ${id} AND state = 'arriving' AND step = ${arriving.step} RETURNING 1`
            if (ours === undefined) return yield* lost
            yield* writeCopies(target, copies)
          }),
        )
        // A table without an order has one row.
        const isEnd = next?.isLast === true || spec?.order.length === 0
        return {
          rows: changes.count + (next?.read ?? 0),
          hasMore: changes.count >= size,
          isDone: table >= tables.length,
          position:
            next === undefined ? doneTo : isEnd ? `copy ${table + 1} []` : `copy ${table} ${JSON.stringify(next.last)}`,
        }
      }),
    )
  }, apart)

  /** Runs a change that the triggers let through, in a transaction of its own. */
  const moving = <A>(change: Effect.Effect<A, SqlError.SqlError>) =>
    apart(source.withTransaction(Effect.andThen(source`SELECT set_config('gatehouse.moves', ${orgId}, true)`, change)))

  const [org] = yield* sql<CopiedOrg>`
    SELECT ${sql.literal(copiedColumns)} FROM orgs WHERE id = ${orgId} FOR NO KEY UPDATE`
  const phase = move.done_to.split(" ", 1)[0]!

  if (org === undefined && phase !== "left") {
    // The org was deleted. Its erasure removes what the platform and the old database have.
    yield* setTriggers(false)
    if (move.node !== "") {
      yield* target`
        WITH gone AS (DELETE FROM orgs WHERE id = ${orgId})
        INSERT INTO sweeps (id, org_id, kind, created_at) VALUES (${id}, ${orgId}, 'erase', ${date(now)})
        ON CONFLICT DO NOTHING`
    }
    return { rows: 0, doneTo: null }
  }

  switch (phase) {
    case "": {
      yield* apart(target`
        INSERT INTO org_moves (org_id, id, state) VALUES (${orgId}, ${id}, 'arriving') ON CONFLICT DO NOTHING`)
      yield* apart(source`
        INSERT INTO org_moves (org_id, id, state) VALUES (${orgId}, ${id}, 'copying') ON CONFLICT DO NOTHING`)
      yield* setTriggers(true)
      return { rows: 0, doneTo: "copy 0 []" }
    }
    case "copy": {
      let [doneTo, rows] = [move.done_to, 0]
      const endsAt = (yield* Clock.currentTimeMillis) + maxBatchMillis
      while (rows < limit && (yield* Clock.currentTimeMillis) < endsAt) {
        const copied = yield* copy(doneTo)
        rows += copied.rows
        if (copied.isDone && !copied.hasMore) return { rows, doneTo: "drain" }
        doneTo = copied.position
      }
      return { rows, doneTo }
    }
    case "drain": {
      // No claim takes the org's deliveries from now on; the attempts in flight end, and are recorded here.
      yield* apart(source`UPDATE org_moves SET state = 'draining' WHERE org_id = ${orgId} AND state = 'copying'`)
      const [arriving] = yield* target`SELECT 1 FROM org_moves WHERE org_id = ${orgId} AND id = ${id}`
      if (arriving !== undefined) {
        const endsAt = (yield* Clock.currentTimeMillis) + maxBatchMillis
        let [step, rows] = [yield* copy("drain"), 0]
        while (step.hasMore && (yield* Clock.currentTimeMillis) < endsAt) {
          rows += step.rows
          step = yield* copy("drain")
        }
        const [claimed] = yield* apart(source`
          SELECT 1 FROM pending_deliveries
          WHERE org_id = ${orgId} AND claim_id IS NOT NULL AND lease_until > ${date(now)} LIMIT 1`)
        if (claimed !== undefined || step.hasMore) return { rows: rows + step.rows, doneTo: "drain" }
        yield* freeze(source, orgId).pipe(apart)
        while ((yield* copy("drain")).rows > 0);
        yield* apart(activate(source, target, move, org!))
      }
      if (move.source === "") yield* subtractMovedBytes(sql, orgId)
      yield* sql`
        UPDATE orgs SET node = ${move.node === "" ? null : move.node},
          -- What was checked with the catalogue that the old database had is checked again.
          strict_events = CASE WHEN strict_events IS NOT NULL THEN ${id} END
        WHERE id = ${orgId}`
      yield* sql`UPDATE sweeps SET since = ${date(now)} WHERE id = ${id}`
      yield* sql`SELECT pg_notify(${placementChannel}, ${orgId})`
      const leave = source`UPDATE org_moves SET state = 'left' WHERE org_id = ${orgId}`
      const others = source`DELETE FROM sweeps WHERE org_id = ${orgId} AND kind NOT IN ('move', 'erase')`
      // In the transaction of the switch, where the org leaves the database of the platform.
      yield* move.source === ""
        ? Effect.andThen(sql`SELECT set_config('gatehouse.moves', ${orgId}, true)`, Effect.andThen(leave, others))
        : moving(Effect.andThen(leave, others))
      return { rows: 0, doneTo: "left " }
    }
    default: {
      const switchedAt = DateTime.fromDateUnsafe(move.since!)
      const settled = DateTime.addDuration(switchedAt, settleTime)
      if (DateTime.isLessThan(now, settled)) {
        // Before the others, because claims would read them.
        const { rows } = yield* moving(erasePending(source, orgId, limit))
        return { rows, doneTo: "left ", isWaiting: rows < limit }
      }
      const events = move.source === "" ? idAt(DateTime.toEpochMillis(switchedAt) - outboxMillis) : "~"
      const erasure = { orgId, projectId: null, moved: { events, isPlatform: move.source === "" } }
      const { position, rows } = yield* moving(eraseBatch(source, erasure, move.done_to.slice(5), limit))
      if (position !== null) return { rows, doneTo: `left ${position}` }
      yield* setTriggers(false)
      if (move.source !== "") yield* source`DELETE FROM orgs WHERE id = ${orgId}`
      yield* apart(source`DELETE FROM org_moves WHERE org_id = ${orgId} AND id = ${id}`)
      return { rows, doneTo: null }
    }
  }
})

/** Waits for the changes of the org in flight, and lets no other begin. */
const freeze = (source: Sql, orgId: string) =>
  source.withTransaction(
    Effect.gen(function* () {
      yield* source`SET LOCAL lock_timeout = '2s'`
      yield* lockName(source, `move:${orgId}`)
      yield* source`UPDATE org_moves SET state = 'frozen' WHERE org_id = ${orgId} AND state = 'draining'`
    }),
  )

/** SQL: the stored bytes of an org that move: in the platform's database, those of documentation stay. */
const movedBytes = (sql: Sql, orgId: string) => sql`
  greatest(0, coalesce((SELECT stored_bytes FROM org_usage WHERE org_id = ${orgId}), 0) - coalesce(
    (SELECT sum(bytes) FROM project_docs WHERE org_id = ${orgId}), 0))::bigint`

const subtractMovedBytes = (sql: Sql, orgId: string) =>
  sql`UPDATE org_usage SET stored_bytes = stored_bytes - ${movedBytes(sql, orgId)} WHERE org_id = ${orgId}`

/** From the commit on, the new database works for the org. */
const activate = Effect.fnUntraced(function* (
  source: Sql,
  target: Sql,
  { id, node, org_id: orgId }: Move,
  org: CopiedOrg,
) {
  const [usage] = yield* source<{ bytes: string }>`SELECT ${movedBytes(source, orgId)}::text AS bytes`
  yield* target.withTransaction(
    Effect.gen(function* () {
      const [ours] = yield* target`
        DELETE FROM org_moves WHERE org_id = ${orgId} AND id = ${id} AND state = 'arriving' RETURNING 1`
      if (ours === undefined) return yield* lost
      if (node !== "") yield* writeCopy(target, orgId, { ...org, strict_events: org.strict_events && id })
      yield* target`
        INSERT INTO org_usage (org_id, stored_bytes) VALUES (${orgId}, ${usage!.bytes}::text::bigint)
        ON CONFLICT (org_id) DO UPDATE SET stored_bytes = org_usage.stored_bytes + excluded.stored_bytes,
          endpoints = NULL, schedules = NULL, unfinished_jobs = NULL`
    }),
  )
})
