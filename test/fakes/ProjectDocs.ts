import { DateTime, Effect, Layer } from "effect"
import type { DocsRecord } from "#src/domain/docs/ProjectDocs.ts"
import {
  docsNotFound,
  type LeasedDocs,
  type NewPage,
  ProjectDocsRepository,
} from "#src/domain/docs/ProjectDocsRepository.ts"
import { projectNotFound } from "#src/domain/projects/Projects.ts"
import { findOr, inScope, keepEntry, liveProjects, needRoom, World } from "./World.ts"

/** The documentation of a project; its project and deployment are looked up. */
export interface FakeDocs extends Omit<DocsRecord, "projectName" | "deployment"> {
  readonly lease: string | null
  readonly pages: ReadonlyMap<string, ReadonlyArray<NewPage>>
}

/** Documentation of projects in memory. */
export const layer = Layer.effect(
  ProjectDocsRepository,
  Effect.map(World, (world) => {
    const { deployments, docs, used } = world
    const others = used.get("storedBytes")
    used.set("storedBytes", (orgId) => {
      const own = [...docs.values()].filter((one) => one.orgId === orgId)
      return own.reduce((sum, { stored }) => sum + (stored?.bytes ?? 0), others?.(orgId) ?? 0)
    })

    const projectOf = (projectId: string) => liveProjects(world).find(({ row }) => row.projectId === projectId)?.row
    const recordOf = ({ lease: _lease, pages: _pages, ...row }: FakeDocs): ReadonlyArray<DocsRecord> => {
      const project = projectOf(row.projectId)
      if (project === undefined) return []
      const current = deployments.get(project.currentDeploymentId ?? "")
      const deployment = current === undefined ? null : { id: current.id, sha: current.sha }
      return [{ ...row, projectName: project.name, deployment }]
    }
    const held = ({ lease, projectId }: LeasedDocs) => {
      const found = docs.get(projectId)
      return found?.lease === lease ? found : undefined
    }
    const change = (projectId: string, changes: Partial<FakeDocs>) => {
      const found = docs.get(projectId)
      if (found !== undefined) docs.set(projectId, { ...found, ...changes })
    }
    const ended = { lease: null, leasedUntil: null }
    const find: ProjectDocsRepository["Service"]["find"] = (scope, projectId) =>
      Effect.suspend(() => {
        const found = docs.get(projectId)
        const isFound = found !== undefined && found.docsZipUrl !== null && inScope(scope, found.orgId)
        return findOr(isFound ? recordOf(found)[0] : undefined, docsNotFound)
      })

    return ProjectDocsRepository.of({
      find,
      put: Effect.fnUntraced(function* (scope, projectId, { public: isPublic, ...settings }, now, entry) {
        const project = projectOf(projectId)
        if (project === undefined || !inScope(scope, project.orgId)) return yield* projectNotFound()
        keepEntry(world, project.orgId, entry)
        const before = docs.get(projectId)
        const removed = [...world.questions.values()].filter((one) => one.projectId === projectId)
        if (before?.docsZipUrl === null) for (const { id } of removed) world.questions.delete(id)
        docs.set(projectId, {
          orgId: project.orgId,
          projectId,
          stored: null,
          failure: null,
          uncleanSince: null,
          pages: new Map(),
          ...before,
          ...settings,
          ...ended,
          isPublic,
          revision: (before?.revision ?? 0) + 1,
          updatedAt: now,
        })
        return yield* find(scope, projectId)
      }),
      remove: Effect.fnUntraced(function* (scope, projectId, now, entry) {
        const { orgId, revision } = yield* find(scope, projectId)
        keepEntry(world, orgId, entry)
        const off = { docsZipUrl: null, docsUrl: null, isPublic: false, keepQuestions: false, stored: null }
        change(projectId, { ...off, ...ended, revision: revision + 1, updatedAt: now })
      }),

      scan: (after, limit) =>
        Effect.sync(() => {
          const key = (one: { readonly orgId: string; readonly projectId: string }) => `${one.orgId} ${one.projectId}`
          const rows = [...docs.values()].filter((one) => after === undefined || key(one) > key(after))
          return rows
            .sort((a, b) => (key(a) < key(b) ? -1 : 1))
            .flatMap(recordOf)
            .slice(0, limit)
        }),
      claim: ({ lease, projectId }, revision, now, until) =>
        Effect.sync(() => {
          const found = docs.get(projectId)
          if (found === undefined || found.revision !== revision) return false
          if (found.leasedUntil !== null && DateTime.isGreaterThan(found.leasedUntil, now)) return false
          change(projectId, { lease, leasedUntil: until, uncleanSince: now })
          return true
        }),
      addPages: (own, pages) =>
        Effect.sync(() => {
          const found = held(own)
          if (found === undefined) return false
          const added = [...(found.pages.get(own.lease) ?? []), ...pages]
          change(own.projectId, { pages: new Map(found.pages).set(own.lease, added) })
          return true
        }),
      store: Effect.fnUntraced(function* (own, edition) {
        const found = held(own)
        if (found === undefined) return
        yield* needRoom(world, "storedBytes", own.orgId, edition.bytes - (found.stored?.bytes ?? 0))
        change(own.projectId, { ...ended, stored: edition, failure: null, uncleanSince: edition.at })
      }),
      fail: (own, failure) =>
        Effect.sync(() => {
          if (held(own) !== undefined) change(own.projectId, { ...ended, failure })
        }),
      clean: (own, limit) =>
        Effect.sync(() => {
          const found = held(own)
          if (found === undefined) return 0
          const kept = [own.lease, found.stored?.edition]
          let left = limit
          const pages = [...found.pages].map(([edition, all]): readonly [string, ReadonlyArray<NewPage>] => {
            if (kept.includes(edition)) return [edition, all]
            const gone = Math.min(left, all.length)
            left -= gone
            return [edition, all.slice(gone)]
          })
          change(own.projectId, { pages: new Map(pages.filter(([, all]) => all.length > 0)) })
          const questions = [...world.questions.values()].filter((one) => one.projectId === own.projectId)
          if (found.docsZipUrl === null) {
            for (const { id } of questions.slice(0, left)) world.questions.delete(id)
            left -= Math.min(left, questions.length)
          }
          if (left > 0 && found.docsZipUrl === null) docs.delete(own.projectId)
          else if (left > 0) change(own.projectId, { uncleanSince: null })
          return limit - left
        }),
      release: (own) =>
        Effect.sync(() => {
          if (held(own) !== undefined) change(own.projectId, ended)
        }),

      pages: ({ projectId }, edition, after = "") =>
        Effect.sync(() =>
          inOrder(docs.get(projectId), edition)
            .filter(({ slug }) => slug > after)
            .slice(0, 500),
        ).pipe(Effect.map((pages) => pages.map(({ markdown, slug }) => ({ slug, markdown })))),
      listPages: ({ projectId }, edition) =>
        Effect.sync(() =>
          inOrder(docs.get(projectId), edition).map(({ description, slug, title }) => ({ slug, title, description })),
        ),
    })
  }),
)

const inOrder = (docs: FakeDocs | undefined, edition: string) =>
  [...(docs?.pages.get(edition) ?? [])].sort((a, b) => (a.slug < b.slug ? -1 : 1))
