import { Client } from "undici"
import { makeConnector, type OpenConnection } from "./connector.ts"

/** A connection that is open or connecting, and serves one request at a time. */
export interface Connection {
  readonly origin: string
  readonly client: Client
  readonly abort: () => void
  readonly ageTimer: NodeJS.Timeout
  state: "busy" | "idle" | "gone"
  isTooOld: boolean
}

/** Limit of idle connections of all origins: as many as a busy worker has attempts in flight. */
const maxIdle = 1_024

export interface ConnectionPoolOptions {
  readonly open: OpenConnection
  /** How long a connection takes new requests, in milliseconds; then the host is resolved and checked again. */
  readonly maxAgeMillis: number
}

const clientOptions = {
  allowH2: false,
  pipelining: 1,
  maxHeaderSize: 16 * 1024,
  // Idle time-out in milliseconds: the default, and the limit of the server's Keep-Alive header.
  keepAliveTimeout: 4_000,
  keepAliveMaxTimeout: 30_000,
  // Off: a request has one deadline.
  headersTimeout: 0,
  bodyTimeout: 0,
}

/** The idle connections, by origin. Origins and connections are in the order of their last use. */
const makeIdleConnections = () => {
  const byOrigin = new Map<string, Array<Connection>>()
  let count = 0
  return {
    /** The connection of an origin that was used last. */
    newest: (origin: string) => byOrigin.get(origin)?.at(-1),
    remove: (connection: Connection) => {
      const siblings = byOrigin.get(connection.origin)!
      siblings.splice(siblings.lastIndexOf(connection), 1)
      if (siblings.length === 0) byOrigin.delete(connection.origin)
      count--
    },
    /** Adds a connection. If there are more than `maxIdle`, returns the first of the origin that was used longest ago. */
    add: (connection: Connection) => {
      const siblings = byOrigin.get(connection.origin) ?? []
      siblings.push(connection)
      byOrigin.delete(connection.origin)
      byOrigin.set(connection.origin, siblings)
      return ++count > maxIdle ? byOrigin.values().next().value![0]! : undefined
    },
  }
}

/** Opens a connection. Calls `retire` when it is idle and either too old or closed by the server. */
const openConnection = (
  origin: string,
  options: ConnectionPoolOptions,
  retire: (connection: Connection) => void,
): Connection => {
  const { connect, abort } = makeConnector(options.open)
  const client = new Client(origin, { ...clientOptions, connect })
  const ageTimer = setTimeout(() => {
    connection.isTooOld = true
    if (connection.state === "idle") retire(connection)
  }, options.maxAgeMillis)
  ageTimer.unref()
  const connection: Connection = { origin, client, abort, ageTimer, state: "busy", isTooOld: false }
  client.on("disconnect", () => {
    if (connection.state === "idle") retire(connection)
  })
  return connection
}

/**
 * A pool of keep-alive connections. A request takes an idle connection of its origin or opens
 * one. It never waits for another request, so a slow path of a shared host delays nobody else. The caller bounds the
 * requests in flight; the pool bounds the number and the time of idle connections. undici's Agent does not: it keeps any
 * number of idle connections, and beyond `maxOrigins` it refuses a new origin instead of closing an idle connection.
 */
export const makeConnectionPool = (options: ConnectionPoolOptions) => {
  const all = new Set<Connection>()
  const idle = makeIdleConnections()

  const forget = (connection: Connection) => {
    if (connection.state === "idle") idle.remove(connection)
    connection.state = "gone"
    all.delete(connection)
    clearTimeout(connection.ageTimer)
  }

  /** Closes an idle connection. */
  const retire = (connection: Connection) => {
    forget(connection)
    connection.client.close(() => {})
  }

  /** Closes a connection at once, in any phase: resolving, connecting, sending or reading. */
  const discard = (connection: Connection) => {
    if (connection.state === "gone") return
    forget(connection)
    connection.abort()
    connection.client.destroy(() => {})
  }

  const open = (origin: string) => {
    const connection = openConnection(origin, options, retire)
    all.add(connection)
    return connection
  }

  return {
    /** Takes a connection to an origin (`https://example.com:8443`) for one request. Release or discard it afterwards. */
    take: (origin: string): Connection => {
      const connection = idle.newest(origin)
      if (connection === undefined) return open(origin)
      idle.remove(connection)
      connection.state = "busy"
      return connection
    },

    /** Returns a connection to the pool after a complete answer. */
    release: (connection: Connection) => {
      if (connection.state !== "busy") return
      if (connection.isTooOld) return retire(connection)
      connection.state = "idle"
      const surplus = idle.add(connection)
      if (surplus !== undefined) retire(surplus)
    },

    discard,
    discardAll: () => all.forEach(discard),
  }
}
export type ConnectionPool = ReturnType<typeof makeConnectionPool>
