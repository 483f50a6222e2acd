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
/** How many bytes a document may have as it is sent (contract 8); a skill is one file of text. */
const maxZip = 20 * MiB
const maxSkill = MiB
/** How many milliseconds a document is used without asking its server for a newer one. */
const freshFor = 60_000
/** How many milliseconds a document is used after its server was last heard of. */
const staleFor = 3_600_000
/** How many documents of a kind are fetched at one time: more than one key may have under way in ten seconds. */
const fetchers = 32
/** How many are unpacked at one time: each may take 70 MiB. */
const unpackers = 2

interface Document<A> {
  readonly value: A
  readonly fetched: Omit<Fetched, "bytes">
  readonly heardAt: number
  readonly checkedAt: number
}

/** Names and descriptions are lines of the model's instructions. */
const oneLine = (text: string, length: number) => text.replace(/\s+/g, " ").trim().slice(0, length)

const skillFrom = (bytes: Uint8Array): Effect.Effect<Skill, FetchFault> => {
  const markdown = new TextDecoder().decode(bytes)
  const { matter } = splitFrontMatter(markdown)
  const fault = new FetchFault({ message: "has no front matter with name and description", passing: false })
  return Effect.try({ try: () => Yaml.parse(matter) as Record<string, unknown> | null, catch: () => fault }).pipe(
    Effect.flatMap((fields) => {
      const { name, description } = fields ?? {}
      return typeof name === "string" && typeof description === "string" && name.trim() !== ""
        ? Effect.succeed({ name: oneLine(name, 100), description: oneLine(description, 1_000), markdown })
        : Effect.fail(fault)
    }),
  )
}

/** How a document is read, and what it takes in memory. */
interface Reader<A> {
  readonly field: string
  readonly maxBytes: number
  readonly parse: (bytes: Uint8Array) => Effect.Effect<A, { readonly message: string }>
  readonly size: (value: A) => number
}

export interface DocumentsOptions {
  /** How many bytes of memory all documents together may take; default: 128 MiB. */
  readonly room?: number
  /** What a document has until it is here, redirects, connections and body included; default: 10 s (contract 8). */
  readonly timeout?: Duration.Input
}

/**
 * The key of a document in the cache. It names the org unless the url has neither a query nor a user: either may be a
 * signature or a credential, and what one org may read is not another's.
 */
const cacheKey = ({ url, orgId = "" }: Source) => {
  const { search, username, password } = new URL(url)
  return search + username + password === "" ? url : `${orgId} ${url}`
}

/**
 * Documents over `SafeHttp`, kept by `cacheKey`: one that is older than a minute is asked for again with its ETag or
 * Last-Modified, and while its server is down it is used for an hour. Fetched once for all who want it.
 */
export const layer = (options: DocumentsOptions = {}) =>
  Layer.effect(
    Documents,
    Effect.gen(function* () {
      const { room = 128 * MiB, timeout = "10 seconds" } = options
      const http = yield* SafeHttp
      const digest = yield* Digest.Digest
      const unpacking = yield* Semaphore.make(unpackers)

      const reader = Effect.fnUntraced(function* <A>({ field, maxBytes, parse, size }: Reader<A>, room: number) {
        const fetching = yield* Semaphore.make(fetchers)
        const cache = yield* BoundedCache.make<Document<A>, UnprocessableContent>(room)
        const sized = (document: Document<A>) => ({ value: document, bytes: size(document.value) })
        const named = (url: string, message: string) =>
          new UnprocessableContent({ error: `${field}: ${url.slice(0, 300)} ${message}.` })

        const refresh = (url: string, now: number) => (previous: Document<A> | undefined) =>
          fetchDocument(url, { maxBytes, timeout }, previous?.fetched).pipe(
            Effect.provideService(SafeHttp, http),
            Effect.flatMap((fetched) => {
              if (fetched === undefined) return Effect.succeed({ ...previous!, heardAt: now, checkedAt: now })
              const { bytes, etag, lastModified } = fetched
              return parse(bytes).pipe(
                unpacking.withPermits(1),
                Effect.map((value) => ({ value, fetched: { etag, lastModified }, heardAt: now, checkedAt: now })),
              )
            }),
            Effect.catchIf(
              (error) =>
                error instanceof FetchFault &&
                error.passing &&
                previous !== undefined &&
                now - previous.heardAt < staleFor,
              () => Effect.succeed({ ...previous!, checkedAt: now }),
            ),
            Effect.mapBoth({ onSuccess: sized, onFailure: ({ message }) => named(url, message) }),
            fetching.withPermits(1),
          )

        return (source: Source) =>
          Effect.flatMap(monotonicMillis, (now) =>
            cache.get(
              source.orgId ?? "",
              cacheKey(source),
              ({ checkedAt }) => now - checkedAt < freshFor,
              refresh(source.url, now),
            ),
          ).pipe(Effect.map(({ value }) => value))
      })

      const archive = yield* reader<Archive>(
        {
          field: "docsZipUrl",
          maxBytes: maxZip,
          parse: (bytes) => Effect.all({ version: digest.digestHex(Digest.sha256, bytes), pages: zipPages(bytes) }),
          size: ({ pages }) =>
            pages.reduce((sum, { slug, markdown }) => sum + 2 * (slug.length + markdown.length), 1_000),
        },
        room,
      )
      const skill = yield* reader<Skill>(
        {
          field: "skillUrls",
          maxBytes: maxSkill,
          parse: skillFrom,
          size: ({ markdown }) => 2 * markdown.length + 1_000,
        },
        room / 8,
      )
      return Documents.of({
        archive: Effect.fn("Documents.archive")(archive),
        skill: Effect.fn("Documents.skill")(skill),
      })
    }),
  )
