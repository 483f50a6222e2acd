import { Context, Data, Duration, Effect, Layer } from "effect"
import { LRUCache } from "lru-cache"
import { errors } from "undici"
import type { FailureKind } from "../../domain/webhooks/WebhookSender.ts"
import { urlFault } from "../../domain/webhooks/WebhookUrl.ts"
import { type Connection, makeConnectionPool } from "./ConnectionPool.ts"
import { codeOf, ConnectFault } from "./pinnedConnector.ts"
import { makeResolveHost, type ResolveHost } from "./resolveHost.ts"

/** A request to a url that a caller gave. */
export interface SafeRequest {
  /** Absolute http or https, without credentials, 2,048 characters at most. */
  readonly url: string
  readonly method: "GET" | "POST"
  /** Sent as they are; beside them go only `host`, `connection` and `content-length`. */
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string | Uint8Array
  /** For everything together: resolving, connecting, TLS, sending, headers and body. */
  readonly timeout: Duration.Input
  /** How many bytes of the answer's body are read at most; then the connection is closed. */
  readonly maxRead: number
  /** How many of them are kept; default: all. */
  readonly keep?: number
}

/** An answer, whatever its status. Redirects are not followed, and nothing is decompressed. */
export interface SafeAnswer {
  readonly status: number
  /** By lower-case name; one that came several times is joined with ", ". */
  readonly headers: Readonly<Record<string, string>>
  /** The first `keep` bytes of the body, as they were sent. */
  readonly body: Uint8Array
  /** How many bytes of the body were read. */
  readonly bytesRead: number
  /** Whether the body is longer than `maxRead`, and was not read to its end. */
  readonly truncated: boolean
}

/** No answer, or none that is whole. The message is a sentence for the one who gave the url. */
export class SafeHttpError extends Data.TaggedError("SafeHttpError")<{
  readonly kind: FailureKind
  readonly message: string
  /** What had come of the answer; `undefined` when its headers had not. */
  readonly partial: SafeAnswer | undefined
}> {}

export interface SafeHttpOptions {
  /** Whether private, loopback, unique-local and carrier-grade NAT addresses may be called. */
  readonly allowPrivateNetworks: boolean
  /** Resolves the names of hosts; default: DNS (see `resolveHost.ts`). */
  readonly resolve?: ResolveHost
  /** How long a connection is kept for further requests, so that a host that moves is followed; default: 60 s. */
  readonly connectionLife?: Duration.Input
}

/** More informational answers (1xx) than this before the true one are a way to be read without end. */
const maxInformational = 10

const words: Record<string, string> = {
  ECONNREFUSED: "was refused",
  ECONNRESET: "was reset",
  EPIPE: "was reset",
  UND_ERR_SOCKET: "was closed before the answer ended",
  UND_ERR_RES_CONTENT_LENGTH_MISMATCH: "was closed before the answer ended",
  EHOSTUNREACH: "found no way to the host",
  ENETUNREACH: "found no way to the host",
  ETIMEDOUT: "was not accepted in time",
}

const describe = (error: Error): { readonly kind: FailureKind; readonly message: string } => {
  if (error instanceof ConnectFault) return error
  const code = codeOf(error)
  if (error instanceof errors.HeadersOverflowError) {
    return { kind: "bad_response", message: "The answer's headers are longer than 16 KiB." }
  }
  if (error instanceof errors.SocketError && error.message.startsWith("bad ")) {
    return { kind: "bad_response", message: "The answer is none to this request." }
  }
  if (error instanceof errors.HTTPParserError) {
    const reason = /\((.*)\)/.exec(error.message)?.[1] ?? "unreadable"
    return reason === "Invalid EOF state"
      ? { kind: "connection", message: "The connection was closed before the answer ended." }
      : { kind: "bad_response", message: `The answer is no valid HTTP (${reason}).` }
  }
  if (Object.hasOwn(words, code)) return { kind: "connection", message: `The connection ${words[code]} (${code}).` }
  if (/^(ERR_(SSL|TLS)_|EPROTO)/.test(code)) return { kind: "tls", message: `TLS failed (${code}).` }
  return { kind: "connection", message: `The connection failed (${code}).` }
}

const nothing = new Uint8Array()

type Headers = Record<string, string | ReadonlyArray<string> | undefined>
const joined = (headers: Headers): Record<string, string> => {
  const all: Record<string, string> = {}
  for (const [name, value] of Object.entries(headers)) all[name] = Array.isArray(value) ? value.join(", ") : `${value}`
  return all
}

/** Where a url leads, or what is wrong with it. */
type Target = { readonly origin: string; readonly path: string } | { readonly fault: string }

const targetOf = (url: string): Target => {
  const fault = urlFault(url, { httpsOnly: false })
  if (fault !== undefined) return { fault }
  const { origin, pathname, search } = new URL(url)
  return { origin, path: pathname + search }
}

/** How many urls are remembered with their targets: to read one costs a tenth of a request, and most are called again. */
const maxTargets = 1_000

/**
 * The one HTTP client for urls that callers gave (contract 8). A host is resolved once for each connection, every
 * address is checked, and the connection goes to a checked address; connections are kept for further requests, 60 s
 * at most. Interrupting a request closes its connection.
 */
export class SafeHttp extends Context.Service<
  SafeHttp,
  {
    /** Sends one request. Every status is an answer; fails with `SafeHttpError` when there is none, or no whole one. */
    readonly request: (request: SafeRequest) => Effect.Effect<SafeAnswer, SafeHttpError>
  }
>()("gatehouse/infrastructure/SafeHttp") {
  static readonly layer = (options: SafeHttpOptions) =>
    Layer.effect(
      SafeHttp,
      Effect.gen(function* () {
        const { allowPrivateNetworks, resolve = makeResolveHost({ askSystemToo: allowPrivateNetworks }) } = options
        const maxLife = Duration.toMillis(Duration.fromInputUnsafe(options.connectionLife ?? "60 seconds"))
        const pool = yield* Effect.acquireRelease(
          Effect.sync(() => makeConnectionPool({ allowPrivateNetworks, resolve, maxLife })),
          (pool) => Effect.sync(pool.discardAll),
        )

        const targets = new LRUCache<string, Target>({ max: maxTargets, memoMethod: targetOf })

        const request = (request: SafeRequest): Effect.Effect<SafeAnswer, SafeHttpError> => {
          const target = targets.memo(request.url)
          if ("fault" in target) {
            const message = `The url ${target.fault}.`
            return Effect.fail(new SafeHttpError({ kind: "refused_address", message, partial: undefined }))
          }
          return Effect.callback((resume) => {
            const { method, headers = {}, body = null, maxRead, keep = maxRead } = request
            const connection = pool.take(target.origin)
            const chunks: Array<Uint8Array> = []
            let head: { readonly status: number; readonly headers: Headers } | undefined
            let informational = 0
            let bytesRead = 0
            let settled = false

            /** Ends it once: only the first who ends it may say what came of it. */
            const end = (how: (connection: Connection) => void) => {
              if (settled) return false
              settled = true
              clearTimeout(timer)
              how(connection)
              return true
            }
            const answer = ({ status, headers }: NonNullable<typeof head>, truncated: boolean): SafeAnswer => {
              const read = chunks.length === 0 ? nothing : Buffer.concat(chunks)
              return {
                status,
                headers: joined(headers),
                body: read.length > keep ? read.subarray(0, keep) : read,
                bytesRead,
                truncated,
              }
            }
            const fail = (kind: FailureKind, message: string) => {
              if (!end(pool.discard)) return
              const partial = head === undefined ? undefined : answer(head, false)
              resume(Effect.fail(new SafeHttpError({ kind, message, partial })))
            }

            // Of the platform: an `Effect.timeout` would cost as much as the request itself.
            const timeout = Duration.fromInputUnsafe(request.timeout)
            const timer = setTimeout(
              () => fail("timeout", `No whole answer within ${Duration.format(timeout)}.`),
              Duration.toMillis(timeout),
            )
            connection.client.dispatch(
              { path: target.path, method, headers, body },
              {
                onRequestStart: () => {},
                onResponseStart: (_, status, headers) => {
                  if (status >= 200) head = { status, headers }
                  else if (++informational > maxInformational) fail("bad_response", "The answer does not begin.")
                },
                onResponseData: (_, chunk) => {
                  if (settled) return
                  if (bytesRead < keep) chunks.push(chunk)
                  bytesRead += chunk.length
                  if (bytesRead > maxRead && end(pool.discard)) resume(Effect.succeed(answer(head!, true)))
                },
                onResponseEnd: () => {
                  if (end(pool.release)) resume(Effect.succeed(answer(head!, false)))
                },
                onResponseError: (_, error) => {
                  const { kind, message } = describe(error)
                  fail(kind, message)
                },
              },
            )
            return Effect.sync(() => end(pool.discard))
          })
        }
        return SafeHttp.of({ request })
      }),
    )
}
