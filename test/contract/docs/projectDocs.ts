import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { AuditRepository } from "#src/domain/audit/AuditLog.ts"
import type { StoredEdition } from "#src/domain/docs/ProjectDocs.ts"
import {
  type DocsOf,
  type LeasedDocs,
  type NewPage,
  ProjectDocsRepository,
} from "#src/domain/docs/ProjectDocsRepository.ts"
import { OrgRepository } from "#src/domain/orgs/Orgs.ts"
import { ProjectRepository } from "#src/domain/projects/Projects.ts"
import {
  at,
  deploymentsOf,
  everyOrg,
  failureOf,
  insertOrg,
  insertTenant,
  type It,
  itemsOf,
  newEntry,
  newId,
  newRepository,
  noSuchProject,
  oneOrg,
  push,
  register,
} from "../support.ts"

/** Promise (Documentation) */

const settings = {
  docsZipUrl: "https://docs.example.com/docs.zip",
  docsUrl: "https://docs.example.com/",
  public: false,
  keepQuestions: true,
}
const noDocs = JSON.stringify({ error: "The project has no documentation.", code: "not_found" })

const put = (projectId: string, changes: Partial<typeof settings> = {}, seconds = 0) =>
  ProjectDocsRepository.use((docs) =>
    docs.put(everyOrg, projectId, { ...settings, ...changes }, at(seconds), newEntry({ action: "docs.update" })),
  )
const find = (projectId: string) => ProjectDocsRepository.use((docs) => docs.find(everyOrg, projectId))

/** A project with documentation. */
const insertDocs = Effect.gen(function* () {
  const { orgId, project } = yield* insertTenant
  yield* put(project.projectId)
  return { orgId, projectId: project.projectId }
})

const page = (slug: string, markdown = `# ${slug}`): NewPage => ({ slug, markdown, title: slug, description: "" })

/** Claims documentation at its current revision. */
const claim = Effect.fnUntraced(function* (docs: DocsOf, seconds = 0, revision = 1) {
  const leased: LeasedDocs = { orgId: docs.orgId, projectId: docs.projectId, lease: yield* newId }
  const repository = yield* ProjectDocsRepository
  return { leased, isClaimed: yield* repository.claim(leased, revision, at(seconds), at(seconds + 30)) }
})

const editionOf = ({ lease }: LeasedDocs, more: Partial<StoredEdition> = {}): StoredEdition => ({
  edition: lease,
  digest: "digest",
  target: "1:",
  deploymentId: null,
  pages: 1,
  bytes: 100,
  characters: 90,
  at: at(5),
  ...more,
})

/** Claims and stores an edition. */
const store = Effect.fnUntraced(function* (
  docs: DocsOf,
  pages: ReadonlyArray<NewPage>,
  more: Partial<StoredEdition> = {},
) {
  const repository = yield* ProjectDocsRepository
  const { revision } = yield* repository.find(everyOrg, docs.projectId)
  const { isClaimed, leased } = yield* claim(docs, 0, revision)
  assert.isTrue(isClaimed)
  assert.isTrue(yield* repository.addPages(leased, pages))
  yield* repository.store(leased, editionOf(leased, more))
  return leased
})

const storedBytes = (orgId: string) =>
  Effect.map(
    OrgRepository.use((orgs) => orgs.findWithUsage(orgId)),
    ({ used }) => used.storedBytes,
  )
const slugsOf = (docs: DocsOf, edition: string) =>
  Effect.map(
    ProjectDocsRepository.use(({ pages }) => pages(docs, edition, undefined)),
    (pages) => pages.map(({ slug }) => slug),
  )

const ofOwners = (it: It) => {
  it.effect("documentation of a project: set, found and removed within its org, with an entry each", function* () {
    const docs = yield* ProjectDocsRepository
    const { orgId, project } = yield* insertTenant
    const { projectId } = project
    assert.strictEqual(yield* failureOf(find(projectId)), noDocs)
    const record = yield* docs.put(oneOrg(orgId), projectId, settings, at(1), newEntry({ action: "docs.update" }))
    assert.deepInclude(record, {
      orgId,
      projectId,
      projectName: "docs",
      docsZipUrl: settings.docsZipUrl,
      docsUrl: settings.docsUrl,
      isPublic: false,
      keepQuestions: true,
      revision: 1,
      updatedAt: at(1),
      deployment: null,
      stored: null,
      failure: null,
      leasedUntil: null,
      uncleanSince: null,
    })
    assert.deepStrictEqual(yield* docs.find(oneOrg(orgId), projectId), record)
    const again = yield* put(projectId, { public: true, keepQuestions: false }, 2)
    assert.deepStrictEqual(again, { ...record, isPublic: true, keepQuestions: false, revision: 2, updatedAt: at(2) })

    const other = oneOrg((yield* insertOrg()).orgId)
    const entry = newEntry()
    assert.strictEqual(yield* failureOf(docs.find(other, projectId)), noDocs)
    assert.strictEqual(yield* failureOf(docs.put(other, projectId, settings, at(3), entry)), noSuchProject)
    assert.strictEqual(yield* failureOf(docs.remove(other, projectId, at(3), entry)), noDocs)
    yield* docs.remove(oneOrg(orgId), projectId, at(3), newEntry({ action: "docs.delete" }))
    assert.strictEqual(yield* failureOf(find(projectId)), noDocs)
    assert.strictEqual(yield* failureOf(docs.remove(everyOrg, projectId, at(3), newEntry())), noDocs)

    const entries = yield* itemsOf(AuditRepository.use((audit) => audit.list(orgId, { limit: 10 })))
    const actions = entries.map(({ action }) => action).filter((action) => action.startsWith("docs."))
    assert.deepStrictEqual(actions, ["docs.delete", "docs.update", "docs.update"])
  })

  it.effect("the current deployment comes with it, and a deleted project has none", function* () {
    const { projectId } = yield* register(push(newRepository(), { sha: "abc" }))
    const record = yield* put(projectId)
    const [deployment] = yield* deploymentsOf(projectId)
    assert.deepStrictEqual(record.deployment, { id: deployment!.id, sha: "abc" })
    yield* ProjectRepository.use((projects) => projects.remove(everyOrg, projectId, at(1), newEntry()))
    assert.strictEqual(yield* failureOf(find(projectId)), noDocs)
  })
}

const ofWorkers = (it: It) => {
  it.effect("a lease is one worker's until it ends, and a change of the settings ends it", function* () {
    const repository = yield* ProjectDocsRepository
    const docs = yield* insertDocs
    assert.isFalse((yield* claim(docs, 0, 2)).isClaimed)
    const first = yield* claim(docs)
    assert.isTrue(first.isClaimed)
    assert.isFalse((yield* claim(docs, 29)).isClaimed)
    const second = yield* claim(docs, 30)
    assert.isTrue(second.isClaimed)
    assert.isFalse(yield* repository.addPages(first.leased, [page("late")]))
    yield* repository.store(first.leased, editionOf(first.leased))
    yield* repository.fail(first.leased, { target: "1:", error: "late", attempts: 1, at: at(1) })
    yield* repository.release(first.leased)
    assert.deepInclude(yield* find(docs.projectId), { stored: null, failure: null, leasedUntil: at(60) })

    yield* put(docs.projectId)
    assert.isFalse(yield* repository.addPages(second.leased, [page("late")]))
    const third = yield* claim(docs, 30, 2)
    assert.isTrue(third.isClaimed)
    yield* repository.release(third.leased)
    assert.isNull((yield* find(docs.projectId)).leasedUntil)
  })

  it.effect("pages are read when their edition is stored, the old ones stay until they are cleaned", function* () {
    const repository = yield* ProjectDocsRepository
    const docs = yield* insertDocs
    const { orgId, projectId } = docs
    const before = yield* storedBytes(orgId)
    const first = yield* store(docs, [page("b"), page("a", "# A 😀\n\n> 'quoted' \\ $1")])
    const record = yield* find(projectId)
    assert.deepStrictEqual(record.stored, editionOf(first))
    assert.deepInclude(record, { failure: null, leasedUntil: null, uncleanSince: at(5) })
    assert.deepStrictEqual(yield* repository.pages(docs, first.lease, undefined), [
      { slug: "a", markdown: "# A 😀\n\n> 'quoted' \\ $1" },
      { slug: "b", markdown: "# b" },
    ])
    assert.deepStrictEqual(yield* repository.pages(docs, first.lease, "a"), [{ slug: "b", markdown: "# b" }])
    assert.deepStrictEqual(yield* repository.pages(docs, first.lease, "b"), [])
    assert.strictEqual(yield* storedBytes(orgId), before + 100)

    const second = yield* store(docs, [page("c")], { bytes: 60, target: "1:d", deploymentId: "d" })
    assert.deepStrictEqual(yield* slugsOf(docs, first.lease), ["a", "b"])
    assert.deepStrictEqual(yield* repository.listPages(docs, second.lease), [
      { slug: "c", title: "c", description: "" },
    ])
    assert.strictEqual(yield* storedBytes(orgId), before + 60)
    const third = yield* claim(docs, 40)
    assert.strictEqual(yield* repository.clean(third.leased, 1), 1)
    assert.strictEqual(yield* repository.clean(third.leased, 5), 1)
    assert.deepStrictEqual(yield* slugsOf(docs, first.lease), [])
    assert.deepStrictEqual(yield* slugsOf(docs, second.lease), ["c"])
    assert.isNull((yield* find(projectId)).uncleanSince)
  })

  it.effect("a failure is recorded, and goes with the next success", function* () {
    const repository = yield* ProjectDocsRepository
    const docs = yield* insertDocs
    const { leased } = yield* claim(docs)
    const failure = { target: "1:", error: "docsZipUrl: is missing.", attempts: 2, at: at(7) }
    yield* repository.fail(leased, failure)
    assert.deepInclude(yield* find(docs.projectId), { failure, leasedUntil: null, stored: null })
    yield* store(docs, [page("a")])
    assert.isNull((yield* find(docs.projectId)).failure)
  })

  it.effect("an org at its limit of stored bytes stores no more, and removing makes room", function* () {
    const [repository, orgs] = [yield* ProjectDocsRepository, yield* OrgRepository]
    const docs = yield* insertDocs
    const before = yield* storedBytes(docs.orgId)
    yield* orgs.update(docs.orgId, { limits: { storedBytes: before + 150 } }, newEntry())
    yield* store(docs, [page("a")])
    const { leased } = yield* claim(docs, 40)
    yield* repository.addPages(leased, [page("b")])
    const refused = yield* failureOf(repository.store(leased, editionOf(leased, { bytes: 151 })))
    assert.include(refused, "limit_reached")
    assert.strictEqual((yield* find(docs.projectId)).stored?.bytes, 100)
    yield* repository.store(leased, editionOf(leased, { bytes: 150 }))
    assert.strictEqual(yield* storedBytes(docs.orgId), before + 150)

    yield* repository.remove(everyOrg, docs.projectId, at(8), newEntry())
    assert.strictEqual(yield* storedBytes(docs.orgId), before)
  })

  it.effect("removed documentation is scanned until its last page is erased, in batches", function* () {
    const repository = yield* ProjectDocsRepository
    const docs = yield* insertDocs
    const { orgId, projectId } = docs
    const before = { orgId, projectId: "" }
    const scanned = Effect.map(repository.scan(before, 10), (found) => found.filter((one) => one.orgId === orgId))
    const stored = yield* store(docs, [page("a"), page("b"), page("c")])
    assert.deepStrictEqual(yield* scanned, [yield* find(projectId)])
    assert.deepStrictEqual(
      (yield* repository.scan(docs, 10)).filter((one) => one.orgId === orgId),
      [],
    )
    yield* repository.remove(everyOrg, projectId, at(8), newEntry())
    const [removed] = yield* scanned
    assert.deepInclude(removed, { docsZipUrl: null, stored: null, revision: 2, keepQuestions: false })
    const { leased } = yield* claim(docs, 40, 2)
    assert.strictEqual(yield* repository.clean(leased, 2), 2)
    assert.strictEqual((yield* scanned).length, 1)
    assert.strictEqual(yield* repository.clean(leased, 2), 1)
    assert.deepStrictEqual(yield* scanned, [])
    assert.deepStrictEqual(yield* slugsOf(docs, stored.lease), [])
    assert.strictEqual((yield* put(projectId)).revision, 1)
  })
}

/** Documentation of projects. */
export const projectDocs = (it: It) => {
  ofOwners(it)
  ofWorkers(it)
}
