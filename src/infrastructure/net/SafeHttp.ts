import { Context, Data, Duration, Effect, Layer } from "effect"
import { LRUCache } from "lru-cache"
import type { FailureKind } from "../../domain/webhooks/WebhookSender.ts"
import { addressFault, type AddressRules } from "../../domain/addresses.ts"
import { urlFault } from "../../domain/webhooks/WebhookUrl.ts"
import { makeAnswerReader } from "./answerReader.ts"
import { type ConnectionFault, connectionFault } from "./connectionFault.ts"
import { type Connection, type ConnectionPool, makeConnectionPool } from "./ConnectionPool.ts"
import type { EgressProxy } from "./EgressProxy.ts"
import { pinnedConnection } from "./pinnedConnection.ts"
import { proxiedConnection } from "./proxiedConnection.ts"
import { makeResolveHost, type ResolveHost } from "./resolveHost.ts"

/** A request to a URL that a user chose. */
export interface SafeRequest {
  /** Absolute http or https, without credentials, 2,048 characters at most. */
  readonly url: string
  readonly method: "GET" | "POST"
  /** Sent unchanged; only `host`, `connection` and `content-length` are added. */
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string | Uint8Array
  /** Deadline of the whole request: name resolution, connection, TLS, sending, headers and body. */
  readonly timeout: Duration.Input
  /** Limit of the answer's body in bytes. After that the connection is closed and the answer is `truncated`. */
  readonly maxRead: number
  /** Limit of the returned body in bytes. Default: `maxRead`. */
  readonly keep?: number
}

/** An answer with any status. Redirects are not followed, and the body is not decompressed. */
export interface SafeAnswer {
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

/** There is no complete answer. `message` is a sentence for the user who chose the URL. */
export class SafeHttpError extends Data.TaggedError("SafeHttpError")<{
  readonly kind: FailureKind
  readonly message: string
  /** The part of the answer that arrived; `undefined` if the headers did not arrive. */
  readonly partial: SafeAnswer | undefined
}> {}

export interface SafeHttpOptions extends AddressRules {
  /** All requests go through it, and it resolves and checks the names of hosts. Default: requests go directly. */
  readonly egressProxy?: EgressProxy | undefined
  /** Resolves host names. Default: DNS (see `resolveHost.ts`). */
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

/** Sends a request on a connection of the pool and reads the answer. Interruption closes the connection. */
const exchange = (
  pool: ConnectionPool,
  { origin, path }: Exclude<Target, { readonly fault: string }>,
  request: SafeRequest,
): Effect.Effect<SafeAnswer, SafeHttpError> =>
  Effect.callback((resume) => {
    const { method, headers = {}, body = null } = request
    const connection = pool.take(origin)
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
      () => fail({ kind: "timeout", message: `No complete answer within ${Duration.format(timeout)}.` }),
      Duration.toMillis(timeout),
    )
    connection.client.dispatch(
      { path, method, headers, body },
      {
        onRequestStart: () => {},
        onResponseStart: (_, status, headers) => {
          if (reader.onHead(status, headers)) return
          fail({ kind: "bad_response", message: "Too many informational (1xx) answers came before the answer." })
        },
        onResponseData: (_, chunk) => {
          if (isSettled || reader.onData(chunk)) return
          if (settle(pool.discard)) resume(Effect.succeed(reader.answer(true)))
        },
        onResponseEnd: () => {
          if (settle(pool.release)) resume(Effect.succeed(reader.answer(false)))
        },
        onResponseError: (_, error) => fail(connectionFault(error)),
      },
    )
    return Effect.sync(() => settle(pool.discard))
  })

/**
 * The only HTTP client for URLs that users choose (contract 8). For each connection it resolves the host once, checks every
 * address and connects to a checked address; or it connects through the egress proxy, which decides. It keeps connections
 * for further requests, by default for at most 60 s.
 */
export class SafeHttp extends Context.Service<
  SafeHttp,
  {
    /**
     * Sends one request. Every status is an answer. Fails with `SafeHttpError` if there is no complete answer. Interruption
     * closes the connection.
     */
    readonly request: (request: SafeRequest) => Effect.Effect<SafeAnswer, SafeHttpError>
  }
>()("gatehouse/infrastructure/SafeHttp") {
  static readonly layer = (options: SafeHttpOptions) =>
    Layer.effect(
      SafeHttp,
      Effect.gen(function* () {
        const { egressProxy, resolve = makeResolveHost({ askSystemToo: options.allowPrivateNetworks }) } = options
        const open =
          egressProxy === undefined ? pinnedConnection({ ...options, resolve }) : proxiedConnection(egressProxy)
        const maxAgeMillis = Duration.toMillis(Duration.fromInputUnsafe(options.maxConnectionAge ?? "60 seconds"))
        const pool = yield* Effect.acquireRelease(
          Effect.sync(() => makeConnectionPool({ open, maxAgeMillis })),
          (pool) => Effect.sync(pool.discardAll),
        )
        const targets = new LRUCache<string, Target>({
          max: maxCachedTargets,
          memoMethod: (url) => targetOf(url, options),
        })

        return SafeHttp.of({
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
