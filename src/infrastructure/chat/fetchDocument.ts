import { Data, type Duration, Effect } from "effect"
import { type SafeAnswer, SafeHttp, type SafeRequest } from "../net/SafeHttp.ts"

const maxRedirects = 5
const redirects = [301, 302, 303, 307, 308]

/** A document as it came, with what a server says to ask for a newer one only. */
export interface Fetched {
  readonly bytes: Uint8Array
  readonly etag: string | undefined
  readonly lastModified: string | undefined
}

/** The document cannot be had. `message` is put behind its name. */
export class FetchFault extends Data.TaggedError("FetchFault")<{
  readonly message: string
  /** Whether it may be had later: the server is down, and did not say that there is no such document. */
  readonly passing: boolean
}> {}

const fault = (message: string, passing = false) => new FetchFault({ message, passing })

/** Where a redirect leads; never from https to http. */
const target = (from: string, location: string | undefined) => {
  const base = new URL(from)
  const to = location !== undefined && URL.canParse(location, from) ? new URL(location, base) : undefined
  return to === undefined || (base.protocol === "https:" && to.protocol === "http:") ? undefined : to.href
}

const read = (answer: SafeAnswer, maxBytes: number) => {
  const { status, headers, truncated, body } = answer
  if (status !== 200)
    return Effect.fail(fault(`was answered with the status ${status}`, status === 429 || status >= 500))
  if (truncated) return Effect.fail(fault(`is larger than ${maxBytes / 1024 / 1024} MiB`))
  if (!["", "identity"].includes((headers["content-encoding"] ?? "").trim().toLowerCase())) {
    return Effect.fail(fault("came compressed, which was not asked for"))
  }
  return Effect.succeed({ bytes: body, etag: headers["etag"], lastModified: headers["last-modified"] })
}

/** Each hop has the whole time by itself, and a server could make many hops of it. */
const withinTime = <A, R>(
  fetch: Effect.Effect<A, FetchFault, R>,
  _url: string,
  { timeout }: { readonly timeout: Duration.Input },
) => Effect.timeoutOrElse(fetch, { duration: timeout, orElse: () => Effect.fail(fault("cannot be had in time", true)) })

/**
 * Fetches a document over `SafeHttp`. Redirects are followed five times at most, and each address is checked like the
 * first. Gives `undefined` when the server says that `previous` is still the newest.
 *
 * @param options maxBytes: a longer document is refused; timeout: what all of it has, redirects, connections and body
 */
export const fetchDocument = Effect.fn("Documents.fetch")(function* (
  url: string,
  options: { readonly maxBytes: number; readonly timeout: Duration.Input },
  previous: Omit<Fetched, "bytes"> | undefined,
): Effect.fn.Return<Fetched | undefined, FetchFault, SafeHttp> {
  const http = yield* SafeHttp
  const { maxBytes, timeout } = options
  const request: Omit<SafeRequest, "url"> = {
    method: "GET",
    timeout,
    maxRead: maxBytes,
    headers: {
      accept: "*/*",
      "accept-encoding": "identity",
      "user-agent": "Gatehouse",
      ...(previous?.etag === undefined ? {} : { "if-none-match": previous.etag }),
      ...(previous?.lastModified === undefined ? {} : { "if-modified-since": previous.lastModified }),
    },
  }
  let at = url
  for (let hop = 0; hop <= maxRedirects; hop++) {
    const answer = yield* http
      .request({ ...request, url: at })
      .pipe(
        Effect.mapError(({ kind, message }) =>
          fault(`cannot be had: ${message.replace(/\.$/, "")}`, kind !== "refused_address"),
        ),
      )
    if (answer.status === 304 && previous !== undefined) return undefined
    if (!redirects.includes(answer.status)) return yield* read(answer, maxBytes)
    const next = target(at, answer.headers["location"])
    if (next === undefined) return yield* fault("redirects to where it is not followed")
    at = next
  }
  return yield* fault("redirects too many times")
}, withinTime)
