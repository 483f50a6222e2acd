import type { SqlClient, Statement } from "effect/sql"

interface Named {
  readonly name: string
  readonly rows: Statement.Fragment
}

/** Selects rows from parameters and from other parts, and reads no table. */
export interface Derived extends Named {
  readonly isMaterialized?: boolean
}

/** Reads tables, locks rows, updates or deletes. Uses no part that inserts. */
export interface Read extends Derived {
  readonly isRead: true
  /** The columns that parts after an insert use, with their types. */
  readonly columns?: string
  /** Whether `columns` also names the columns of `rows`, which then has no others. */
  readonly isNamed?: boolean
}

/** Inserts the rows of a SELECT that reads no table. */
export interface Insert extends Named {
  readonly into: string
  readonly columns: string
  /** Skips rows that exist already. With `returning`, the rows have a column `id`. */
  readonly unlessExists?: boolean
  /** What happens to a row that exists already, after ON CONFLICT. Without parameters. */
  readonly onConflict?: string
  /** What other parts use of the inserted rows. */
  readonly returning?: string
}

/**
 * A part of a statement that reads and inserts. On one PostgreSQL each part is a CTE. Citus sends the rows between a
 * CTE that inserts and the others to every node, so in a shard the parts are the steps of a function (ADR 24).
 */
export type Part = Derived | Read | Insert

/** The names of columns with types. */
export const namesOf = (columns: string) => columns.split(",").map((column) => column.trim().split(" ")[0]!)

export const isInsert = <P extends Part>(part: P): part is P & Insert => "into" in part
export const isRead = <P extends Part>(part: P): part is P & Read => "isRead" in part

/** The head of a part that does not insert, as a CTE. */
export const headOf = (part: Derived | Read) => {
  const names = isRead(part) && part.isNamed === true ? ` (${namesOf(part.columns!).join(", ")})` : ""
  return `${part.name}${names} AS ${part.isMaterialized === true ? "MATERIALIZED " : ""}`
}

/** The ON CONFLICT of a part that inserts. */
export const conflictOf = ({ onConflict, unlessExists }: Insert) => {
  const action = onConflict ?? (unlessExists === true ? "DO NOTHING" : undefined)
  return action === undefined ? "" : ` ON CONFLICT ${action}`
}

const withOf = (sql: SqlClient.SqlClient, part: Part) => {
  if (!isInsert(part)) return sql`${sql.literal(headOf(part))}(${part.rows})`
  const { columns, into, name, returning, rows } = part
  const tail = `${conflictOf(part)}${returning === undefined ? "" : ` RETURNING ${returning}`}`
  return sql`${sql.literal(`${name} AS (INSERT INTO ${into} (${columns})`)} ${rows}${sql.literal(tail)})`
}

/** Parts as CTEs, for a statement that starts with WITH. */
export const ctes = (sql: SqlClient.SqlClient, parts: ReadonlyArray<Part>) =>
  sql.join(", ", false)(parts.map((part) => withOf(sql, part)))
