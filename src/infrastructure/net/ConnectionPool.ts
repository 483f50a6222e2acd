import { Client } from "undici"
import { type ConnectorOptions, pinnedConnector } from "./pinnedConnector.ts"

/** A connection, standing or in the making, that serves one request at a time. */
export interface Connection {
  readonly origin: string
  readonly client: Client
  readonly abort: () => void
  readonly lifetime: NodeJS.Timeout
  state: "busy" | "idle" | "gone"
  old: boolean
}

/** How many connections may lie idle, whatever their origin: as many as a busy worker has attempts in flight. */
const maxIdle = 1_024

export interface ConnectionPoolOptions extends ConnectorOptions {
  /** How long a connection serves, in milliseconds: then the host is resolved and checked anew. A request is not cut. */
  readonly maxLife: number
}

const clientOptions = {
  allowH2: false,
  pipelining: 1,
  maxHeaderSize: 16 * 1024,
  // Idle time, in milliseconds: the server's Keep-Alive goes before the first, up to the second.
  keepAliveTimeout: 4_000,
  keepAliveMaxTimeout: 30_000,
  // A request has one time-out for everything.
  headersTimeout: 0,
  bodyTimeout: 0,
}

/**
 * Keep-alive connections, checked by `pinnedConnector`. A request takes an idle one of its origin, or makes one: it
 * never waits for another request, so a path that hangs on a shared host holds nobody else up. How many requests are
 * under way is the caller's to bound; how many connections lie idle, and for how long, is bounded here. undici's Agent bounds neither: it keeps any number of
 * idle connections, and past `maxOrigins` it refuses a new origin instead of closing an idle one.
 */
export const makeConnectionPool = (options: ConnectionPoolOptions) => {
  const all = new Set<Connection>()
  /** By origin; connections and origins used last are last. */
  const idle = new Map<string, Array<Connection>>()
  let idleCount = 0

  const removeIdle = (connection: Connection) => {
    const siblings = idle.get(connection.origin)!
    siblings.splice(siblings.lastIndexOf(connection), 1)
    if (siblings.length === 0) idle.delete(connection.origin)
    idleCount--
  }

  const forget = (connection: Connection) => {
    if (connection.state === "idle") removeIdle(connection)
    connection.state = "gone"
    all.delete(connection)
    clearTimeout(connection.lifetime)
  }

  const retire = (connection: Connection) => {
    forget(connection)
    connection.client.close(() => {})
  }

  /** Ends a connection at once, whatever it is doing: resolving, connecting, sending, reading. */
  const discard = (connection: Connection) => {
    if (connection.state === "gone") return
    forget(connection)
    connection.abort()
    connection.client.destroy(() => {})
  }

  const open = (origin: string): Connection => {
    const { connect, abort } = pinnedConnector(options)
    const client = new Client(origin, { ...clientOptions, connect })
    const lifetime = setTimeout(() => {
      connection.old = true
      if (connection.state === "idle") retire(connection)
    }, options.maxLife)
    lifetime.unref()
    const connection: Connection = { origin, client, abort, lifetime, state: "busy", old: false }
    client.on("disconnect", () => {
      if (connection.state === "idle") retire(connection)
    })
    all.add(connection)
    return connection
  }

  /** A connection to an origin (`https://example.com:8443`), for one request; to be released or discarded after it. */
  const take = (origin: string): Connection => {
    const connection = idle.get(origin)?.at(-1)
    if (connection === undefined) return open(origin)
    removeIdle(connection)
    connection.state = "busy"
    return connection
  }

  /** Gives a connection back after a complete answer, for the next request. */
  const release = (connection: Connection) => {
    if (connection.state !== "busy") return
    if (connection.old) return retire(connection)
    const siblings = idle.get(connection.origin) ?? []
    siblings.push(connection)
    idle.delete(connection.origin)
    idle.set(connection.origin, siblings)
    connection.state = "idle"
    if (++idleCount > maxIdle) retire(idle.values().next().value![0]!)
  }

  return { take, release, discard, discardAll: () => all.forEach(discard) }
}
export type ConnectionPool = ReturnType<typeof makeConnectionPool>
