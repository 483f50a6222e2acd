import { Cause, Data, Deferred, Duration, Effect, Option, type Schema, Scope, Stream } from "effect"
import { FetchHttpClient, HttpClient, type HttpClientError, HttpClientRequest } from "effect/http"
import { monotonicMillis } from "../../domain/monotonicMillis.ts"
import { transportFault } from "./transportFault.ts"

/** Limit of a key set; GitHub's has about 10 KiB. */
const maxKeySetBytes = 256 * 1024
/** Deadline of a fetch, connection and body included. */
const fetchDeadline = Duration.seconds(5)
/** Keys older than this are fetched again before use, so that a withdrawn key stops working. */
const maxKeyAgeMillis = Duration.toMillis("10 minutes")
/** Minimum time between two fetches because of an unknown kid or old keys: anyone can send any kid. */
const minRefetchMillis = Duration.toMillis("30 seconds")
/** Minimum time between two fetches while no keys are known; shorter, because no token can be verified until then. */
const minFirstFetchMillis = Duration.toMillis("5 seconds")

/** The keys cannot be fetched: the provider is down, or its response is not a key set. */
export class KeysUnavailable extends Data.TaggedError("KeysUnavailable")<{
  readonly reason: string
  /** The status of the response, if that is the reason. */
  readonly status?: number
}> {
  override get message() {
    return this.reason
  }
}

/** Keys by their id. A Map, because an id such as "__proto__" must not match. */
export type Keys<Key> = ReadonlyMap<string, Key>

/** Where keys are published. */
interface KeySource<Key> {
  /** For log lines. */
  readonly address: string
  /** What is fetched, for log lines: "OIDC keys". */
  readonly what: string
  /** Fetches them with `fetchText`. */
  readonly read: (
    client: HttpClient.HttpClient,
  ) => Effect.Effect<Keys<Key>, HttpClientError.HttpClientError | KeysUnavailable | Schema.SchemaError>
}

/** Reads a published document, within the limit of bytes, without redirects. */
export const fetchText = (client: HttpClient.HttpClient, url: string) =>
  textOf(client, HttpClientRequest.get(url, { acceptJson: true }))

/** Reads the response to a request, within the limit of bytes, without redirects. */
export const textOf = Effect.fnUntraced(function* (
  client: HttpClient.HttpClient,
  request: HttpClientRequest.HttpClientRequest,
) {
  const response = yield* client.execute(request)
  const { url } = request
  // Redirects are never followed, whichever HttpClient this is: they have another status.
  const { status } = response
  if (status !== 200) return yield* new KeysUnavailable({ reason: `${url} answers with status ${status}`, status })
  const bytes = yield* response.stream.pipe(
    Stream.limitBytes<HttpClientError.HttpClientError | KeysUnavailable, never>(maxKeySetBytes, () =>
      Stream.fail(new KeysUnavailable({ reason: `more than ${maxKeySetBytes} bytes` })),
    ),
    Stream.mkUint8Array,
  )
  return new TextDecoder().decode(bytes)
})

type Fault = HttpClientError.HttpClientError | KeysUnavailable | Schema.SchemaError | Cause.TimeoutError

/** Why a request to a publisher failed, for the log: nothing that it has said. */
export const reasonOf = (cause: Cause.Cause<Fault>): string => {
  const fault = Cause.squash(cause) as Partial<Fault>
  if (fault._tag === "KeysUnavailable") return fault.reason ?? ""
  if (fault._tag === "SchemaError") return "what is published there is no key set"
  if (fault._tag === "TimeoutError") return `no response in ${Duration.toSeconds(fetchDeadline)} seconds`
  return `no response: ${transportFault(fault)}`
}

/** A request to a publisher: within the deadline, without redirects, and without a trace of ours. */
export const bounded = <A, E, R>(request: Effect.Effect<A, E, R>) =>
  request.pipe(
    Effect.timeout(fetchDeadline),
    Effect.provideService(HttpClient.TracerPropagationEnabled, false),
    Effect.provideService(FetchHttpClient.RequestInit, { redirect: "manual" }),
  )

const fetchKeys = Effect.fn("PublishedKeys.fetch")(
  <Key>(client: HttpClient.HttpClient, { read }: KeySource<Key>) => bounded(read(client)),
  (keys, _client, { address, what }) =>
    Effect.tapCause(keys, (cause) =>
      Effect.logWarning(`The ${what} cannot be fetched from ${address}: ${reasonOf(cause)}`),
    ),
)

/**
 * The keys that somebody publishes, by their id. They are fetched on first use and kept in memory.
 *
 * `find` returns the key of an id, or none if it is not published. It fails with `KeysUnavailable` if that
 * is unknown. A known key keeps working while its publisher is down. A fetch runs in the scope of `make`, once for
 * everyone who waits, and continues when one of them is interrupted. jose's `createRemoteJWKSet` does less: with old
 * keys and the provider down it refuses every known key, and it fetches once per token.
 */
export const make = Effect.fnUntraced(function* <Key>(source: KeySource<Key>) {
  const client = yield* HttpClient.HttpClient
  const scope = yield* Scope.Scope
  let keys: Keys<Key> = new Map()
  let fetchedAt: number | undefined
  let attempt: { at: number; fault: string | undefined; readonly done: Deferred.Deferred<void> } | undefined

  /** Starts a fetch, or joins the one in flight. A failure does not change the keys. */
  const refresh = (now: number) =>
    Effect.uninterruptibleMask((restore) =>
      Effect.gen(function* () {
        if (attempt === undefined || Deferred.isDoneUnsafe(attempt.done)) {
          const current = {
            at: now,
            fault: "the fetch did not end" as string | undefined,
            done: Deferred.makeUnsafe<void>(),
          }
          attempt = current
          yield* fetchKeys(client, source).pipe(
            Effect.map((fetched) => {
              keys = fetched
              fetchedAt = now
              current.fault = undefined
            }),
            Effect.catchCause((cause) => Effect.sync(() => void (current.fault = reasonOf(cause)))),
            Effect.ensuring(
              Effect.map(monotonicMillis, (end) => {
                // Counted from the end of a fetch, so that a slow provider is not fetched from all the time.
                current.at = end
                Deferred.doneUnsafe(current.done, Effect.void)
              }),
            ),
            Effect.forkIn(scope),
          )
        }
        yield* restore(Deferred.await(attempt.done))
      }),
    )

  return {
    find: Effect.fn("PublishedKeys.find")(function* (
      kid: string,
    ): Effect.fn.Return<Option.Option<Key>, KeysUnavailable> {
      const now = yield* monotonicMillis
      const mayFetch = (minMillis: number) =>
        attempt === undefined || !Deferred.isDoneUnsafe(attempt.done) || now - attempt.at >= minMillis
      if (fetchedAt === undefined) {
        if (mayFetch(minFirstFetchMillis)) yield* refresh(now)
      } else if ((now - fetchedAt >= maxKeyAgeMillis || !keys.has(kid)) && mayFetch(minRefetchMillis)) {
        yield* refresh(now)
      }
      const key = keys.get(kid)
      if (key === undefined && attempt?.fault !== undefined) {
        return yield* new KeysUnavailable({ reason: attempt.fault })
      }
      return Option.fromUndefinedOr(key)
    }),
  }
})
