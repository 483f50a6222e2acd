import { type Duration, Effect, Layer, Semaphore } from "effect"
import { Digest } from "effect/crypto"
import { Yaml } from "effect/encoding"
import * as BoundedCache from "../../domain/BoundedCache.ts"
import { splitFrontMatter } from "../../domain/chat/DocsPassages.ts"
import { type Archive, Documents, type Skill, type Source } from "../../domain/chat/Documents.ts"
import { UnprocessableContent } from "../../domain/Errors.ts"
import { monotonicMillis } from "../../domain/monotonicMillis.ts"
import { FetchFault, type Fetched, fetchDocument } from "./fetchDocument.ts"
import { SafeHttp } from "../net/SafeHttp.ts"
import { zipPages } from "./zipPages.ts"

const MiB = 1024 * 1024
/** Limits of a document's bytes as sent (contract 8). A skill is one text file. */
const maxZipBytes = 20 * MiB
const maxSkillBytes = MiB
/** A document is used this long before its server is asked for a newer one. */
const freshMillis = 60_000
/** While its server is down, a document is used this long after the last answer. */
const staleMillis = 3_600_000
/** Limit of concurrent fetches of each kind of document: more than one key may have in flight in ten seconds. */
const maxFetches = 32
/** Limit of concurrent unpackings: each may take 70 MiB of memory. */
const maxUnpackings = 2

interface Document<A> {
  readonly value: A
  readonly fetched: Omit<Fetched, "bytes">
  /** When the server last answered, in monotonic milliseconds. */
  readonly answeredAt: number
  /** When the server was last asked. */
  readonly checkedAt: number
}

/** Shortens a text to one line, because names and descriptions are lines of the model's instructions. */
const oneLine = (text: string, length: number) => text.replace(/\s+/g, " ").trim().slice(0, length)

const skillFrom = (bytes: Uint8Array): Effect.Effect<Skill, FetchFault> => {
  const markdown = new TextDecoder().decode(bytes)
  const { matter } = splitFrontMatter(markdown)
  const fault = new FetchFault({ message: "has no front matter with name and description", isTransient: false })
  return Effect.try({ try: () => Yaml.parse(matter) as Record<string, unknown> | null, catch: () => fault }).pipe(
    Effect.flatMap((fields) => {
      const { name, description } = fields ?? {}
      return typeof name === "string" && typeof description === "string" && name.trim() !== ""
        ? Effect.succeed({ name: oneLine(name, 100), description: oneLine(description, 1_000), markdown })
        : Effect.fail(fault)
    }),
  )
}

/** A kind of document. */
interface Kind<A> {
  /** The request field of its URLs, for errors. */
  readonly field: string
  readonly maxBytes: number
  readonly parse: (bytes: Uint8Array) => Effect.Effect<A, { readonly message: string }>
  /** The memory of a value in bytes. */
  readonly size: (value: A) => number
}

export interface DocumentsOptions {
  /** Limit of the memory of all archives in bytes. Skills may take an eighth of it in addition. Default: 128 MiB. */
  readonly maxBytes?: number
  /** Deadline of a fetch, redirects and body included. Default: 10 s (contract 8). */
  readonly timeout?: Duration.Input
}

/**
 * The cache key of a document. It contains the org if the URL has a query or a user: either may be a credential, and orgs
 * must not share what needs one.
 */
const cacheKey = ({ url, orgId = "" }: Source) => {
  const { search, username, password } = new URL(url)
  return search + username + password === "" ? url : `${orgId} ${url}`
}

const archives: Omit<Kind<Archive>, "parse"> = {
  field: "docsZipUrl",
  maxBytes: maxZipBytes,
  size: ({ pages }) => pages.reduce((sum, { slug, markdown }) => sum + 2 * (slug.length + markdown.length), 1_000),
}

const skills: Kind<Skill> = {
  field: "skillUrls",
  maxBytes: maxSkillBytes,
  parse: skillFrom,
  size: ({ markdown }) => 2 * markdown.length + 1_000,
}

/** Makes the function that returns documents of one kind, from a cache of `cacheBytes` or from their servers. */
const makeReader = Effect.fnUntraced(function* <A>(
  { field, maxBytes, parse, size }: Kind<A>,
  options: { readonly cacheBytes: number; readonly timeout: Duration.Input; readonly unpacking: Semaphore.Semaphore },
) {
  const { cacheBytes, timeout, unpacking } = options
  const http = yield* SafeHttp
  const fetching = yield* Semaphore.make(maxFetches)
  const cache = yield* BoundedCache.make<Document<A>, UnprocessableContent>(cacheBytes)
  const sized = (document: Document<A>) => ({ value: document, bytes: size(document.value) })
  const unprocessable = (url: string, message: string) =>
    new UnprocessableContent({ error: `${field}: ${url.slice(0, 300)} ${message}.` })

  const refresh = (url: string, now: number) => (previous: Document<A> | undefined) =>
    fetchDocument(url, { maxBytes, timeout }, previous?.fetched).pipe(
      Effect.provideService(SafeHttp, http),
      Effect.flatMap((fetched) => {
        if (fetched === undefined) return Effect.succeed({ ...previous!, answeredAt: now, checkedAt: now })
        const { bytes, etag, lastModified } = fetched
        return parse(bytes).pipe(
          unpacking.withPermits(1),
          Effect.map((value) => ({ value, fetched: { etag, lastModified }, answeredAt: now, checkedAt: now })),
        )
      }),
      Effect.catchIf(
        (error) =>
          error instanceof FetchFault &&
          error.isTransient &&
          previous !== undefined &&
          now - previous.answeredAt < staleMillis,
        () => Effect.succeed({ ...previous!, checkedAt: now }),
      ),
      Effect.mapBoth({ onSuccess: sized, onFailure: ({ message }) => unprocessable(url, message) }),
      fetching.withPermits(1),
    )

  return (source: Source) =>
    Effect.flatMap(monotonicMillis, (now) =>
      cache.get(
        source.orgId ?? "",
        cacheKey(source),
        ({ checkedAt }) => now - checkedAt < freshMillis,
        refresh(source.url, now),
      ),
    ).pipe(Effect.map(({ value }) => value))
})

/**
 * Documents over `SafeHttp`, cached by `cacheKey`. A document that is older than a minute is requested again with its ETag or
 * Last-Modified. While its server is down it is used for an hour. Concurrent readers share one fetch.
 */
export const layer = ({ maxBytes = 128 * MiB, timeout = "10 seconds" }: DocumentsOptions = {}) =>
  Layer.effect(
    Documents,
    Effect.gen(function* () {
      const digest = yield* Digest.Digest
      const unpacking = yield* Semaphore.make(maxUnpackings)
      const parseArchive = (bytes: Uint8Array) =>
        Effect.all({ version: digest.digestHex(Digest.sha256, bytes), pages: zipPages(bytes) })
      const archive = yield* makeReader<Archive>(
        { ...archives, parse: parseArchive },
        { cacheBytes: maxBytes, timeout, unpacking },
      )
      const skill = yield* makeReader<Skill>(skills, { cacheBytes: maxBytes / 8, timeout, unpacking })
      return Documents.of({
        archive: Effect.fn("Documents.archive")(archive),
        skill: Effect.fn("Documents.skill")(skill),
      })
    }),
  )
