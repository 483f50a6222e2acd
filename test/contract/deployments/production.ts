import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { DeploymentRepository } from "#src/domain/deployments/Deployments.ts"
import { ProjectRepository } from "#src/domain/projects/Projects.ts"
import type { It } from "../support.ts"
import {
  at,
  deploymentsOf,
  everyOrg,
  failureOf,
  findProject,
  gitlabIssuer,
  insertOrg,
  insertTenant,
  itemsOf,
  newEntry,
  newId,
  newRepository,
  noSuchProject,
  oneOrg,
  push,
  register,
} from "../support.ts"

const current = (projectId: string) => Effect.map(findProject(projectId), (project) => project.currentDeploymentId)
const promote = (projectId: string, deploymentId: string, seconds = 1) =>
  DeploymentRepository.use((deployments) =>
    deployments.promote(everyOrg, projectId, deploymentId, at(seconds), newEntry({ action: "deployment.promote" })),
  )
const pin = (projectId: string, pins: { readonly workflow?: string; readonly environment?: string }) =>
  Effect.gen(function* () {
    const projects = yield* ProjectRepository
    const { hostOwner, hostRepo } = yield* projects.findLink(everyOrg, projectId)
    const link = { provider: "github", hostOwner, hostRepo, workflow: null, environment: null, ...pins }
    return yield* projects.putLink(everyOrg, projectId, link, at(1), newEntry({ action: "project.link" }))
  })
const noSuchDeployment = JSON.stringify({ error: "The project has no such deployment.", code: "not_found" })

/** Which deployments become current. */
export const production = (it: It) => {
  it.effect("current: an older run that registers late or again does not become current", function* () {
    const repository = newRepository()
    const run = (runId: string, runAttempt = 1) => push(repository, { runId, runAttempt })
    const { projectId } = yield* register(run("500"))
    const newest = yield* register(run("600"))
    for (const late of [run("500", 2), run("550")]) {
      yield* register(late)
      assert.strictEqual(yield* current(projectId), newest.deploymentId)
    }
    const again = yield* register(run("600", 2))
    assert.strictEqual(yield* current(projectId), again.deploymentId)
    // Run numbers compare as numbers, not as text.
    const longer = yield* register(run("1000"))
    assert.strictEqual(yield* current(projectId), longer.deploymentId)
    assert.strictEqual((yield* deploymentsOf(projectId)).length, 6)
  })

  it.effect("current: runs without numbers are ordered by the time of their tokens", function* () {
    const repository = newRepository()
    const run = (runId: string, seconds: number) => push(repository, { runId, issuedAt: at(seconds) })
    const { projectId } = yield* register(run("b1a0", 10))
    const newest = yield* register(run("a9f3", 20), { seconds: 30 })
    yield* register(run("c777", 15), { seconds: 40 })
    assert.strictEqual(yield* current(projectId), newest.deploymentId)
    const next = yield* register(run("0001-a", 21), { seconds: 50 })
    assert.strictEqual(yield* current(projectId), next.deploymentId)
  })

  it.effect("promote: any deployment can become current, and a late run does not undo a rollback", function* () {
    const repository = newRepository()
    const run = (runId: string, overrides = {}) => push(repository, { runId, ...overrides })
    const first = yield* register(run("500"))
    const { projectId } = first
    yield* register(run("600"))
    const project = yield* promote(projectId, first.deploymentId, 7)
    assert.strictEqual(project.currentDeploymentId, first.deploymentId)
    assert.strictEqual(String(project.updatedAt), String(at(7)))
    yield* register(run("550"))
    assert.strictEqual(yield* current(projectId), first.deploymentId)
    const next = yield* register(run("700"))
    assert.strictEqual(yield* current(projectId), next.deploymentId)

    // A promoted preview is current, and an older run does not replace it.
    const preview = yield* register(
      run("800", { previewReason: "It is a test.", branch: "next", ref: "refs/heads/next" }),
    )
    yield* promote(projectId, preview.deploymentId)
    yield* register(run("750"))
    assert.strictEqual(yield* current(projectId), preview.deploymentId)
  })

  it.effect("promote: accepts only deployments of the project, and only projects in the scope", function* () {
    const deployments = yield* DeploymentRepository
    const [own, other] = [yield* register(push(newRepository())), yield* register(push(newRepository()))]
    const { orgId } = yield* insertOrg()
    const entry = newEntry()
    const now = at(1)
    const tries = [
      [deployments.promote(oneOrg(orgId), own.projectId, own.deploymentId, now, entry), noSuchProject],
      [deployments.promote(everyOrg, yield* newId, own.deploymentId, now, entry), noSuchProject],
      [deployments.promote(everyOrg, own.projectId, other.deploymentId, now, entry), noSuchDeployment],
      [deployments.promote(everyOrg, own.projectId, yield* newId, now, entry), noSuchDeployment],
    ] as const
    for (const [tried, expected] of tries) assert.strictEqual(yield* failureOf(tried), expected)
    assert.strictEqual(yield* current(own.projectId), own.deploymentId)
  })

  it.effect("pins: a run of another workflow or environment is a preview and never becomes current", function* () {
    const repository = newRepository()
    const folder = `${repository.owner}/${repository.repo}`
    const { projectId, deploymentId } = yield* register(push(repository))
    yield* pin(projectId, { workflow: ".github/workflows/deploy.yml", environment: "production" })
    const others = [
      { workflowFile: `${folder}/.github/workflows/lint.yml`, environment: "production" },
      { workflowFile: `${folder}/.github/workflows/deploy.yml`, environment: "staging" },
      { workflowFile: `${folder}/.github/workflows/deploy.yml` },
      { workflowFile: `stranger/${repository.repo}/.github/workflows/deploy.yml`, environment: "production" },
      { workflowFile: null, environment: "production" },
    ]
    for (const other of others) {
      const registered = yield* register(push(repository, other))
      assert.strictEqual(registered.preview, true)
      assert.strictEqual(yield* current(projectId), deploymentId)
    }
    const pinned = { workflowFile: `${folder.toUpperCase()}/.github/workflows/deploy.yml`, environment: "Production" }
    const registered = yield* register(push(repository, pinned))
    assert.deepStrictEqual([registered.preview, yield* current(projectId)], [false, registered.deploymentId])
    const previews = yield* deploymentsOf(projectId)
    const reason = /^The link pins the (workflow|environment) .*, and the run is (?:of|in) .*\.$/
    assert.deepStrictEqual(
      previews.map(({ preview, previewReason }) => (preview ? reason.exec(previewReason!)?.[1] : previewReason)),
      [null, "workflow", "workflow", "environment", "environment", "workflow", null],
    )
  })

  it.effect("pins: a repeated run is answered with what its deployment is", function* () {
    const repository = newRepository()
    const { projectId, deploymentId } = yield* register(push(repository))
    yield* pin(projectId, { workflow: ".github/workflows/deploy.yml" })
    const [one, other] = [push(repository), push(repository)]
    const unpinned = { workflowFile: null }
    assert.strictEqual((yield* register({ ...one, ...unpinned })).preview, true)
    assert.strictEqual((yield* register(one)).preview, true)
    assert.strictEqual(yield* current(projectId), deploymentId)
    assert.strictEqual((yield* register(other)).preview, false)
    assert.strictEqual((yield* register({ ...other, ...unpinned })).preview, false)
    const recorded = yield* deploymentsOf(projectId)
    assert.deepStrictEqual(
      recorded.map(({ preview }) => preview),
      [false, true, false],
    )
  })

  it.effect("pins: a reusable workflow of another repository is pinned by its full name", function* () {
    const repository = newRepository()
    const { projectId } = yield* register(push(repository))
    const workflow = "octo-org/automation/.github/workflows/deploy.yml"
    yield* pin(projectId, { workflow })
    const own = yield* register(push(repository))
    assert.strictEqual(own.preview, true)
    const reused = yield* register(push(repository, { workflowFile: workflow }))
    assert.deepStrictEqual([reused.preview, yield* current(projectId)], [false, reused.deploymentId])
  })

  it.effect("pins: a run that does not match the pins does not set the default branch", function* () {
    const { project } = yield* insertTenant
    const repository = newRepository()
    const link = { provider: "github", hostOwner: repository.owner, hostRepo: repository.repo, environment: null }
    const pinned = { ...link, workflow: "release.yml" }
    yield* ProjectRepository.use((projects) => projects.putLink(everyOrg, project.projectId, pinned, at(1), newEntry()))
    yield* register(push(repository))
    const { currentDeploymentId, defaultBranch } = yield* findProject(project.projectId)
    assert.deepStrictEqual([defaultBranch, currentDeploymentId], [null, null])
  })

  it.effect("list: filters by branch and by preview", function* () {
    const deployments = yield* DeploymentRepository
    const repository = newRepository()
    const isPreview = { previewReason: "It is a test." }
    const runs = [{}, { branch: "next" }, isPreview, { branch: "next", ...isPreview }, {}]
    const ids: Array<string> = []
    let projectId = ""
    for (const run of runs) {
      const registered = yield* register(push(repository, run))
      projectId = registered.projectId
      ids.push(registered.deploymentId)
    }
    const listed = (filter: { readonly branch?: string; readonly preview?: boolean }) =>
      Effect.map(itemsOf(deployments.list(everyOrg, projectId, { limit: 10, ...filter })), (rows) =>
        rows.map(({ id }) => ids.indexOf(id)),
      )
    assert.deepStrictEqual(yield* listed({ branch: "main" }), [4, 2, 0])
    assert.deepStrictEqual(yield* listed({ preview: true }), [3, 2])
    assert.deepStrictEqual(yield* listed({ branch: "next", preview: false }), [1])
    assert.deepStrictEqual(yield* listed({ branch: "none" }), [])
  })

  it.effect("issuers: repositories of two issuers with the same ids and names are different", function* () {
    const repository = newRepository()
    const onGitHub = yield* register(push(repository, { runId: "600" }))
    const onGitLab = yield* register(push(repository, { provider: "gitlab", issuer: gitlabIssuer, runId: "600" }))
    const selfManaged = { provider: "gitlab", issuer: "https://gitlab.example", runId: "600" }
    const onOwn = yield* register(push(repository, selfManaged))
    const projects = new Set([onGitHub, onGitLab, onOwn].map(({ projectId }) => projectId))
    assert.strictEqual(projects.size, 3)
    for (const { deploymentId, projectId } of [onGitHub, onGitLab, onOwn]) {
      assert.strictEqual(yield* current(projectId), deploymentId)
    }
    assert.strictEqual((yield* register(push(repository), { link: true })).projectId, onGitHub.projectId)
    assert.strictEqual(
      (yield* register(push(repository, { ...selfManaged, runId: "601" }), { link: true })).projectId,
      onOwn.projectId,
    )
  })
}
