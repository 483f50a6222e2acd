import { Context, Data, Duration, Effect, Layer } from "effect"
import { LRUCache } from "lru-cache"
import { Client, type Dispatcher } from "undici"
import { addressFault, type AddressRules, urlFault } from "../../domain/callableUrls.ts"
import type { ClientIdentity } from "../../domain/webhooks/EndpointAuth.ts"
import type { FailureKind } from "../../domain/webhooks/WebhookSender.ts"
import type { EgressProxy } from "./EgressProxy.ts"
import { type ConnectionFault, connectionFault, switchedProtocols } from "./connectionFault.ts"
import { identityHash } from "./foreignTls.ts"
import {
  hostFault,
  makeConnector,
  makeResolveHost,
  type OpenConnection,
  pinnedConnection,
  proxiedConnection,
  type ResolveHost,
} from "./connector.ts"

/** A request to a URL that a user chose. */
export interface SafeRequest {
  /** Absolute http or https, without credentials, 2,048 characters at most. */
  readonly url: string
  readonly method: "GET" | "POST"
  /** Sent unchanged; only `host`, `connection` and `content-length` are added. */
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string | Uint8Array
  /** Whose request it is: the id of an org, or of who asks without one. Owners share no connections. */
  readonly owner: string
  /** Shown to a server that asks for a certificate. */
  readonly identity?: ClientIdentity | undefined
  /** Deadline of the whole request: name resolution, connection, TLS, sending, headers and body. */
  readonly timeout: Duration.Input
  /** Limit of the response's body in bytes. After that the connection is closed and the response is `truncated`. */
  readonly maxRead: number
  /** Limit of the returned body in bytes. Default: `maxRead`. */
  readonly keep?: number
}

/** A response with any status. Redirects are not followed, and the body is not decompressed. */
export interface SafeResponse {
  readonly status: number
  /** By lower-case name; repeated headers are joined with ", ". */
  readonly headers: Readonly<Record<string, string>>
  /** The first `keep` bytes of the body. */
  readonly body: Uint8Array
  /** The number of bytes of the body that were read. */
  readonly bytesRead: number
  /** Whether the body is longer than `maxRead` and was not read to its end. */
  readonly truncated: boolean
}

/** There is no complete response. `message` is a sentence for the user who chose the URL. */
export class SafeHttpError extends Data.TaggedError("SafeHttpError")<{
  readonly kind: FailureKind
  readonly message: string
  /** The part of the response that arrived; `undefined` if the headers did not arrive. */
  readonly partial: SafeResponse | undefined
}> {}

export interface SafeHttpOptions extends AddressRules {
  /** All requests go through it, and it resolves and checks the names of hosts. Default: requests go directly. */
  readonly egressProxy?: EgressProxy | undefined
  /** Resolves host names. Default: DNS. */
  readonly resolve?: ResolveHost
  /** How long a connection takes new requests. Then the host is resolved again, because it may move. Default: 60 s. */
  readonly maxConnectionAge?: Duration.Input
}

/** The connection target of a URL, or what is wrong with the URL. */
type Target = { readonly origin: string; readonly path: string } | { readonly fault: string }

const targetOf = (url: string, rules: AddressRules): Target => {
  const fault = urlFault(url, { httpsOnly: false }) ?? addressFault(url, rules)
  if (fault !== undefined) return { fault }
  const { origin, pathname, search } = new URL(url)
  return { origin, path: pathname + search }
}

/** Limit of cached targets. To parse a URL costs a tenth of a request, and most URLs repeat. */
const maxCachedTargets = 1_000

/**
 * Sends a request on a connection of the pool and reads the response. If a connection that has served before fails
 * before a byte of the response, it sends the request again, once, on a new one (RFC 9112, section 9.3.1).
 * Interruption closes the connection.
 */
const exchange = (
  pool: ConnectionPool,
  { origin, path }: Exclude<Target, { readonly fault: string }>,
  request: SafeRequest,
): Effect.Effect<SafeResponse, SafeHttpError> =>
  Effect.callback((resume) => {
    const { method, headers = {}, body = null } = request
    let connection = pool.take(origin, request)
    let hasBegun = false
    const reader = makeAnswerReader(request)
    let isSettled = false

    /** Ends the exchange once. Returns whether this call ended it, and so may resume. */
    const settle = (end: (connection: Connection) => void) => {
      if (isSettled) return false
      isSettled = true
      clearTimeout(timer)
      end(connection)
      return true
    }
    const fail = ({ kind, message }: ConnectionFault) => {
      if (settle(pool.discard)) resume(Effect.fail(new SafeHttpError({ kind, message, partial: reader.partial() })))
    }

    // A platform timer: `Effect.timeout` would cost as much as the request itself.
    const timeout = Duration.fromInputUnsafe(request.timeout)
    const timer = setTimeout(
      () => fail({ kind: "timeout", message: `No complete response within ${Duration.format(timeout)}.` }),
      Duration.toMillis(timeout),
    )
    const handler: Dispatcher.DispatchHandler = {
      onRequestStart: () => {},
      onResponseStarted: () => {
        hasBegun = true
      },
      onResponseStart: (_, status, headers) => {
        const fault = reader.onHead(status, headers)
        if (fault !== undefined) fail(fault)
      },
      onResponseData: (_, chunk) => {
        if (isSettled || reader.onData(chunk)) return
        if (settle(pool.discard)) resume(Effect.succeed(reader.response(true)))
      },
      onResponseEnd: () => {
        if (settle(pool.release)) resume(Effect.succeed(reader.response(false)))
      },
      onResponseError: (_, error) => {
        // The server has closed the connection while the request was on its way.
        if (isSettled || hasBegun || !connection.hasServed) return fail(connectionFault(error))
        pool.discard(connection)
        connection = pool.take(origin, request, { isNew: true })
        send()
      },
    }
    const send = () => connection.client.dispatch({ path, method, headers, body }, handler)
    send()
    return Effect.sync(() => settle(pool.discard))
  })

/**
 * The only HTTP client for URLs that users choose. For each connection it resolves the host once, checks every address
 * and connects to a checked address. Through an egress proxy it checks the addresses that it knows, and the proxy
 * resolves the host again and decides. It keeps connections for further requests, by default for at most 60 s.
 */
export class SafeHttp extends Context.Service<
  SafeHttp,
  {
    /**
     * Sends one request. Every status is a response. Fails with `SafeHttpError` if there is no complete response.
     * Interruption closes the connection.
     */
    readonly request: (request: SafeRequest) => Effect.Effect<SafeResponse, SafeHttpError>
    /** Why the host of a valid URL may not be called; `null` when it may. */
    readonly hostFault: (url: string) => Effect.Effect<string | null>
  }
>()("gatehouse/infrastructure/SafeHttp") {
  static readonly layer = (options: SafeHttpOptions) =>
    Layer.effect(
      SafeHttp,
      Effect.gen(function* () {
        const { egressProxy, resolve = makeResolveHost({ askSystemToo: options.allowPrivateNetworks }) } = options
        const open =
          egressProxy === undefined
            ? pinnedConnection({ ...options, resolve })
            : proxiedConnection(egressProxy, { ...options, resolve })
        const maxAgeMillis = Duration.toMillis(Duration.fromInputUnsafe(options.maxConnectionAge ?? "60 seconds"))
        const pool = yield* Effect.acquireRelease(
          Effect.sync(() => makeConnectionPool({ open, maxAgeMillis })),
          (pool) => Effect.sync(pool.discardAll),
        )
        const targets = new LRUCache<string, Target>({
          max: maxCachedTargets,
          memoMethod: (url) => targetOf(url, options),
        })

        const check = hostFault({ ...options, resolve })
        return SafeHttp.of({
          hostFault: (url) => Effect.promise(() => check(url)),
          request: (request) => {
            const target = targets.memo(request.url)
            if (!("fault" in target)) return exchange(pool, target, request)
            const message = `The url ${target.fault}.`
            return Effect.fail(new SafeHttpError({ kind: "refused_address", message, partial: undefined }))
          },
        })
      }),
    )
}

/** A connection that is open or connecting, and serves one request at a time. */
interface Connection {
  /** The owner, the origin, and a hash of the client's certificate and private key if there are such. */
  readonly key: string
  readonly client: Client
  readonly abort: () => void
  readonly ageTimer: NodeJS.Timeout
  state: "busy" | "idle" | "gone"
  /** Whether it has carried a whole response since it connected. */
  hasServed: boolean
  isTooOld: boolean
}

/** Limit of idle connections of all origins: as many as a busy worker has attempts in flight. */
const maxIdle = 1_024

interface ConnectionPoolOptions {
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

/** The idle connections, by key. Keys and connections are in the order of their last use. */
const makeIdleConnections = () => {
  const byKey = new Map<string, Array<Connection>>()
  let count = 0
  return {
    /** The connection of a key that was used last. */
    newest: (key: string) => byKey.get(key)?.at(-1),
    remove: (connection: Connection) => {
      const siblings = byKey.get(connection.key)!
      siblings.splice(siblings.lastIndexOf(connection), 1)
      if (siblings.length === 0) byKey.delete(connection.key)
      count--
    },
    /**
     * Adds a connection. If there are more than `maxIdle`, returns the first of the key that was used longest ago.
     */
    add: (connection: Connection) => {
      const siblings = byKey.get(connection.key) ?? []
      siblings.push(connection)
      byKey.delete(connection.key)
      byKey.set(connection.key, siblings)
      return ++count > maxIdle ? byKey.values().next().value![0]! : undefined
    },
  }
}

/** The connection that a request needs. */
interface Wanted {
  readonly key: string
  readonly origin: string
  readonly identity: ClientIdentity | undefined
}

/** Opens a connection. Calls `retire` when it is idle and either too old or closed by the server. */
const openConnection = (
  { identity, key, origin }: Wanted,
  options: ConnectionPoolOptions,
  retire: (connection: Connection) => void,
): Connection => {
  const { connect, abort } = makeConnector(options.open, identity)
  const client = new Client(origin, { ...clientOptions, connect })
  const ageTimer = setTimeout(() => {
    connection.isTooOld = true
    if (connection.state === "idle") retire(connection)
  }, options.maxAgeMillis)
  ageTimer.unref()
  const connection: Connection = { key, client, abort, ageTimer, state: "busy", hasServed: false, isTooOld: false }
  client.on("disconnect", () => {
    connection.hasServed = false
    if (connection.state === "idle") retire(connection)
  })
  return connection
}

/**
 * A pool of keep-alive connections. A request takes an idle connection of its owner, origin and client certificate, or
 * opens one. A connection is never shared by two owners, nor by two private keys: who has only the certificate of
 * another would send as the other. What connections without a client certificate do share, by the host's name, are
 * sessions of TLS, which prove nothing about the client. A request never waits for another request, so a slow path of
 * a shared host delays nobody else. The caller bounds the requests in flight; the pool bounds the number and the time
 * of idle connections. undici's Agent does not: it keeps any number of idle connections, and beyond `maxOrigins` it
 * refuses a new origin instead of closing an idle connection.
 */
const makeConnectionPool = (options: ConnectionPoolOptions) => {
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

  const open = (wanted: Wanted) => {
    const connection = openConnection(wanted, options, retire)
    all.add(connection)
    return connection
  }

  return {
    /**
     * Takes a connection to an origin (`https://example.com:8443`) for one request. Release or discard it afterwards.
     */
    take: (origin: string, { identity, owner }: SafeRequest, { isNew = false } = {}): Connection => {
      const key = `${owner} ${origin}${identity === undefined ? "" : ` ${identityHash(identity)}`}`
      const connection = isNew ? undefined : idle.newest(key)
      if (connection === undefined) return open({ key, origin, identity })
      idle.remove(connection)
      connection.state = "busy"
      return connection
    },

    /** Returns a connection to the pool after a complete response. */
    release: (connection: Connection) => {
      if (connection.state !== "busy") return
      if (connection.isTooOld) return retire(connection)
      connection.state = "idle"
      connection.hasServed = true
      const surplus = idle.add(connection)
      if (surplus !== undefined) retire(surplus)
    },

    discard,
    discardAll: () => all.forEach(discard),
  }
}
type ConnectionPool = ReturnType<typeof makeConnectionPool>

/** Limit of informational responses (1xx) before the final one: without it a server could send them without end. */
const maxInformational = 10
const tooManyInformational: ConnectionFault = {
  kind: "bad_response",
  message: "Too many informational (1xx) responses came before the response.",
}

const emptyBody = new Uint8Array()

type Headers = Record<string, string | ReadonlyArray<string> | undefined>

const joinHeaders = (headers: Headers): Record<string, string> => {
  const joined: Record<string, string> = {}
  for (const [name, value] of Object.entries(headers)) {
    joined[name] = Array.isArray(value) ? value.join(", ") : `${value}`
  }
  return joined
}

/** Collects a response within the limits of the request. */
const makeAnswerReader = ({ maxRead, keep = maxRead }: SafeRequest) => {
  const chunks: Array<Uint8Array> = []
  let head: { readonly status: number; readonly headers: Headers } | undefined
  let informational = 0
  let bytesRead = 0

  const response = (truncated: boolean): SafeResponse => {
    const read = chunks.length === 0 ? emptyBody : Buffer.concat(chunks)
    const body = read.length > keep ? read.subarray(0, keep) : read
    return { status: head!.status, headers: joinHeaders(head!.headers), body, bytesRead, truncated }
  }
  return {
    /** Takes a status and headers. Returns why they are no response; informational ones are skipped. */
    onHead: (status: number, headers: Headers): ConnectionFault | undefined => {
      if (status === 101) return switchedProtocols
      if (status < 100) return { kind: "bad_response", message: `The response has no valid status (${status}).` }
      if (status >= 200) head = { status, headers }
      else if (++informational > maxInformational) return tooManyInformational
      return undefined
    },
    /** Takes a part of the body. Returns whether the body is within its limit. */
    onData: (chunk: Uint8Array) => {
      if (bytesRead < keep) chunks.push(chunk)
      bytesRead += chunk.length
      return bytesRead <= maxRead
    },
    /** The response; call it only after the headers have arrived. */
    response,
    /** What has arrived so far; `undefined` before the headers. */
    partial: () => (head === undefined ? undefined : response(false)),
  }
}
