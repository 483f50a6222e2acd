import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { OrgRepository } from "#src/domain/orgs/Orgs.ts"
import { ProjectRepository } from "#src/domain/projects/Projects.ts"
import { shown } from "../projects/projects.ts"
import type { It } from "../support.ts"
import {
  noRows,
  at,
  deploymentsOf,
  everyOrg,
  findProject,
  insertProject,
  insertTenant,
  newEntry,
  newId,
  newRepository,
  push,
  register,
} from "../support.ts"

const onBranch = (branch: string) => ({ branch, ref: `refs/heads/${branch}` })
const pullRequest = (branch: string) => ({
  branch,
  ref: "refs/pull/7/merge",
  previewReason: "It is a pull request.",
  pullRequest: 7,
  eventName: "pull_request",
})

/** The contract of `register` in every DeploymentRepository, for projects and their runs. */
export const registrations = (it: It) => {
  it.effect("register: the run of an unlinked repository creates a project in the default org", function* () {
    const { orgId } = yield* insertProject(undefined)
    const repository = newRepository()
    const { outcome, projectId, deploymentId } = yield* register(push(repository), { seconds: 3 })
    assert.deepStrictEqual(outcome, { _tag: "Registered", projectId })
    assert.deepStrictEqual(shown(yield* findProject(projectId)), {
      projectId,
      orgId,
      name: "Docs",
      subdomain: `docs-${repository.owner.toLowerCase()}`,
      currentDeploymentId: deploymentId,
      defaultBranch: "main",
      hostOwner: repository.owner,
      hostRepo: "Docs",
      createdAt: "2026-11-20T17:00:03.123Z",
      updatedAt: "2026-11-20T17:00:03.123Z",
    })
    assert.deepStrictEqual(
      (yield* deploymentsOf(projectId)).map(({ id }) => id),
      [deploymentId],
    )
  })

  it.effect(
    "register: the run of an unlinked repository creates nothing where projects may not be created",
    function* () {
      const before = yield* newId
      const { outcome } = yield* register(push(newRepository()), { link: true })
      assert.deepStrictEqual(outcome, { _tag: "NotLinked" })
      assert.deepStrictEqual(yield* (yield* ProjectRepository).list(everyOrg, { limit: 1, cursor: before }), noRows)
      assert.deepStrictEqual(yield* (yield* OrgRepository).list(everyOrg, { limit: 1, cursor: before }), noRows)
    },
  )

  it.effect("register: the current deployment is the last push to the default branch", function* () {
    const repository = newRepository()
    const first = yield* register(push(repository))
    const { projectId } = first
    const steps = [
      [push(repository), true],
      [push(repository, onBranch("other")), false],
      [push(repository, pullRequest("main")), false],
      [push(repository, { previewReason: "It is a schedule.", eventName: "schedule" }), false],
      [push(repository), true],
    ] as const
    let current = first.deploymentId
    for (const [i, [run, becomesCurrent]] of steps.entries()) {
      const registered = yield* register(run, { seconds: i + 1, link: true })
      assert.strictEqual(registered.projectId, projectId)
      if (becomesCurrent) current = registered.deploymentId
      const project = yield* findProject(projectId)
      assert.deepStrictEqual([project.currentDeploymentId, project.defaultBranch], [current, "main"])
      assert.deepStrictEqual([project.createdAt, project.updatedAt].map(String), [at(0), at(i + 1)].map(String))
    }
    assert.strictEqual((yield* deploymentsOf(projectId)).length, 6)
  })

  it.effect("register: only a push to one of the usual default branches sets an unset default branch", function* () {
    const repository = newRepository()
    const tag = { branch: "v1", ref: "refs/tags/v1", previewReason: "It is a tag." }
    const { projectId } = yield* register(push(repository, tag))
    for (const run of [
      onBranch("feature/x"),
      pullRequest("main"),
      { previewReason: "It is a schedule.", eventName: "schedule" },
    ]) {
      yield* register(push(repository, run))
      const project = yield* findProject(projectId)
      assert.deepStrictEqual([project.defaultBranch, project.currentDeploymentId], [null, null])
    }
    const { deploymentId } = yield* register(push(repository, onBranch("master")))
    yield* register(push(repository))
    const project = yield* findProject(projectId)
    assert.deepStrictEqual([project.defaultBranch, project.currentDeploymentId], ["master", deploymentId])
  })

  it.effect("register: the operator configures the usual default branches", function* () {
    const repository = newRepository()
    const rules = { defaultBranches: ["trunk"] }
    const { projectId } = yield* register(push(repository), { rules })
    assert.strictEqual((yield* findProject(projectId)).defaultBranch, null)
    const { deploymentId } = yield* register(push(repository, onBranch("trunk")), { rules })
    const project = yield* findProject(projectId)
    assert.deepStrictEqual([project.defaultBranch, project.currentDeploymentId], ["trunk", deploymentId])
  })

  it.effect(
    "register: a default branch set by hand stays; once cleared, a push to a usual default branch sets it",
    function* () {
      const projects = yield* ProjectRepository
      const repository = newRepository()
      const { projectId, deploymentId } = yield* register(push(repository))
      yield* projects.update(everyOrg, projectId, { defaultBranch: "release" }, at(1), newEntry())
      yield* register(push(repository))
      const kept = yield* findProject(projectId)
      assert.deepStrictEqual([kept.defaultBranch, kept.currentDeploymentId], ["release", deploymentId])
      yield* projects.update(everyOrg, projectId, { defaultBranch: null }, at(1), newEntry())
      yield* register(push(repository, onBranch("dev")))
      const unset = yield* findProject(projectId)
      assert.deepStrictEqual([unset.defaultBranch, unset.currentDeploymentId], [null, deploymentId])
      const next = yield* register(push(repository))
      const project = yield* findProject(projectId)
      assert.deepStrictEqual([project.defaultBranch, project.currentDeploymentId], ["main", next.deploymentId])
    },
  )

  it.effect("register: a repeated run changes nothing, and another attempt is another deployment", function* () {
    const repository = newRepository()
    const run = push(repository)
    const first = yield* register(run)
    const { projectId } = first
    const second = yield* register(push(repository))
    const before = shown(yield* findProject(projectId))
    const again = yield* register({ ...run, sha: "0".repeat(40), environment: "x" }, { seconds: 5 })
    assert.deepStrictEqual(again.outcome, first.outcome)
    assert.deepStrictEqual(shown(yield* findProject(projectId)), before)
    const rows = yield* deploymentsOf(projectId)
    assert.deepStrictEqual(
      rows.map(({ id, sha }) => [id, sha]),
      [
        [second.deploymentId, run.sha],
        [first.deploymentId, run.sha],
      ],
    )
    // Another attempt of the older run is another deployment, but does not become current.
    yield* register({ ...run, runAttempt: 2 }, { seconds: 6 })
    assert.strictEqual((yield* findProject(projectId)).currentDeploymentId, second.deploymentId)
    assert.strictEqual((yield* deploymentsOf(projectId)).length, 3)
  })

  it.effect("register: the same run number in another repository is another run", function* () {
    const run = push(newRepository())
    const first = yield* register(run)
    const second = yield* register({ ...run, ...newRepository() })
    assert.notStrictEqual(second.projectId, first.projectId)
    assert.strictEqual((yield* findProject(second.projectId)).currentDeploymentId, second.deploymentId)
  })

  it.effect("register: a taken subdomain gets the next free suffix", function* () {
    const [a, b, c] = [newRepository(), newRepository(), newRepository()]
    const label = `docs-site-${a.owner.toLowerCase()}`
    const { project } = yield* insertTenant
    yield* (yield* ProjectRepository).update(
      everyOrg,
      project.projectId,
      { subdomain: `${label}-2` },
      at(0),
      newEntry(),
    )
    const subdomains = []
    for (const [{ repositoryId }, repo] of [
      [a, "docs.site"],
      [b, "Docs_Site"],
      [c, "docs-site"],
    ] as const) {
      const { projectId } = yield* register(push({ ...a, repo, repositoryId }))
      subdomains.push((yield* findProject(projectId)).subdomain)
    }
    assert.deepStrictEqual(subdomains, [label, `${label}-3`, `${label}-4`])
  })

  // Seen failing: an org could take so many subdomains of a repository that its first run tried thousands.
  it.effect("register: after ten taken subdomains, the project's id is in the next", function* () {
    const { owner } = newRepository()
    const registered = yield* Effect.forEach(Array.from({ length: 12 }), (_, n) =>
      register(push({ ...newRepository(), owner, repo: `docs${"-".repeat(n)}` })),
    )
    const subdomains = yield* Effect.forEach(registered, ({ projectId }) =>
      Effect.map(findProject(projectId), ({ subdomain }) =>
        subdomain!.replace(projectId.slice(-8).toLowerCase(), "ID"),
      ),
    )
    const label = `docs-${owner.toLowerCase()}`
    assert.deepStrictEqual(subdomains.slice(9), [`${label}-10`, `${label}-ID11`, `${label}-ID11`])
  })

  it.effect("register: first runs of one repository at the same time create one project", function* () {
    const repository = newRepository()
    const runs = Array.from({ length: 10 }, () => push(repository))
    const registered = yield* Effect.forEach(runs, (run) => register(run), { concurrency: "unbounded" })
    const [projectId, ...others] = new Set(registered.map((_) => _.projectId))
    assert.deepStrictEqual(others, [])
    const ids = registered.map(({ deploymentId }) => deploymentId)
    assert.sameMembers(
      (yield* deploymentsOf(projectId!)).map(({ id }) => id),
      ids,
    )
    assert.include(ids, (yield* findProject(projectId!)).currentDeploymentId)
  })

  it.effect("register: one run that registers many times at once is one deployment", function* () {
    const run = push(newRepository())
    const registered = yield* Effect.all(
      Array.from({ length: 10 }, () => register(run)),
      { concurrency: "unbounded" },
    )
    assert.strictEqual(new Set(registered.map((_) => _.projectId)).size, 1)
    const { projectId } = registered[0]!
    const [deployment, ...others] = yield* deploymentsOf(projectId)
    assert.deepStrictEqual(others, [])
    assert.strictEqual((yield* findProject(projectId)).currentDeploymentId, deployment!.id)
  })

  it.effect("register: repositories that want one subdomain at once each get their own", function* () {
    const { owner } = newRepository()
    const repos = ["a.b", "a-b", "a_b", "A.B-", "a--b"]
    const registered = yield* Effect.forEach(repos, (repo) => register(push({ ...newRepository(), owner, repo })), {
      concurrency: "unbounded",
    })
    const projects = yield* Effect.forEach(registered, ({ projectId }) => findProject(projectId))
    const label = `a-b-${owner.toLowerCase()}`
    const expected = [label, `${label}-2`, `${label}-3`, `${label}-4`, `${label}-5`]
    assert.sameMembers(
      projects.map(({ subdomain }) => subdomain),
      expected,
    )
  })
}
