import { Context, type DateTime, type Effect } from "effect"
import type { AuditEntry } from "../audit/AuditEntry.ts"
import type { Page } from "./DocsPassages.ts"
import { type LimitReached, NotFound, type Unavailable } from "../Errors.ts"
import type { OrgScope } from "../Principal.ts"
import type { DocsRecord, FetchFailure, PutProjectDocs, StoredEdition } from "./ProjectDocs.ts"

export const docsNotFound = () => new NotFound({ error: "The project has no documentation." })

/** The documentation of one project. */
export interface DocsOf {
  readonly orgId: string
  readonly projectId: string
}

/** The documentation that a worker works at, and the id of its lease. A worker whose lease ran out stores nothing. */
export interface LeasedDocs extends DocsOf {
  readonly lease: string
}

/** A page to store. */
export interface NewPage extends Page {
  readonly title: string
  /** Its description, or an empty text. */
  readonly description: string
}

export type ListedPage = Omit<NewPage, "markdown">

/** Stored documentation of projects. */
export class ProjectDocsRepository extends Context.Service<
  ProjectDocsRepository,
  {
    /** The documentation of a project. Fails when there is no such project, or it has none. */
    readonly find: (scope: OrgScope, projectId: string) => Effect.Effect<DocsRecord, NotFound | Unavailable>
    /** Sets the documentation of a project. It will be fetched, even if nothing has changed. */
    readonly put: (
      scope: OrgScope,
      projectId: string,
      settings: Required<PutProjectDocs>,
      now: DateTime.Utc,
      entry: AuditEntry,
    ) => Effect.Effect<DocsRecord, NotFound | LimitReached | Unavailable>
    /** Removes the documentation of a project from every read. Its pages and questions are erased in the background. */
    readonly remove: (
      scope: OrgScope,
      projectId: string,
      now: DateTime.Utc,
      entry: AuditEntry,
    ) => Effect.Effect<void, NotFound | Unavailable>

    /** The documentation of all orgs after `after`, also what is removed but not erased, by org and project. */
    readonly scan: (after: DocsOf | undefined, limit: number) => Effect.Effect<ReadonlyArray<DocsRecord>, Unavailable>
    /**
     * Takes a lease until `until`. Returns `false` when another worker has one, or the owner has changed the settings.
     */
    readonly claim: (
      docs: LeasedDocs,
      revision: number,
      now: DateTime.Utc,
      until: DateTime.Utc,
    ) => Effect.Effect<boolean, Unavailable>
    /**
     * Adds pages to the edition with the id of the lease, which nobody reads yet. Returns `false` without the lease.
     */
    readonly addPages: (docs: LeasedDocs, pages: ReadonlyArray<NewPage>) => Effect.Effect<boolean, Unavailable>
    /**
     * Replaces the stored edition, counts its bytes, and ends the lease. Does nothing without the lease. Fails when the
     * org has no room for its bytes.
     */
    readonly store: (docs: LeasedDocs, edition: StoredEdition) => Effect.Effect<void, LimitReached | Unavailable>
    /** Records a failed fetch, and ends the lease. */
    readonly fail: (docs: LeasedDocs, failure: FetchFailure) => Effect.Effect<void, Unavailable>
    /**
     * Erases up to `limit` rows that nobody reads: pages of other editions, and everything of documentation that was
     * removed. Returns the number of rows; below `limit` there are no more, and removed documentation is gone.
     */
    readonly clean: (docs: LeasedDocs, limit: number) => Effect.Effect<number, Unavailable>
    /** Ends the lease. */
    readonly release: (docs: LeasedDocs) => Effect.Effect<void, Unavailable>

    /** Pages of an edition after a slug, in the order of their slugs: a batch of some MiB. None: there are no more. */
    readonly pages: (
      docs: DocsOf,
      edition: string,
      after: string | undefined,
    ) => Effect.Effect<ReadonlyArray<Page>, Unavailable>
    /** All pages of an edition without their text, in the order of their slugs. */
    readonly listPages: (docs: DocsOf, edition: string) => Effect.Effect<ReadonlyArray<ListedPage>, Unavailable>
  }
>()("gatehouse/domain/ProjectDocs/ProjectDocsRepository") {}
