import { Data, type Duration, Effect, Layer } from "effect"
import * as BoundedCache from "../../domain/BoundedCache.ts"
import * as ByteBudget from "../../domain/ByteBudget.ts"
import { Unavailable, UnprocessableContent } from "../../domain/Errors.ts"
import { type Archive, Documents, type Skill, type Source, zipLimits } from "../../domain/docs/Documents.ts"
import { fieldsOf, splitFrontMatter } from "../../domain/docs/frontMatter.ts"
import { monotonicMillis } from "../../domain/monotonicMillis.ts"
import { cut } from "../../domain/Schemas.ts"
import { textOf } from "./textOf.ts"
import { type ZipFault, ZipReader } from "./ZipReader.ts"
import { type SafeResponse, SafeHttp, type SafeRequest } from "../net/SafeHttp.ts"

const maxRedirects = 5
const redirects = [301, 302, 303, 307, 308]

/** A fetched document, with the validators for a conditional request. */
interface Fetched {
  readonly bytes: Uint8Array
  readonly etag: string | undefined
  readonly lastModified: string | undefined
}

/** The document cannot be fetched. `message` follows the URL in a sentence. */
class FetchFault extends Data.TaggedError("FetchFault")<{
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

const read = (answer: SafeResponse, maxBytes: number) => {
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
 * @param options owner: whose fetch it is; maxBytes: limit of the document; timeout: deadline of the fetch, redirects
 * and body included
 */
export const fetchDocument = Effect.fn("Documents.fetch")(function* (
  url: string,
  options: { readonly owner: string; readonly maxBytes: number; readonly timeout: Duration.Input },
  previous: Omit<Fetched, "bytes"> | undefined,
): Effect.fn.Return<Fetched | undefined, FetchFault, SafeHttp> {
  const http = yield* SafeHttp
  const { maxBytes, owner, timeout } = options
  const request: Omit<SafeRequest, "url"> = {
    method: "GET",
    owner,
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

const MiB = 1024 * 1024
/** A skill is one text file. */
const maxSkillBytes = MiB
/** A document is used this long before its server is asked for a newer one. */
const freshMillis = 60_000
/** While its server is down, a document is used this long after the last answer. */
const staleMillis = 3_600_000
/** Limits of concurrent fetches, of all owners and of one. */
const maxFetches = 32
const maxFetchesOfOwner = 4
/** Limits of concurrent unpackings, of all owners and of one: each may take 70 MiB of memory. */
const maxUnpackings = 2
const maxUnpackingsOfOwner = 1
/** Limit of the fetches, and of the unpackings, of one owner that wait. */
const maxWaitingFetches = 64

const tooLate = new FetchFault({ message: "cannot be fetched in time", isTransient: true })
const tooBusy = new Unavailable({ error: "Too many documents are being loaded; try again." })

interface Document<A> {
  readonly value: A
  readonly fetched: Omit<Fetched, "bytes">
  /** When the server last answered, in monotonic milliseconds. */
  readonly answeredAt: number
  /** When the server was last asked. */
  readonly checkedAt: number
}

/** Shortens a text to one line, because names and descriptions are lines of the model's instructions. */
const oneLine = (text: string, length: number) => cut(text.replace(/\s+/g, " ").trim(), length)

const skillFrom = (bytes: Uint8Array): Effect.Effect<Skill, FetchFault> => {
  const markdown = textOf(bytes)
  const fields = fieldsOf(splitFrontMatter(markdown).matter)
  const [name, description] = [fields("name"), fields("description")]
  return typeof name === "string" && typeof description === "string" && name.trim() !== ""
    ? Effect.succeed({ name: oneLine(name, 100), description: oneLine(description, 1_000), markdown })
    : Effect.fail(
        new FetchFault({ message: "must begin with front matter that has name and description", isTransient: false }),
      )
}

/** A kind of document. */
interface Kind<A> {
  /** The request field of its URLs, for errors. */
  readonly field: string
  readonly maxBytes: number
  readonly parse: (bytes: Uint8Array) => Effect.Effect<A, FetchFault | ZipFault | Unavailable>
  /** The memory of a value in bytes. */
  readonly size: (value: A) => number
}

interface DocumentsOptions {
  /** Limit of the memory of all archives in bytes. Skills may take an eighth of it in addition. Default: 128 MiB. */
  readonly maxBytes?: number
  /** Deadline of a fetch, redirects and body included. Default: 10 s. */
  readonly timeout?: Duration.Input
}

/**
 * The cache key of a document. It contains the org if the URL has a query or a user: either may be a credential, and
 * orgs must not share what needs one.
 */
const cacheKey = ({ url, orgId = "" }: Source) => {
  const { search, username, password } = new URL(url)
  return search + username + password === "" ? url : `${orgId} ${url}`
}

const archives: Omit<Kind<Archive>, "parse"> = {
  field: "docsZipUrl",
  maxBytes: zipLimits.bytes,
  size: ({ pages }) => pages.reduce((sum, { slug, markdown }) => sum + 2 * (slug.length + markdown.length), 1_000),
}

const skills: Kind<Skill> = {
  field: "skillUrls",
  maxBytes: maxSkillBytes,
  parse: skillFrom,
  size: ({ markdown }) => 2 * markdown.length + 1_000,
}

/** Slots that owners share. The owner with the fewest slots is next. */
const slots = (all: number, perOwner: number, deadline: Duration.Input) =>
  ByteBudget.make({
    bytes: all,
    perOwner,
    deadline,
    maxWaiting: maxWaitingFetches,
    error: tooBusy.error,
  })

interface ReaderOptions {
  readonly cacheBytes: number
  readonly timeout: Duration.Input
  readonly fetching: ReturnType<typeof slots>
  readonly unpacking: ReturnType<typeof slots>
}

/**
 * Makes the functions that return documents of one kind: from a cache of `cacheBytes` or their servers, or only from
 * those.
 */
const makeReader = Effect.fnUntraced(function* <A>({ field, maxBytes, parse, size }: Kind<A>, options: ReaderOptions) {
  const { cacheBytes, timeout, fetching, unpacking } = options
  const http = yield* SafeHttp
  const cache = yield* BoundedCache.make<Document<A>, UnprocessableContent | Unavailable>(cacheBytes)
  const sized = (document: Document<A>) => ({ value: document, bytes: size(document.value) })
  const unprocessable = (url: string, message: string) =>
    new UnprocessableContent({ error: `${field}: ${cut(url, 300)} ${message}.` })

  /**
   * Fetches and reads a document, unless its server says that `previous` is the newest. Calls `onFetched` in between.
   */
  const load = Effect.fnUntraced(function* (
    { owner, url, now }: { readonly owner: string; readonly url: string; readonly now: number },
    previous: Document<A> | undefined,
    onFetched: () => void,
  ) {
    const fetched = yield* fetching
      .take(owner, 1)
      .pipe(
        Effect.andThen(fetchDocument(url, { owner, maxBytes, timeout }, previous?.fetched)),
        Effect.provideService(SafeHttp, http),
        Effect.scoped,
      )
    if (fetched === undefined) return { ...previous!, answeredAt: now, checkedAt: now }
    onFetched()
    const { bytes, etag, lastModified } = fetched
    const value = yield* unpacking.take(owner, 1).pipe(Effect.andThen(parse(bytes)), Effect.scoped)
    return { value, fetched: { etag, lastModified }, answeredAt: now, checkedAt: now }
  })

  const refresh = (owner: string, url: string, now: number) => (previous: Document<A> | undefined) =>
    Effect.suspend(() => {
      let late: FetchFault | Unavailable = tooLate
      const loading = load({ owner, url, now }, previous, () => (late = tooBusy))
      // The time in queues counts.
      return Effect.timeoutOrElse(loading, { duration: timeout, orElse: () => Effect.fail(late) })
    }).pipe(
      Effect.catchIf(
        (error) =>
          (error instanceof Unavailable || (error instanceof FetchFault && error.isTransient)) &&
          previous !== undefined &&
          now - previous.answeredAt < staleMillis,
        () => Effect.succeed({ ...previous!, checkedAt: now }),
      ),
      Effect.mapBoth({
        onSuccess: sized,
        onFailure: (error) => (error instanceof Unavailable ? error : unprocessable(url, error.message)),
      }),
    )

  const cached = ({ url, orgId, owner = orgId ?? "" }: Source) =>
    Effect.flatMap(monotonicMillis, (now) =>
      cache.get(
        owner,
        cacheKey({ url, orgId }),
        ({ checkedAt }) => now - checkedAt < freshMillis,
        refresh(owner, url, now),
      ),
    ).pipe(Effect.map(({ value }) => value))
  const current = ({ url, orgId, owner = orgId ?? "" }: Source) =>
    Effect.map(
      Effect.flatMap(monotonicMillis, (now) => refresh(owner, url, now)(undefined)),
      ({ value }) => value.value,
    )
  return { cached, current }
})

/**
 * Documents over `SafeHttp`, cached by `cacheKey`. A document that is older than a minute is requested again with its
 * ETag or Last-Modified. While its server is down it is used for an hour. Concurrent readers share one fetch.
 */
export const layer = ({ maxBytes = 128 * MiB, timeout = "10 seconds" }: DocumentsOptions = {}) =>
  Layer.effect(
    Documents,
    Effect.gen(function* () {
      const zips = yield* ZipReader
      const fetching = slots(maxFetches, maxFetchesOfOwner, timeout)
      const unpacking = slots(maxUnpackings, maxUnpackingsOfOwner, timeout)
      const shared = { timeout, fetching, unpacking }
      const archive = yield* makeReader<Archive>({ ...archives, parse: zips.read }, { ...shared, cacheBytes: maxBytes })
      const skill = yield* makeReader<Skill>(skills, { ...shared, cacheBytes: maxBytes / 8 })
      return Documents.of({
        archive: Effect.fn("Documents.archive")(archive.cached),
        currentArchive: Effect.fn("Documents.currentArchive")(archive.current),
        skill: Effect.fn("Documents.skill")(skill.cached),
      })
    }),
  )
