import { assert } from "@effect/vitest"
import { Effect, Result } from "effect"
import type { OrgScope } from "#src/domain/Principal.ts"
import type { UpdateProject } from "#src/domain/projects/Project.ts"
import { ProjectRepository } from "#src/domain/projects/Projects.ts"
import { shown } from "./projects.ts"
import type { It } from "../support.ts"
import {
  at,
  awkwardTexts,
  everyOrg,
  failureOf,
  findProject,
  insertProject,
  insertTenant,
  newEntry,
  newId,
  newRepository,
  noSuchProject,
  oneOrg,
} from "../support.ts"

const update = (projectId: string, changes: UpdateProject, scope: OrgScope = everyOrg) =>
  ProjectRepository.use((projects) => projects.update(scope, projectId, changes, at(9), newEntry()))

const conflict = (error: string) => JSON.stringify({ error, code: "conflict" })
const subdomainTaken = conflict("subdomain: another project has this subdomain. Choose another one.")
const repositoryTaken = conflict(
  "hostOwner and hostRepo: another project is linked to this repository. Remove that link first.",
)

let made = 0
const newSubdomain = () => `sub-${++made}`
const newLink = () => {
  const { owner, repo } = newRepository()
  return { hostOwner: owner, hostRepo: repo }
}

/** The contract of `update` in every ProjectRepository. */
export const projectUpdates = (it: It) => {
  it.effect("update: sets the fields that are present, clears those that are null, and keeps the rest", function* () {
    const { project, orgId } = yield* insertTenant
    const other = yield* insertProject(orgId)
    const link = newLink()
    const all = { name: "new", defaultBranch: "trunk", subdomain: newSubdomain(), ...link }
    let expected = { ...shown(project), updatedAt: "2026-11-20T17:00:09.123Z" }
    const steps: ReadonlyArray<UpdateProject> = [
      { name: "only the name" },
      all,
      { name: "again" },
      { defaultBranch: null },
      { defaultBranch: "a/b" },
      { subdomain: null },
      { hostOwner: null, hostRepo: null },
      all,
      { defaultBranch: null, subdomain: null, hostOwner: null, hostRepo: null },
    ]
    for (const { keyPrefix: _, ...changes } of steps) {
      expected = { ...expected, ...changes }
      assert.deepStrictEqual(shown(yield* update(project.projectId, changes)), expected)
      assert.deepStrictEqual(shown(yield* findProject(project.projectId)), expected)
    }
    assert.deepStrictEqual(shown(yield* findProject(other.projectId)), shown(other))
  })

  it.effect("update: a project has the field keyPrefix only while it has a prefix of its own", function* () {
    const { project } = yield* insertTenant
    assert.isFalse("keyPrefix" in project)
    assert.strictEqual((yield* update(project.projectId, { keyPrefix: "acme_live" })).keyPrefix, "acme_live")
    assert.strictEqual((yield* update(project.projectId, { name: "other" })).keyPrefix, "acme_live")
    assert.strictEqual((yield* findProject(project.projectId)).keyPrefix, "acme_live")
    assert.isFalse("keyPrefix" in (yield* update(project.projectId, { keyPrefix: null })))
  })

  it.effect("update: keeps text as it is", function* () {
    const { project } = yield* insertTenant
    for (const text of awkwardTexts) {
      const { name, defaultBranch } = yield* update(project.projectId, { name: text, defaultBranch: text })
      assert.deepStrictEqual([name, defaultBranch], [text, text])
    }
  })

  it.effect("update: a project of another org is not found and stays as it is", function* () {
    const own = yield* insertTenant
    const foreign = yield* insertTenant
    const taken = { ...newLink(), subdomain: newSubdomain() }
    yield* update((yield* insertTenant).project.projectId, taken)
    const secret = newLink()
    const before = yield* update(foreign.project.projectId, secret)
    for (const changes of [{ name: "mine" }, { hostOwner: null, hostRepo: null }, taken, secret]) {
      for (const id of [foreign.project.projectId, yield* newId]) {
        assert.strictEqual(yield* failureOf(update(id, changes, oneOrg(own.orgId))), noSuchProject)
      }
      assert.strictEqual(yield* failureOf(update(yield* newId, changes)), noSuchProject)
    }
    assert.deepStrictEqual(shown(yield* findProject(foreign.project.projectId)), shown(before))
  })

  it.effect("update: a subdomain has one project in all orgs, and a taken one changes nothing", function* () {
    const { project } = yield* insertTenant
    const { project: other, orgId } = yield* insertTenant
    const subdomain = newSubdomain()
    yield* update(other.projectId, { subdomain })
    const refused = update(project.projectId, { name: "new", subdomain, ...newLink() })
    assert.strictEqual(yield* failureOf(refused), subdomainTaken)
    assert.deepStrictEqual(shown(yield* findProject(project.projectId)), shown(project))
    // A project may set its own subdomain again, and a freed subdomain can be taken.
    yield* update(other.projectId, { subdomain }, oneOrg(orgId))
    yield* update(other.projectId, { subdomain: null })
    assert.strictEqual((yield* update(project.projectId, { subdomain })).subdomain, subdomain)
  })

  it.effect(
    "update: a repository has one project in all orgs, in any case, and a taken one changes nothing",
    function* () {
      const { project } = yield* insertTenant
      const { project: other } = yield* insertTenant
      const link = newLink()
      yield* update(other.projectId, link)
      const upper = { hostOwner: link.hostOwner.toUpperCase(), hostRepo: link.hostRepo.toUpperCase() }
      for (const taken of [link, upper]) {
        const refused = update(project.projectId, { name: "new", subdomain: newSubdomain(), ...taken })
        assert.strictEqual(yield* failureOf(refused), repositoryTaken)
        assert.deepStrictEqual(shown(yield* findProject(project.projectId)), shown(project))
      }
      // The same owner's other repository, and another owner's repository with this name, are free.
      yield* update(project.projectId, { ...link, hostRepo: "other" })
      yield* update(project.projectId, { ...link, hostOwner: newLink().hostOwner })
      assert.strictEqual((yield* update(other.projectId, upper)).hostOwner, upper.hostOwner)
      // A link to another repository frees the first one, and so does unlinking.
      yield* update(other.projectId, newLink())
      yield* update(project.projectId, link)
      assert.strictEqual(yield* failureOf(update(other.projectId, upper)), repositoryTaken)
      yield* update(project.projectId, { hostOwner: null, hostRepo: null })
      assert.strictEqual((yield* update(other.projectId, link)).hostRepo, link.hostRepo)
    },
  )

  it.effect("update: of many that want the same value at once, one gets it", function* () {
    const wanted = [{ subdomain: newSubdomain() }, newLink()]
    for (const changes of wanted) {
      const tenants = yield* Effect.all(Array.from({ length: 8 }, () => insertTenant))
      const results = yield* Effect.forEach(
        tenants,
        ({ project }) => Effect.result(update(project.projectId, changes)),
        { concurrency: "unbounded" },
      )
      assert.strictEqual(results.filter(Result.isSuccess).length, 1)
      const failures = results.filter(Result.isFailure).map(({ failure }) => failure._tag)
      assert.deepStrictEqual(new Set(failures), new Set(["Conflict"]))
    }
  })
}
