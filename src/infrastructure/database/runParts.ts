import { PgTypes } from "@effect/sql-pg"
import { Context, Effect } from "effect"
import type { SqlClient, SqlError, Statement } from "effect/sql"
import { LRUCache } from "lru-cache"
import { createHash } from "node:crypto"
import { Shard, functionsOf } from "./shards.ts"
import { conflictOf, ctes, headOf, type Insert, isInsert, isRead, namesOf, type Part, type Read } from "./parts.ts"

/**
 * Runs the parts of a statement, and returns the rows of its SELECT. One round trip, and one transaction. In a shard
 * these rows pass through JSON.
 */
export const runParts = <Row extends object>(
  sql: SqlClient.SqlClient,
  parts: ReadonlyArray<Part>,
  select: Statement.Fragment,
): Effect.Effect<ReadonlyArray<Row>, SqlError.SqlError> => {
  const whole = () => sql<Row>`WITH ${ctes(sql, parts)} ${select}`
  const functions = functionsOf(sql)
  if (functions === undefined) return whole()
  return Effect.withFiber(({ context }) => {
    if (Context.get(context, Shard) === undefined) return whole()
    const { call, create, parameters } = partsFunction(sql, parts, select)
    functions.add(call, create)
    return Effect.map(sql.unsafe<{ rows: ReadonlyArray<Row> }>(call, parameters), ([found]) => found!.rows)
  })
}

/**
 * Up to so many rows are inserted one by one. The plan for one row is kept; Citus plans a statement for many rows each
 * time.
 */
const maxSingleRows = 4
/** Limit of the functions whose SQL is kept. The program has fewer. */
const maxFunctions = 200

const arrayTypes: ReadonlyMap<number, string> = new Map([
  [PgTypes.OID.textArray, "text[]"],
  [PgTypes.OID.int4Array, "int[]"],
  [PgTypes.OID.timestamptzArray, "timestamptz[]"],
])

const typeOf = (parameter: unknown) => {
  if (parameter === null || typeof parameter === "string") return "text"
  if (typeof parameter === "boolean") return "boolean"
  if (typeof parameter === "number") return "numeric"
  if (parameter instanceof Date) return "timestamptz"
  const type = PgTypes.isParameter(parameter) ? arrayTypes.get(parameter.oid) : undefined
  if (type === undefined) throw new Error("A function in a shard takes no parameter of this type")
  return type
}

/** A part, and its SQL with the parameters of the function. */
type Written<P = Part> = P & { readonly text: string }

/** PL/pgSQL: the variable with the rows of a part that reads, and the one with the ids that a part has inserted. */
const rowsOf = (name: string) => `gatehouse_${name}`
const idsOf = (name: string) => `gatehouse_${name}_ids`

/** Whether other parts use the rows of an insert that skips existing rows. */
const keepsIds = ({ returning, unlessExists }: Insert) => unlessExists === true && returning !== undefined

const usesPart = (text: string, { name }: Part) => new RegExp(`\\b(FROM|JOIN)\\s+${name}\\b`).test(text)

/**
 * The parts that SQL uses, directly and through others, in their order.
 *
 * @param isOpen whether what the part uses counts, too
 */
const usedBy = (all: ReadonlyArray<Written>, texts: ReadonlyArray<string>, isOpen: (part: Part) => boolean) => {
  const used = new Set<Written>()
  let open = texts
  while (open.length > 0) {
    const next = all.filter((part) => !used.has(part) && open.some((text) => usesPart(text, part)))
    next.forEach((part) => used.add(part))
    open = next.filter(isOpen).map(({ text }) => text)
  }
  return all.filter((part) => used.has(part))
}

/** A statement after the first one: the parts that it uses are CTEs that read no table. */
const later = (all: ReadonlyArray<Written>, text: string) => {
  const list = usedBy(all, [text], (part) => !isRead(part)).map((part) => {
    if (isRead(part)) {
      if (part.columns === undefined) throw new Error(`The part ${part.name} has no columns, and a later one uses it`)
      return `${part.name} AS (SELECT * FROM json_to_recordset(${rowsOf(part.name)}) AS kept (${part.columns}))`
    }
    if (!isInsert(part)) return `${headOf(part)}(${part.text})`
    const made = part.unlessExists === true ? `WHERE id = ANY(${idsOf(part.name)})` : ""
    return `${part.name} AS (SELECT ${part.returning} FROM (${part.text}) AS made (${part.columns}) ${made})`
  })
  return list.length === 0 ? text : `WITH ${list.join(", ")} ${text}`
}

/** The first statement: reads, locks, updates and deletes, and keeps what later ones use. */
const readAll = (all: ReadonlyArray<Written>, kept: ReadonlyArray<Read>) => {
  const reads = all.filter(isRead)
  if (reads.length === 0) return ""
  const used = new Set([
    ...reads,
    ...usedBy(
      all,
      reads.map(({ text }) => text),
      () => true,
    ),
  ])
  const list = all.flatMap((part) => {
    if (!used.has(part)) return []
    if (isInsert(part)) throw new Error(`A part that reads uses ${part.name}, which inserts`)
    return [`${headOf(part)}(${part.text})`]
  })
  const rows = kept.map(
    ({ columns, name }) =>
      `(SELECT coalesce(json_agg(kept), '[]') FROM (SELECT ${namesOf(columns!).join(", ")} FROM ${name}) AS kept)`,
  )
  return `WITH ${list.join(", ")} SELECT ${rows.join(", ")} INTO ${kept.map(({ name }) => rowsOf(name)).join(", ")};`
}

const insert = (all: ReadonlyArray<Written>, part: Written<Insert>) => {
  const { columns, into, name, text } = part
  const isKept = keepsIds(part)
  const source = later(all, `SELECT * FROM (${text}) AS made (${columns})`)
  const target = `INSERT INTO ${into} (${columns})`
  const values = namesOf(columns).map((column) => `made.${column}`)
  const keep = `${idsOf(name)} := array_append(${idsOf(name)}, made.id);`
  const conflict = conflictOf(part)
  const one = `${target} VALUES (${values.join(", ")})${conflict};`
  return `
    IF (SELECT count(*) FROM (${source} LIMIT ${maxSingleRows + 1}) AS counted) <= ${maxSingleRows} THEN
      FOR made IN ${source} LOOP
        ${isKept ? `${one} IF FOUND THEN ${keep} END IF;` : one}
      END LOOP;
    ELSE
      ${
        isKept
          ? `FOR made IN ${target} ${source}${conflict} RETURNING id LOOP ${keep} END LOOP;`
          : `${target} ${source}${conflict};`
      }
    END IF;`
}

const makeBody = (all: ReadonlyArray<Written>, select: string) => {
  const inserts = all.filter(isInsert)
  const texts = [select, ...inserts.map(({ text }) => text)]
  const kept = usedBy(all, texts, (part) => !isRead(part)).filter(isRead)
  const ids = inserts.filter(keepsIds)
  return `
    #variable_conflict use_column
    DECLARE
      made record;
      ${kept.map(({ name }) => `${rowsOf(name)} json;`).join(" ")}
      ${ids.map(({ name }) => `${idsOf(name)} text[] := '{}';`).join(" ")}
    BEGIN
      ${readAll(all, kept)}
      ${inserts.map((part) => insert(all, part)).join("")}
      RETURN (${later(all, `SELECT coalesce(json_agg(found), '[]') FROM (${select}) AS found`)});
    END`
}

const separator = "\u0001"
const written = new LRUCache<string, { readonly call: string; readonly create: string }>({ max: maxFunctions })

/**
 * The parts of a statement as a PL/pgSQL function. It reads in one statement, keeps rows of parts in variables, and
 * runs each INSERT as a statement of its own, which Citus runs on the node of the table alone.
 *
 * @returns the statement that calls the function, and the one that creates it
 */
const partsFunction = (sql: SqlClient.SqlClient, parts: ReadonlyArray<Part>, select: Statement.Fragment) => {
  const fragments = [...parts.map(({ rows }) => rows), select]
  const [text, parameters] = sql`${sql.join(separator, false)(fragments)}`.compile()
  const types = parameters.map(typeOf)
  const inserts = parts.map((part) => (isInsert(part) ? `${part.into}${conflictOf(part)}` : part.name))
  const key = [text, ...types, ...inserts].join(separator)
  const known = written.get(key)
  if (known !== undefined) return { ...known, parameters }

  const texts = text.split(separator)
  const all = parts.map((part, at): Written => ({ ...part, text: texts[at]! }))
  const name = `pg_temp.gatehouse_${createHash("sha256").update(key).digest("hex").slice(0, 16)}`
  const body = makeBody(all, texts.at(-1)!)
  const made = {
    call: `SELECT ${name}(${types.map((type, at) => `$${at + 1}::${type}`).join(", ")}) AS rows`,
    create: `CREATE OR REPLACE FUNCTION ${name}(${types.join(", ")}) RETURNS json LANGUAGE plpgsql AS $gatehouse$${body}$gatehouse$`,
  }
  written.set(key, made)
  return { ...made, parameters }
}
