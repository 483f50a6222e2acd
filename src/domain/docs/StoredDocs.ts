import { Context, DateTime, Effect, Latch, Layer, Option, Stream } from "effect"
import type { Unavailable } from "../Errors.ts"
import { CurrentPrincipal, managedScope, noCredential, OrgScope } from "../Principal.ts"
import { AuditLog } from "../audit/AuditLog.ts"
import { type DocsSource, DocsIndexes } from "./DocsIndexes.ts"
import { encodedSlug, type Page, pageUrl } from "./DocsPassages.ts"
import { type DocsRecord, type PutProjectDocs, toProjectDocs } from "./ProjectDocs.ts"
import { docsNotFound, type DocsOf, ProjectDocsRepository, type ListedPage } from "./ProjectDocsRepository.ts"
import { ChatRateLimits } from "./ChatRateLimits.ts"
import { docsTools } from "./chatTools.ts"

/** Documentation of which something is stored. */
export interface ReadableDocs extends Pick<DocsRecord, "orgId" | "projectId" | "projectName" | "docsUrl"> {
  /** What a search opens. */
  readonly source: DocsSource
  readonly edition: string
}

/** A URL as the audit log shows it: without its query, which can be a credential. */
const withoutQuery = (url: string) => url.split(/[?#]/, 1)[0]!

const toDocs = (record: DocsRecord) => toProjectDocs({ ...record, docsZipUrl: record.docsZipUrl ?? "" })

/** The documentation that is stored with projects. */
export class StoredDocs extends Context.Service<StoredDocs>()("gatehouse/domain/StoredDocs", {
  make: Effect.gen(function* () {
    const repository = yield* ProjectDocsRepository
    const audit = yield* AuditLog
    const { wake } = yield* DocsWakeup

    const pagesOf = (docs: DocsOf, edition: string): Stream.Stream<ReadonlyArray<Page>, Unavailable> =>
      Stream.paginate(undefined as string | undefined, (after) =>
        Effect.map(repository.pages(docs, edition, after), (pages) => [
          [pages],
          pages.length === 0 ? Option.none() : Option.some(pages.at(-1)!.slug),
        ]),
      )

    /** What a chat searches; `undefined` while nothing is stored. */
    const sourceOf = ({ orgId, projectId, stored }: DocsRecord): DocsSource | undefined =>
      stored === null
        ? undefined
        : {
            owner: orgId,
            version: `stored ${projectId} ${stored.edition}`,
            characters: stored.characters,
            textBytes: stored.bytes,
            pages: pagesOf({ orgId, projectId }, stored.edition),
          }

    const recordFor = Effect.fnUntraced(function* (projectId: string) {
      const { open, principal } = yield* CurrentPrincipal
      if (principal._tag === "ProjectKey") {
        const { orgId } = principal
        return principal.projectId === projectId
          ? yield* repository.find(OrgScope.OneOrg({ orgId }), projectId)
          : yield* docsNotFound()
      }
      if (principal._tag !== "Anonymous" || open) return yield* repository.find(yield* managedScope, projectId)
      const record = yield* repository
        .find(OrgScope.EveryOrg(), projectId)
        .pipe(Effect.catchTag("NotFound", () => Effect.fail(noCredential())))
      return record.isPublic ? record : yield* noCredential()
    })

    return {
      get: Effect.fn("StoredDocs.get")(function* (projectId: string) {
        return toDocs(yield* repository.find(yield* managedScope, projectId))
      }),

      /** Sets the documentation of a project, which is then fetched in the background. */
      put: Effect.fn("StoredDocs.put")(function* (projectId: string, asked: PutProjectDocs) {
        const scope = yield* managedScope
        const settings = { docsUrl: null, public: false, keepQuestions: false, ...asked }
        const details = { ...settings, docsZipUrl: withoutQuery(settings.docsZipUrl) }
        const entry = yield* audit.entry({ action: "docs.update", target: projectId, details })
        const record = yield* repository.put(scope, projectId, settings, yield* DateTime.now, entry)
        yield* wake
        return toDocs(record)
      }),

      /** Removes the documentation of a project, and the questions of its readers. */
      remove: Effect.fn("StoredDocs.remove")(function* (projectId: string) {
        const scope = yield* managedScope
        const entry = yield* audit.entry({ action: "docs.delete", target: projectId, details: {} })
        yield* repository.remove(scope, projectId, yield* DateTime.now, entry)
        yield* wake
      }),

      /** The documentation of a project that the current principal manages. */
      ofManaged: (projectId: string) => Effect.flatMap(managedScope, (scope) => repository.find(scope, projectId)),

      /** The documentation of the project of a key; `undefined` when it has none. */
      ofProject: ({ orgId, projectId }: DocsOf) =>
        repository
          .find(OrgScope.OneOrg({ orgId }), projectId)
          .pipe(Effect.catchTag("NotFound", () => Effect.undefined)),

      sourceOf,

      /**
       * The stored documentation for a reader: a key of the project, its org's key, the administrator, and anyone when
       * it is public. Without a credential, documentation that is not public is a 401, as is what does not exist.
       */
      read: Effect.fn("StoredDocs.read")(function* (projectId: string) {
        const record = yield* recordFor(projectId)
        const source = sourceOf(record)
        if (record.stored === null || source === undefined) return yield* docsNotFound()
        const { docsUrl, orgId, projectName } = record
        return { orgId, projectId, projectName, docsUrl, source, edition: record.stored.edition }
      }),

      list: Effect.fn("StoredDocs.list")((docs: ReadableDocs) => repository.listPages(docs, docs.edition)),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}

/** Markdown's special characters in a title. */
const escaped = (text: string) => text.replaceAll(/[[\]\\]/g, "\\$&")

const line = (docsUrl: string | null) => (page: ListedPage) => {
  const target = docsUrl === null ? encodedSlug(page.slug) : pageUrl(page.slug, docsUrl)
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

/** Wakes the worker that fetches documentation, when an owner of this replica has changed it. */
export class DocsWakeup extends Context.Service<DocsWakeup>()("gatehouse/domain/DocsWakeup", {
  make: Effect.sync(() => {
    const latch = Latch.makeUnsafe()
    return {
      wake: Effect.asVoid(latch.open),
      /** Waits for the next `wake`, or returns at once after one that nobody has waited for. */
      wait: Effect.andThen(latch.await, Effect.asVoid(latch.close)),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}
