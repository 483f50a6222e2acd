import { Effect } from "effect"
import { Digest } from "effect/crypto"
import { StoredDocs } from "../docs/StoredDocs.ts"
import type { DocsRecord } from "../docs/ProjectDocs.ts"
import type { ChatRequest } from "./Chat.ts"
import { DocsIndexes, inMemory } from "./DocsIndexes.ts"
import type { Page } from "./DocsPassages.ts"
import { type Archive, Documents } from "./Documents.ts"

/** Whose documentation a chat uses. */
export interface DocsOwner {
  /** The org of the caller; `undefined` without a key. */
  readonly orgId: string | undefined
  /** Whose share of memory and fetches is used: the org, or the client without a key. */
  readonly owner: string
  /** The stored documentation of the caller's project. */
  readonly stored: DocsRecord | undefined
}

/** Makes the function that opens what a chat answers from: the documentation and the skills of a request. */
export const makeChatDocs = Effect.gen(function* () {
  const documents = yield* Documents
  const digest = yield* Digest.Digest
  const indexes = yield* DocsIndexes
  const { sourceOf } = yield* StoredDocs

  /** The digest of the pages. Reads page by page: one text of all pages would double their memory. */
  const versionOf = (pages: ReadonlyArray<Page>) =>
    Effect.reduce(
      pages,
      () => "",
      (version, { slug, markdown }) =>
        digest.digestHex(Digest.sha256, new TextEncoder().encode(`${version} ${slug.length} ${slug}${markdown}`)),
    )

  /** Opens the documentation until the scope closes. Returns `undefined` when there is none. */
  const open = Effect.fn("Chats.index")(function* (
    { owner, stored }: DocsOwner,
    pages: ReadonlyArray<Page>,
    archive: Archive | undefined,
  ) {
    if (pages.length === 0 && archive === undefined) {
      const source = stored && sourceOf(stored)
      return source && (yield* indexes.open(source))
    }
    const version = `${yield* versionOf(pages)} ${archive?.version ?? ""}`
    const slugs = new Set(pages.map(({ slug }) => slug))
    const others = (archive?.pages ?? []).filter(({ slug }) => !slugs.has(slug))
    return yield* indexes.open(inMemory(owner, version, [...pages, ...others]))
  })

  return Effect.fnUntraced(function* (request: ChatRequest, of: DocsOwner) {
    const { docsPages = {}, docsUrl = of.stored?.docsUrl ?? undefined, docsZipUrl, skillUrls = [] } = request
    const { orgId, owner } = of
    const [archive, skills] = yield* Effect.all(
      [
        docsZipUrl === undefined ? Effect.succeed(undefined) : documents.archive({ url: docsZipUrl, orgId, owner }),
        Effect.forEach(new Set(skillUrls), (url) => documents.skill({ url, orgId, owner }), { concurrency: 4 }),
      ],
      { concurrency: 2 },
    )
    const pages = Object.entries(docsPages).map(([slug, markdown]) => ({ slug, markdown }))
    return { docs: yield* open(of, pages, archive), docsUrl, skills }
  })
})
