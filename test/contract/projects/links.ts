import { assert } from "@effect/vitest"
import { Effect } from "effect"
import type { UpdateProject } from "#src/domain/projects/Project.ts"
import { ProjectRepository } from "#src/domain/projects/Projects.ts"
import { shown } from "./projects.ts"
import type { It } from "../support.ts"
import {
  at,
  deploymentsOf,
  everyOrg,
  findProject,
  insertTenant,
  newEntry,
  newRepository,
  push,
  register,
} from "../support.ts"

const update = (projectId: string, changes: UpdateProject) =>
  ProjectRepository.use((projects) => projects.update(everyOrg, projectId, changes, at(1), newEntry()))

interface Repository {
  readonly owner: string
  readonly repo: string
}
const linkTo = ({ owner, repo }: Repository): UpdateProject => ({ hostOwner: owner, hostRepo: repo })
const unlinked: UpdateProject = { hostOwner: null, hostRepo: null }
const upper = <R extends Repository>(repository: R): R => ({
  ...repository,
  owner: repository.owner.toUpperCase(),
  repo: repository.repo.toUpperCase(),
})

/** A tenant's project, linked by name to a repository that has not run yet. */
const linkedProject = Effect.gen(function* () {
  const repository = newRepository()
  const { orgId, project } = yield* insertTenant
  yield* update(project.projectId, linkTo(repository))
  return { repository, orgId, projectId: project.projectId }
})

/** The contract of `register` in every DeploymentRepository, for the link between a project and a repository. */
export const links = (it: It) => {
  it.effect("link: a name without an id matches in any case, and the run sets the id and the spelling", function* () {
    const { repository, orgId, projectId } = yield* linkedProject
    const run = push(upper(repository))
    const registered = yield* register(run, { link: true })
    assert.strictEqual(registered.projectId, projectId)
    const project = yield* findProject(projectId)
    assert.deepStrictEqual(
      [project.orgId, project.name, project.subdomain, project.hostOwner, project.hostRepo],
      [orgId, "docs", null, run.owner, run.repo],
    )
    assert.strictEqual((yield* deploymentsOf(projectId))[0]!.orgId, orgId)
  })

  it.effect("link: a run with the linked name and another id is refused, and changes nothing", function* () {
    const { repository, projectId } = yield* linkedProject
    yield* register(push(repository))
    const before = shown(yield* findProject(projectId))
    const { repositoryId } = newRepository()
    for (const name of [repository, upper(repository)]) {
      for (const link of [true, false]) {
        const { outcome } = yield* register(push({ ...name, repositoryId }), { link })
        assert.deepStrictEqual(outcome, { _tag: "NameReused" })
      }
    }
    assert.deepStrictEqual(shown(yield* findProject(projectId)), before)
    assert.strictEqual((yield* deploymentsOf(projectId)).length, 1)
  })

  it.effect("link: follows the id when the repository is renamed, and the old name is free", function* () {
    const { repository, projectId } = yield* linkedProject
    yield* register(push(repository))
    const { owner } = newRepository()
    const renamed = { ...repository, owner, repo: "renamed" }
    const registered = yield* register(push(renamed), { link: true })
    assert.strictEqual(registered.projectId, projectId)
    const { hostOwner, hostRepo, name } = yield* findProject(projectId)
    assert.deepStrictEqual([hostOwner, hostRepo, name], [owner, "renamed", "docs"])

    const successor = { ...repository, repositoryId: newRepository().repositoryId }
    const next = yield* register(push(successor))
    assert.deepStrictEqual(next.outcome, { _tag: "Registered", projectId: next.projectId })
    assert.notStrictEqual(next.projectId, projectId)
  })

  it.effect("link: when two projects match, one by name and one by id, the id wins", function* () {
    const proved = yield* linkedProject
    yield* register(push(proved.repository))
    const given = yield* linkedProject
    const renamed = { ...proved.repository, owner: given.repository.owner, repo: given.repository.repo }
    const { ownerId } = renamed
    assert.strictEqual((yield* register(push(renamed), { link: true })).projectId, proved.projectId)
    // Both projects now have the name. The project without an id gets the next repository with it, even when its row
    // comes later.
    yield* update(given.projectId, { subdomain: `given-${given.repository.owner.toLowerCase()}` })
    const other = yield* register(push({ ...given.repository, ownerId }), { link: true })
    assert.strictEqual(other.projectId, given.projectId)
    // From here on, no third repository can have the name.
    const third = { ...given.repository, ownerId, repositoryId: newRepository().repositoryId }
    assert.strictEqual((yield* register(push(third))).outcome._tag, "NameReused")
  })

  it.effect("link: the same name set again, in any case, keeps the proved id", function* () {
    const { repository, projectId } = yield* linkedProject
    yield* register(push(repository))
    for (const changes of [linkTo(repository), linkTo(upper(repository)), { name: "new" }]) {
      yield* update(projectId, changes)
      const stranger = { ...repository, repositoryId: newRepository().repositoryId }
      assert.strictEqual((yield* register(push(stranger))).outcome._tag, "NameReused")
      assert.strictEqual((yield* register(push(repository), { link: true })).projectId, projectId)
    }
  })

  it.effect("link: another name clears the id, until a run proves a new one", function* () {
    const { repository, projectId } = yield* linkedProject
    yield* register(push(repository))
    const next = newRepository()
    yield* update(projectId, linkTo(next))
    assert.strictEqual((yield* register(push(repository), { link: true })).outcome._tag, "NotLinked")
    assert.strictEqual((yield* register(push(next), { link: true })).projectId, projectId)
    // A link back to the first name clears the id of the second.
    yield* update(projectId, linkTo(repository))
    assert.strictEqual((yield* register(push(next), { link: true })).outcome._tag, "NotLinked")
    const successor = { ...repository, repositoryId: newRepository().repositoryId }
    assert.strictEqual((yield* register(push(successor), { link: true })).projectId, projectId)
  })

  it.effect("link: unlinking clears the id, and keeps the deployments", function* () {
    const { repository, projectId } = yield* linkedProject
    const { deploymentId } = yield* register(push(repository))
    const project = yield* update(projectId, unlinked)
    assert.deepStrictEqual([project.hostOwner, project.currentDeploymentId], [null, deploymentId])
    assert.strictEqual((yield* register(push(repository), { link: true })).outcome._tag, "NotLinked")
    const made = yield* register(push(repository))
    assert.notStrictEqual(made.projectId, projectId)
    assert.strictEqual((yield* deploymentsOf(projectId)).length, 1)
  })

  it.effect("link: of repositories that register at once under one linked name, one gets the project", function* () {
    const { repository, projectId } = yield* linkedProject
    const runs = Array.from({ length: 8 }, () => push({ ...repository, repositoryId: newRepository().repositoryId }))
    const all = yield* Effect.forEach(runs, (run) => register(run), { concurrency: "unbounded" })
    const [winner, ...others] = all.filter(({ outcome }) => outcome._tag === "Registered")
    assert.deepStrictEqual([winner?.projectId, others], [projectId, []])
    assert.strictEqual(all.filter(({ outcome }) => outcome._tag === "NameReused").length, 7)
  })

  it.effect("link: of new repositories that register at once under one name, one gets a project", function* () {
    const repository = newRepository()
    const runs = Array.from({ length: 8 }, () => push({ ...repository, repositoryId: newRepository().repositoryId }))
    const all = yield* Effect.forEach(runs, (run) => register(run), { concurrency: "unbounded" })
    const outcomes = all.map(({ outcome }) => outcome._tag).sort()
    assert.deepStrictEqual(outcomes, [...Array<string>(7).fill("NameReused"), "Registered"])
  })

  it.effect(
    "link: a new repository that registers under many names at once, as in a rename, gets one project",
    function* () {
      const { repositoryId } = newRepository()
      const runs = Array.from({ length: 8 }, () => push({ ...newRepository(), repositoryId }))
      const all = yield* Effect.forEach(runs, (run) => register(run), { concurrency: "unbounded" })
      const projectIds = new Set(all.map(({ projectId }) => projectId))
      assert.strictEqual(projectIds.size, 1)
      assert.strictEqual((yield* deploymentsOf(all[0]!.projectId)).length, 8)
    },
  )

  it.effect.each([{ proved: false }, { proved: true }])(
    "link: a manual change is not lost to a run that registers at the same time, id proved: $proved",
    function* ({ proved }) {
      // The change starts after a varying number of round trips, so that it meets each step of the run.
      for (let i = 0; i < 16; i++) {
        const { repository, projectId } = yield* linkedProject
        if (proved) yield* register(push(repository), { link: true })
        const unlinks = i % 2 === 0
        const changes = { defaultBranch: "by-hand", ...(unlinks ? unlinked : {}) }
        const change = Effect.andThen(
          Effect.replicateEffect(findProject(projectId), Math.floor(i / 2), { discard: true }),
          update(projectId, changes),
        )
        yield* Effect.all([register(push(repository), { link: true }), change], { concurrency: "unbounded" })
        const { defaultBranch, hostOwner } = yield* findProject(projectId)
        assert.deepStrictEqual([defaultBranch, hostOwner], ["by-hand", unlinks ? null : repository.owner])
      }
    },
  )
}
