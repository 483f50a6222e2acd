import { Effect, Layer, Stream } from "effect"
import { DocsIndexes, type SearchableDocs } from "#src/domain/docs/DocsIndexes.ts"
import type { Page } from "#src/domain/docs/DocsPassages.ts"
import * as DocsSearch from "#src/domain/docs/DocsSearch.ts"

/** Documentation that is indexed synchronously in this thread. */
export const searchable = (pages: ReadonlyArray<Page>): SearchableDocs => {
  const index = DocsSearch.make(pages)
  return {
    search: (question, options) => Effect.sync(() => index.search(question, options)),
    page: (slug) => Effect.sync(() => index.page(slug)),
  }
}

export const layer = Layer.succeed(DocsIndexes, {
  open: ({ pages }) => Effect.map(Stream.runCollect(pages), (batches) => searchable(batches.flat())),
})
