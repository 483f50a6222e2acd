import { Data, type Duration, Effect } from "effect"
import { type SafeAnswer, SafeHttp, type SafeRequest } from "../net/SafeHttp.ts"

const maxRedirects = 5
const redirects = [301, 302, 303, 307, 308]

/** A fetched document, with the validators for a conditional request. */
export interface Fetched {
  readonly bytes: Uint8Array
  readonly etag: string | undefined
  readonly lastModified: string | undefined
}

/** The document cannot be fetched. `message` follows the URL in a sentence. */
export class FetchFault extends Data.TaggedError("FetchFault")<{
  readonly message: string
  /** Whether a later fetch may succeed, because the server is down. */
  readonly isTransient: boolean
}> {}

const fault = (message: string, isTransient = false) => new FetchFault({ message, isTransient })

/** The target of a redirect; `undefined` if it is not a URL, or leads from https to http. */
const redirectTarget = (from: string, location: string | undefined) => {
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
    return Effect.fail(fault("was sent compressed, although the request does not accept it"))
  }
  return Effect.succeed({ bytes: body, etag: headers["etag"], lastModified: headers["last-modified"] })
}

/** Limits all redirects together; the time-out of a request limits only one. */
const withinTime = <A, R>(
  fetch: Effect.Effect<A, FetchFault, R>,
  _url: string,
  { timeout }: { readonly timeout: Duration.Input },
) =>
  Effect.timeoutOrElse(fetch, {
    duration: timeout,
    orElse: () => Effect.fail(fault("cannot be fetched in time", true)),
  })

/**
 * Fetches a document over `SafeHttp`. Follows up to five redirects, and checks each address like the first. Returns
 * `undefined` if the server answers that `previous` is the newest version.
 *
 * @param options maxBytes: limit of the document; timeout: deadline of the fetch, redirects and body included
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
  let current = url
  for (let hop = 0; hop <= maxRedirects; hop++) {
    const answer = yield* http
      .request({ ...request, url: current })
      .pipe(
        Effect.mapError(({ kind, message }) =>
          fault(`cannot be fetched: ${message.replace(/\.$/, "")}`, kind !== "refused_address"),
        ),
      )
    if (answer.status === 304 && previous !== undefined) return undefined
    if (!redirects.includes(answer.status)) return yield* read(answer, maxBytes)
    const next = redirectTarget(current, answer.headers["location"])
    if (next === undefined)
      return yield* fault("redirects to an address that is no URL, or from https to http; use the final URL")
    current = next
  }
  return yield* fault("redirects more than five times; use the final URL")
}, withinTime)
