import { Context, type Effect, type Scope } from "effect"
import type { Page, Passage } from "./DocsPassages.ts"
import type { SearchOptions } from "./DocsSearch.ts"
import type { Unavailable, UnprocessableContent } from "../Errors.ts"

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
  readonly pages: ReadonlyArray<Page>
}

/** The indexes of documentation. Their memory is limited, and owners share it. */
export class DocsIndexes extends Context.Service<
  DocsIndexes,
  {
    /** Indexes documentation, and keeps it until the scope closes. Fails when it is too large, or memory is not free in time. */
    readonly open: (
      source: DocsSource,
    ) => Effect.Effect<SearchableDocs, Unavailable | UnprocessableContent, Scope.Scope>
  }
>()("gatehouse/domain/chat/DocsIndexes") {}
