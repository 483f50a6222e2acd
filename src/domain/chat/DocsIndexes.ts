import { Context, type Effect, type Scope } from "effect"
import type { Page, Passage } from "./DocsPassages.ts"
import type { SearchOptions } from "./DocsSearch.ts"
import type { Unavailable, UnprocessableContent } from "../Errors.ts"

/** Documentation that is searched and read. Fails when its index was lost. */
export interface SearchableDocs {
  /** The best passages for a question, best first; those of the page being read count more. */
  readonly search: (question: string, options: SearchOptions) => Effect.Effect<ReadonlyArray<Passage>, Unavailable>
  /** A page by its slug; a slash at either end, or a file's ending, does not matter. */
  readonly page: (slug: string) => Effect.Effect<Page | undefined, Unavailable>
}

export interface DocsSource {
  /** Who shares the memory: an org, or a client without a key. */
  readonly owner: string
  /** The digest of the pages: one version is indexed once. */
  readonly version: string
  readonly pages: ReadonlyArray<Page>
}

/** The indexes of documentation. All of them together take a bounded amount of memory, which owners share. */
export class DocsIndexes extends Context.Service<
  DocsIndexes,
  {
    /** Documentation, indexed, until the scope closes. Fails when it is too large, or there is no memory for it in time. */
    readonly open: (
      source: DocsSource,
    ) => Effect.Effect<SearchableDocs, Unavailable | UnprocessableContent, Scope.Scope>
  }
>()("gatehouse/domain/chat/DocsIndexes") {}
