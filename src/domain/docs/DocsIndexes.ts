import { Context, type Effect, type Scope, Stream } from "effect"
import type { Unavailable, UnprocessableContent } from "../Errors.ts"
import type { Page, Passage } from "./DocsPassages.ts"
import { type SearchOptions, textBytes, textCharacters } from "./DocsSearch.ts"

/** Documentation to search and to read. Fails when the index was lost. */
export interface SearchableDocs {
  /** The best passages for a question, best first; none when nothing fits. Those of the reader's page rank higher. */
  readonly search: (question: string, options: SearchOptions) => Effect.Effect<ReadonlyArray<Passage>, Unavailable>
  /** A page by its slug. Ignores slashes at both ends, and the file extension. */
  readonly page: (slug: string) => Effect.Effect<Page | undefined, Unavailable>
}

export interface DocsSource {
  /** The org, or the client without a key, whose share of the memory is used. */
  readonly owner: string
  /** The digest of the pages. A version is indexed once. */
  readonly version: string
  /** The length of the text of all pages. */
  readonly characters: number
  /** The memory of that text, in bytes. */
  readonly textBytes: number
  /** The pages in batches. They are read when a version is indexed. */
  readonly pages: Stream.Stream<ReadonlyArray<Page>, Unavailable>
}

/** The characters of a batch of pages; each batch holds up the other requests while it is copied. */
const batchLength = 256 * 1024

function* batchesOf(pages: ReadonlyArray<Page>) {
  let batch: Array<Page> = []
  let length = 0
  for (const page of pages) {
    batch.push(page)
    length += page.markdown.length
    if (length < batchLength) continue
    yield batch
    batch = []
    length = 0
  }
  yield batch
}

/** Documentation that is in memory. */
export const inMemory = (owner: string, version: string, pages: ReadonlyArray<Page>): DocsSource => ({
  owner,
  version,
  characters: textCharacters(pages),
  textBytes: textBytes(pages),
  pages: Stream.fromIterable({ [Symbol.iterator]: () => batchesOf(pages) }, { chunkSize: 1 }),
})

/** The indexes of documentation. Their memory is limited, and owners share it. */
export class DocsIndexes extends Context.Service<
  DocsIndexes,
  {
    /**
     * Indexes documentation, and keeps it until the scope closes. Fails when it is too large, or memory is not free in
     * time.
     */
    readonly open: (
      source: DocsSource,
    ) => Effect.Effect<SearchableDocs, Unavailable | UnprocessableContent, Scope.Scope>
  }
>()("gatehouse/domain/docs/DocsIndexes") {}
