import { Context, DateTime, Effect, Latch, Layer, Option, Stream } from "effect"
import type { Forbidden, LimitReached, NotFound, TooManyRequests, Unauthorized, Unavailable } from "../Errors.ts"
import { CurrentPrincipal, managedScope, noCredential, OrgScope } from "../Principal.ts"
import { AuditLog } from "../audit/AuditLog.ts"
import type { DocsSource } from "./DocsIndexes.ts"
import type { Page } from "./DocsPassages.ts"
import { type DocsRecord, type ProjectDocs, type PutProjectDocs, toProjectDocs } from "./ProjectDocs.ts"
import { docsNotFound, type DocsOf, type ListedPage, ProjectDocsRepository } from "./ProjectDocsRepository.ts"

/** Documentation of which something is stored. */
export interface ReadableDocs extends Pick<DocsRecord, "orgId" | "projectId" | "projectName" | "docsUrl"> {
  /** What a search opens. */
  readonly source: DocsSource
  readonly edition: string
}

type Refused = Unauthorized | Forbidden | Unavailable

/** A URL as the audit log shows it: without its query, which can be a credential. */
const withoutQuery = (url: string) => url.split(/[?#]/, 1)[0]!

const toDocs = (record: DocsRecord) => toProjectDocs({ ...record, docsZipUrl: record.docsZipUrl ?? "" })

/** The documentation that is stored with projects. */
export class StoredDocs extends Context.Service<
  StoredDocs,
  {
    readonly get: (projectId: string) => Effect.Effect<ProjectDocs, NotFound | Refused, CurrentPrincipal>
    /** Sets the documentation of a project, which is then fetched in the background. */
    readonly put: (
      projectId: string,
      settings: PutProjectDocs,
    ) => Effect.Effect<ProjectDocs, NotFound | LimitReached | TooManyRequests | Refused, CurrentPrincipal>
    /** Removes the documentation of a project, and the questions of its readers. */
    readonly remove: (projectId: string) => Effect.Effect<void, NotFound | TooManyRequests | Refused, CurrentPrincipal>

    /** The documentation of the project of a key; `undefined` when it has none. */
    readonly ofProject: (docs: DocsOf) => Effect.Effect<DocsRecord | undefined, Unavailable>
    /** The documentation of a project that the current principal manages. */
    readonly ofManaged: (projectId: string) => Effect.Effect<DocsRecord, NotFound | Refused, CurrentPrincipal>
    /** What a chat searches; `undefined` while nothing is stored. */
    readonly sourceOf: (docs: DocsRecord) => DocsSource | undefined
    /**
     * The stored documentation for a reader: a key of the project, its org's key, the administrator, and anyone when it
     * is public. Without a credential, documentation that is not public is a 401, as is what does not exist.
     */
    readonly read: (projectId: string) => Effect.Effect<ReadableDocs, NotFound | Refused, CurrentPrincipal>
    readonly list: (docs: ReadableDocs) => Effect.Effect<ReadonlyArray<ListedPage>, Unavailable>
  }
>()("gatehouse/domain/StoredDocs") {
  static readonly layer = Layer.effect(
    StoredDocs,
    Effect.gen(function* () {
      const repository = yield* ProjectDocsRepository
      const audit = yield* AuditLog
      const { wake } = yield* DocsWakeup

      const get = Effect.fn("StoredDocs.get")(function* (projectId: string) {
        return toDocs(yield* repository.find(yield* managedScope, projectId))
      })

      const put = Effect.fn("StoredDocs.put")(function* (projectId: string, asked: PutProjectDocs) {
        const scope = yield* managedScope
        const settings = { docsUrl: null, public: false, keepQuestions: false, ...asked }
        const details = { ...settings, docsZipUrl: withoutQuery(settings.docsZipUrl) }
        const entry = yield* audit.entry({ action: "docs.update", target: projectId, details })
        const record = yield* repository.put(scope, projectId, settings, yield* DateTime.now, entry)
        yield* wake
        return toDocs(record)
      })

      const remove = Effect.fn("StoredDocs.remove")(function* (projectId: string) {
        const scope = yield* managedScope
        const entry = yield* audit.entry({ action: "docs.delete", target: projectId, details: {} })
        yield* repository.remove(scope, projectId, yield* DateTime.now, entry)
        yield* wake
      })

      const ofProject = ({ orgId, projectId }: DocsOf) =>
        repository.find(OrgScope.OneOrg({ orgId }), projectId).pipe(Effect.catchTag("NotFound", () => Effect.undefined))

      const ofManaged = (projectId: string) =>
        Effect.flatMap(managedScope, (scope) => repository.find(scope, projectId))

      const pagesOf = (docs: DocsOf, edition: string): Stream.Stream<ReadonlyArray<Page>, Unavailable> =>
        Stream.paginate(undefined as string | undefined, (after) =>
          Effect.map(repository.pages(docs, edition, after), (pages) => [
            [pages],
            pages.length === 0 ? Option.none() : Option.some(pages.at(-1)!.slug),
          ]),
        )

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

      const read = Effect.fn("StoredDocs.read")(function* (projectId: string) {
        const record = yield* recordFor(projectId)
        const source = sourceOf(record)
        if (record.stored === null || source === undefined) return yield* docsNotFound()
        const { docsUrl, orgId, projectName } = record
        return { orgId, projectId, projectName, docsUrl, source, edition: record.stored.edition }
      })

      const list = Effect.fn("StoredDocs.list")((docs: ReadableDocs) => repository.listPages(docs, docs.edition))

      return StoredDocs.of({ get, put, remove, ofManaged, ofProject, sourceOf, read, list })
    }),
  )
}

/** Wakes the worker that fetches documentation, when an owner of this replica has changed it. */
export class DocsWakeup extends Context.Service<
  DocsWakeup,
  {
    readonly wake: Effect.Effect<void>
    /** Waits for the next `wake`, or returns at once after one that nobody has waited for. */
    readonly wait: Effect.Effect<void>
  }
>()("gatehouse/domain/DocsWakeup") {
  static readonly layer = Layer.sync(DocsWakeup, () => {
    const latch = Latch.makeUnsafe()
    return { wake: Effect.asVoid(latch.open), wait: Effect.andThen(latch.await, Effect.asVoid(latch.close)) }
  })
}
