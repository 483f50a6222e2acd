import { Effect, type Scope } from "effect"
import type { SqlConnection, SqlError } from "effect/sql"
import { LRUCache } from "lru-cache"

/** Functions that a process remembers. The program has fewer. */
const maxFunctions = 200

/**
 * Functions that connections create when they first call them, in the schema pg_temp, which ends with the connection.
 */
export interface SessionFunctions {
  /** Remembers a function: the statement that calls it, and the one that creates it. */
  readonly add: (call: string, create: string) => void
  /** Makes a connection outside a transaction create what it calls. */
  readonly connection: (connection: SqlConnection.Connection) => SqlConnection.Connection
  /** Creates all functions, because one that a transaction creates is gone after a rollback. */
  readonly beforeTransaction: (
    acquirer: Effect.Effect<SqlConnection.Connection, SqlError.SqlError, Scope.Scope>,
  ) => Effect.Effect<SqlConnection.Connection, SqlError.SqlError, Scope.Scope>
}

/** The session of a connection. The driver makes another object for each lease of a session. */
const sessionOf = (connection: SqlConnection.Connection): object =>
  (connection as { readonly connection?: { readonly base?: object } }).connection?.base ?? connection

export const make = (): SessionFunctions => {
  const functions = new LRUCache<string, string>({ max: maxFunctions })
  const created = new WeakMap<object, Set<string>>()
  const createdBy = (connection: SqlConnection.Connection) => {
    const session = sessionOf(connection)
    const calls = created.get(session) ?? new Set()
    created.set(session, calls)
    return calls
  }
  const ensure = (connection: SqlConnection.Connection, call: string, isKept: boolean) => {
    const create = functions.get(call)
    const calls = createdBy(connection)
    if (create === undefined || calls.has(call)) return undefined
    return Effect.map(connection.executeRaw(create, []), () => {
      if (isKept) calls.add(call)
    })
  }
  const wrap = (connection: SqlConnection.Connection, isKept: boolean) => {
    return Object.create(connection, {
      execute: {
        value: ((sql, parameters, transform) => {
          const run = connection.execute(sql, parameters, transform)
          const creating = ensure(connection, sql, isKept)
          return creating === undefined ? run : Effect.andThen(creating, run)
        }) satisfies SqlConnection.Connection["execute"],
      },
    }) as SqlConnection.Connection
  }
  return {
    add: (call, create) => {
      if (!functions.has(call)) functions.set(call, create)
    },
    connection: (connection) => wrap(connection, true),
    beforeTransaction: (acquirer) =>
      Effect.flatMap(acquirer, (connection) =>
        Effect.as(
          Effect.forEach([...functions.keys()], (call) => ensure(connection, call, true) ?? Effect.void, {
            discard: true,
          }),
          wrap(connection, false),
        ),
      ),
  }
}
