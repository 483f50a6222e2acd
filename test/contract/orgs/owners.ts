import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { parseOwner } from "#src/domain/RepositoryOwner.ts"
import { OrgRepository } from "#src/domain/orgs/Orgs.ts"
import { ProjectRepository } from "#src/domain/projects/Projects.ts"
import type { It } from "../support.ts"
import {
  anyRules,
  at,
  everyOrg,
  failureOf,
  findProject,
  gitlabIssuer,
  insertOrg,
  insertProject,
  insertTenant,
  newEntry,
  newId,
  newRepository,
  noSuchOrg,
  noSuchProject,
  oneOrg,
  push,
  register,
} from "../support.ts"

const owner = (text: string) => parseOwner(text)!
const setOwners = (orgId: string, ...owners: ReadonlyArray<string>) =>
  OrgRepository.use((orgs) => orgs.update(orgId, { owners: owners.map(owner) }, newEntry({ action: "org.update" })))
const ownersOf = (orgId: string) => OrgRepository.use((orgs) => orgs.owners(orgId))
const linked = { link: true }
const listed = (...owners: ReadonlyArray<string>) => ({ rules: { ...anyRules, allowedOwners: owners.map(owner) } })
const newLink = (repository: { readonly owner: string; readonly repo: string }, provider = "github") => ({
  provider,
  hostOwner: repository.owner,
  hostRepo: repository.repo,
  workflow: null,
  environment: null,
})
const put = (projectId: string, link: ReturnType<typeof newLink>) =>
  ProjectRepository.use((projects) => projects.putLink(everyOrg, projectId, link, at(1), newEntry()))
const noLink = JSON.stringify({ error: "No repository is linked to the project.", code: "not_found" })
const taken = JSON.stringify({
  error: "hostOwner and hostRepo: another project is linked to this repository. Remove that link first.",
  code: "conflict",
})

/** The contract of the owners of orgs, which decide whose repositories may register. */
export const owners = (it: It) => {
  it.effect("owners: are replaced as a whole, and each belongs to one org, in any case", function* () {
    const [{ orgId }, other] = [yield* insertOrg(), yield* insertOrg()]
    const { owner: name } = newRepository()
    yield* setOwners(orgId, name, `gitlab:${name}/docs`, name.toUpperCase())
    const [first, second, ...others] = yield* ownersOf(orgId)
    assert.deepStrictEqual([first, second, others], [owner(name.toUpperCase()), owner(`gitlab:${name}/docs`), []])
    yield* setOwners(orgId, `gitlab:${name}/docs`, name)
    assert.deepStrictEqual(yield* ownersOf(orgId), [owner(`gitlab:${name}/docs`), owner(name)])
    const conflict = yield* failureOf(setOwners(other.orgId, "free-owner", name.toLowerCase()))
    assert.include(conflict, `"code":"conflict"`)
    assert.deepStrictEqual(yield* ownersOf(other.orgId), [])
    // An owner with this name at another provider is another owner.
    yield* setOwners(other.orgId, `gitlab:${name}`)
    yield* setOwners(orgId)
    yield* setOwners(other.orgId, name, `gitlab:${name}`)
    assert.deepStrictEqual(yield* ownersOf(orgId), [])
    assert.strictEqual((yield* ownersOf(other.orgId)).length, 2)
    assert.strictEqual(yield* failureOf(setOwners(yield* newId, name)), noSuchOrg)
  })

  it.effect("owners: of orgs that claim one owner at once, one gets it", function* () {
    const orgs = yield* Effect.replicateEffect(insertOrg(), 8)
    const { owner: name } = newRepository()
    const results = yield* Effect.forEach(orgs, ({ orgId }) => Effect.result(setOwners(orgId, name)), {
      concurrency: "unbounded",
    })
    assert.strictEqual(results.filter(({ _tag }) => _tag === "Success").length, 1)
  })

  it.effect(
    "owners: a run of an owner creates its project in the owner's org, even where only linked repositories may register",
    function* () {
      const { orgId } = yield* insertOrg()
      const repository = newRepository()
      yield* setOwners(orgId, repository.owner.toUpperCase())
      const { projectId } = yield* register(push(repository), linked)
      assert.strictEqual((yield* findProject(projectId)).orgId, orgId)
      // GitLab's owner with this name is somebody else.
      const elsewhere = push({ ...repository, repositoryId: "7" }, { provider: "gitlab", issuer: gitlabIssuer })
      assert.strictEqual((yield* register(elsewhere, linked)).outcome._tag, "NotLinked")
      // So is the owner at another issuer that calls itself GitHub.
      const impostor = push({ ...repository, repositoryId: "8" }, { issuer: "https://github.example" })
      assert.strictEqual((yield* register(impostor, linked)).outcome._tag, "NotLinked")
    },
  )

  it.effect("owners: the first run proves an owner's id, which stays with the name", function* () {
    const { orgId } = yield* insertOrg()
    const repository = newRepository()
    yield* setOwners(orgId, repository.owner)
    yield* register(push(repository), linked)
    const another = { ...repository, repo: "another", repositoryId: newRepository().repositoryId }
    for (const ownerId of ["999999", null]) {
      const stranger = yield* register(push({ ...another, ownerId }), linked)
      assert.strictEqual(stranger.outcome._tag, "OwnerReused")
    }
    // The same list again keeps the id. A name that is removed and added must be proved again.
    yield* setOwners(orgId, repository.owner)
    assert.strictEqual((yield* register(push({ ...another, ownerId: "999999" }), linked)).outcome._tag, "OwnerReused")
    assert.strictEqual((yield* register(push(another), linked)).outcome._tag, "Registered")
  })

  it.effect(
    "link: a run with another owner's id under an allowed name takes no project, linked by hand or proved",
    function* () {
      const repository = newRepository()
      const { projectId } = yield* register(push(repository))
      const before = yield* findProject(projectId)
      const byHand = yield* insertTenant
      yield* put(byHand.project.projectId, newLink({ ...repository, repo: "by-hand" }))
      const stranger = { ...repository, ownerId: "999999" }
      const runs = [
        stranger,
        { ...stranger, repo: "by-hand", repositoryId: newRepository().repositoryId },
        { ...stranger, repo: "new", repositoryId: newRepository().repositoryId },
      ]
      for (const run of runs) {
        const { outcome } = yield* register(push(run), listed(repository.owner))
        assert.strictEqual(outcome._tag, "OwnerReused")
      }
      assert.deepStrictEqual(yield* findProject(projectId), before)
      assert.strictEqual((yield* findProject(byHand.project.projectId)).currentDeploymentId, null)
    },
  )

  it.effect("link: a repository that moved to another owner needs an org with that owner, or a new link", function* () {
    const repository = newRepository()
    const { project } = yield* insertTenant
    const { orgId, projectId } = project
    yield* put(projectId, newLink(repository))
    yield* register(push(repository), linked)
    const { owner: newOwner, ownerId } = newRepository()
    const moved = { ...repository, owner: newOwner, ownerId }
    assert.strictEqual((yield* register(push(moved), linked)).outcome._tag, "RepositoryMoved")
    assert.strictEqual((yield* register(push(moved), listed(repository.owner))).outcome._tag, "RepositoryMoved")
    // A project accepts only owners of its own org.
    const other = yield* insertOrg()
    yield* setOwners(other.orgId, newOwner)
    assert.strictEqual((yield* register(push(moved), linked)).outcome._tag, "RepositoryMoved")
    yield* setOwners(other.orgId)
    yield* setOwners(orgId, newOwner)
    assert.strictEqual((yield* register(push(moved), linked)).projectId, projectId)
    // A new link brings the repository back; so does an owner in the operator's list.
    yield* setOwners(orgId)
    yield* put(projectId, newLink(repository))
    assert.strictEqual((yield* register(push(repository), linked)).projectId, projectId)
    assert.strictEqual((yield* register(push(moved), listed(newOwner))).projectId, projectId)
  })

  it.effect("link: a repository of a renamed owner keeps its project", function* () {
    const repository = newRepository()
    const { projectId } = yield* register(push(repository))
    const renamed = { ...repository, owner: newRepository().owner }
    assert.strictEqual((yield* register(push(renamed), linked)).projectId, projectId)
  })

  it.effect("link: is set, read and removed, with its pins", function* () {
    const projects = yield* ProjectRepository
    const { project } = yield* insertTenant
    const { orgId, projectId } = project
    const repository = newRepository()
    assert.strictEqual(yield* failureOf(projects.findLink(everyOrg, projectId)), noLink)
    assert.strictEqual(yield* failureOf(projects.removeLink(everyOrg, projectId, at(1), newEntry())), noLink)
    const link = { ...newLink(repository, "gitlab"), workflow: ".gitlab-ci.yml", environment: "production" }
    assert.deepStrictEqual(yield* projects.putLink(oneOrg(orgId), projectId, link, at(1), newEntry()), link)
    assert.deepStrictEqual(yield* projects.findLink(everyOrg, projectId), link)
    const { hostOwner, hostRepo } = yield* findProject(projectId)
    assert.deepStrictEqual([hostOwner, hostRepo], [repository.owner, repository.repo])

    // A GitHub repository with this name is another one, so another project may have it.
    const second = yield* insertProject(orgId)
    yield* put(second.projectId, newLink(repository))
    assert.strictEqual(yield* failureOf(put(second.projectId, newLink(repository, "gitlab"))), taken)
    assert.strictEqual((yield* register(push(repository), linked)).projectId, second.projectId)

    const stranger = yield* insertOrg()
    const scope = oneOrg(stranger.orgId)
    assert.strictEqual(yield* failureOf(projects.findLink(scope, projectId)), noSuchProject)
    assert.strictEqual(yield* failureOf(projects.putLink(scope, projectId, link, at(1), newEntry())), noSuchProject)
    assert.strictEqual(yield* failureOf(projects.removeLink(scope, projectId, at(1), newEntry())), noSuchProject)
    yield* projects.removeLink(everyOrg, projectId, at(1), newEntry())
    assert.strictEqual(yield* failureOf(projects.findLink(everyOrg, projectId)), noLink)
  })
}
