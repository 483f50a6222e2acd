import { assert } from "@effect/vitest"
import { Schema } from "effect"
import { Deployment } from "#src/domain/deployments/Deployment.ts"
import { DeploymentRepository } from "#src/domain/deployments/Deployments.ts"
import type { It } from "../support.ts"
import {
  noRows,
  assertPages,
  awkwardTexts,
  deploymentsOf,
  everyOrg,
  findProject,
  insertOrg,
  newId,
  newRepository,
  oneOrg,
  push,
  register,
} from "../support.ts"

const shown = Schema.encodeSync(Deployment)
const idOf = ({ id }: Deployment) => id

/** The contract of `list` in every DeploymentRepository. */
export const deployments = (it: It) => {
  it.effect("deployments: returns every field of a run", function* () {
    const repository = newRepository()
    const text = awkwardTexts[0]!
    const run = push(repository, {
      branch: text,
      ref: awkwardTexts[1]!,
      sha: "f".repeat(64),
      previewReason: awkwardTexts[2]!,
      pullRequest: 999_999_999,
      runId: "9223372036854775807",
      runAttempt: 999_999_999,
      workflow: awkwardTexts[3]!,
      actor: text,
      environment: text,
    })
    const { projectId, deploymentId } = yield* register(run, { seconds: 4 })
    const { orgId } = yield* findProject(projectId)
    const { owner: _, repo: __, ownerId: ___, repositoryId: ____, ...claimed } = run
    const { issuer: _____, issuedAt: ______, workflowFile: _______, ...fields } = claimed
    const [row] = yield* deploymentsOf(projectId)
    assert.deepStrictEqual(Object.keys(row!).sort(), Object.keys(Deployment.fields).sort())
    assert.deepStrictEqual(shown(row!), {
      ...fields,
      preview: true,
      id: deploymentId,
      projectId,
      orgId,
      createdAt: "2026-11-20T17:00:04.123Z",
    })
  })

  it.effect("deployments: returns null for each field that a run omits", function* () {
    const { projectId } = yield* register(push(newRepository()))
    const { pullRequest, workflow, actor, environment } = (yield* deploymentsOf(projectId))[0]!
    assert.deepStrictEqual([pullRequest, workflow, actor, environment], [null, null, null, null])
  })

  it.effect("deployments: lists the deployments of one project, newest first, in pages", function* () {
    const repository = yield* DeploymentRepository
    const [own, other] = [newRepository(), newRepository()]
    const ids: Array<string> = []
    let projectId = ""
    for (let i = 0; i < 4; i++) {
      const registered = yield* register(push(own))
      projectId = registered.projectId
      ids.unshift(registered.deploymentId)
      yield* register(push(other))
    }
    yield* assertPages((page) => repository.list(everyOrg, projectId, page), idOf, ids)
    const { orgId } = yield* findProject(projectId)
    yield* assertPages((page) => repository.list(oneOrg(orgId), projectId, page), idOf, ids, yield* newId)
  })

  it.effect("deployments: another org sees none of them", function* () {
    const repository = yield* DeploymentRepository
    const { projectId } = yield* register(push(newRepository()))
    const { orgId } = yield* insertOrg()
    assert.deepStrictEqual(yield* repository.list(oneOrg(orgId), projectId, { limit: 10 }), noRows)
    assert.deepStrictEqual(yield* repository.list(oneOrg(yield* newId), projectId, { limit: 10 }), noRows)
    assert.deepStrictEqual(yield* repository.list(everyOrg, yield* newId, { limit: 10 }), noRows)
  })
}
