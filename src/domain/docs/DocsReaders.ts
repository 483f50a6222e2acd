import { Context, Effect, Layer } from "effect"
import { ChatRateLimits } from "./ChatRateLimits.ts"
import { docsTools } from "./chatTools.ts"
import { DocsIndexes } from "./DocsIndexes.ts"
import { pageUrl } from "./DocsPassages.ts"
import { CurrentPrincipal } from "../Principal.ts"
import type { ListedPage } from "./ProjectDocsRepository.ts"
import { type ReadableDocs, StoredDocs } from "./StoredDocs.ts"

/** Markdown's special characters in a title. */
const escaped = (text: string) => text.replaceAll(/[[\]\\]/g, "\\$&")

const line = (docsUrl: string | null) => (page: ListedPage) => {
  const target = docsUrl === null ? encodeURI(page.slug) : pageUrl(page.slug, docsUrl)
  return `- [${escaped(page.title)}](${target})${page.description === "" ? "" : `: ${page.description}`}`
}

/** The pages of documentation as llms.txt (llmstxt.org). */
const llmsText = ({ docsUrl, projectName }: ReadableDocs, pages: ReadonlyArray<ListedPage>): string =>
  [`# ${projectName.replaceAll(/\s+/g, " ")}`, "", "## Docs", "", ...pages.map(line(docsUrl)), ""].join("\n")

/** Reads the stored documentation of projects for assistants. Each use takes one of the chats of its caller. */
export class DocsReaders extends Context.Service<DocsReaders>()("gatehouse/domain/DocsReaders", {
  make: Effect.gen(function* () {
    const stored = yield* StoredDocs
    const limits = yield* ChatRateLimits
    const indexes = yield* DocsIndexes

    return {
      /** The documentation of a project, if the caller may read it. */
      find: Effect.fn("DocsReaders.find")(function* (projectId: string, address: string) {
        const { principal } = yield* CurrentPrincipal
        yield* limits.take(principal, address)
        return yield* stored.read(projectId)
      }),

      /** Uses a tool; `undefined` when there is no such tool. */
      use: Effect.fn("DocsReaders.use")(function* (docs: ReadableDocs, tool: string, argument: string) {
        const opened = yield* indexes.open(docs.source)
        const tools = docsTools({ docs: opened, docsUrl: docs.docsUrl ?? undefined })
        return yield* tools.find(({ name }) => name === tool)?.run(argument) ?? Effect.undefined
      }, Effect.scoped),

      /** The list of pages, as llms.txt. */
      list: (docs: ReadableDocs) => Effect.map(stored.list(docs), (pages) => llmsText(docs, pages)),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}
