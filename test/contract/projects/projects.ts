import { assert } from "@effect/vitest"
import { Effect, Option, Schema } from "effect"
import { OrgRepository } from "#src/domain/orgs/Orgs.ts"
import { Project } from "#src/domain/projects/Project.ts"
import { ProjectRepository } from "#src/domain/projects/Projects.ts"
import type { It } from "../support.ts"
import {
  noRows,
  itemsOf,
  assertPages,
  at,
  awkwardTexts,
  everyOrg,
  failureOf,
  findProject,
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

export const shown = Schema.encodeSync(Project)
const idOf = ({ projectId }: Project) => projectId

/** The default org is created once. The test needs a database without one, so it runs before every other test. */
export const defaultOrg = (it: It) => {
  it.effect("projects: concurrent first projects create one default org", function* () {
    const orgs = yield* OrgRepository
    assert.deepStrictEqual(yield* orgs.list(everyOrg, { limit: 1 }), noRows)
    // Empty transactions open the connections first, so that the next ones run at the same time.
    const unknown = yield* newId
    yield* Effect.replicateEffect(Effect.flip(insertProject(unknown)), 20, { concurrency: "unbounded" })
    const projects = yield* Effect.all(
      Array.from({ length: 20 }, (_, i) =>
        i % 2 === 0
          ? insertProject(undefined)
          : Effect.flatMap(register(push(newRepository())), ({ projectId }) => findProject(projectId)),
      ),
      { concurrency: "unbounded" },
    )
    const [org, ...others] = yield* itemsOf(orgs.list(everyOrg, { limit: 1 }))
    assert.deepStrictEqual(others, [])
    assert.strictEqual(org!.name, "Default")
    assert.deepStrictEqual(new Set(projects.map(({ orgId }) => orgId)), new Set([org!.orgId]))
    assert.strictEqual(new Set(projects.map(idOf)).size, 20)
  })
}

/** The contract of every ProjectRepository, without `update`. */
export const projects = (it: It) => {
  it.effect("projects: a new project has its ten fields, with null for those that are set later", function* () {
    const { orgId } = yield* insertOrg()
    for (const name of awkwardTexts) {
      const project = yield* insertProject(orgId, name)
      assert.deepStrictEqual(shown(project), {
        projectId: project.projectId,
        orgId,
        name,
        subdomain: null,
        currentDeploymentId: null,
        defaultBranch: null,
        hostOwner: null,
        hostRepo: null,
        createdAt: "2026-11-20T17:00:00.123Z",
        updatedAt: "2026-11-20T17:00:00.123Z",
      })
      const found = yield* findProject(project.projectId)
      const { keyPrefix: _, ...fields } = Project.fields
      assert.deepStrictEqual(Object.keys(found).sort(), Object.keys(fields).sort())
      assert.deepStrictEqual(shown(found), shown(project))
    }
  })

  it.effect("projects: an unknown org is not found, and no project is created", function* () {
    const before = yield* newId
    const unknown = yield* newId
    const scope = oneOrg(unknown)
    assert.strictEqual(yield* failureOf(insertProject(unknown)), noSuchOrg)
    assert.deepStrictEqual(yield* (yield* OrgRepository).list(everyOrg, { limit: 1, cursor: before }), noRows)
    assert.deepStrictEqual(yield* (yield* ProjectRepository).list(scope, { limit: 1 }), noRows)
  })

  it.effect("projects: projects without an org all go into one org", function* () {
    const { orgId } = yield* insertProject(undefined)
    assert.strictEqual((yield* insertProject(undefined)).orgId, orgId)
    assert.strictEqual((yield* (yield* OrgRepository).find(orgId)).name, "Default")
  })

  it.effect("projects: a project of another org is not found, as if it did not exist", function* () {
    const repository = yield* ProjectRepository
    const own = yield* insertTenant
    const foreign = yield* insertTenant
    const scope = oneOrg(own.orgId)
    assert.strictEqual((yield* repository.find(scope, own.project.projectId)).orgId, own.orgId)
    assert.strictEqual(yield* failureOf(repository.find(scope, foreign.project.projectId)), noSuchProject)
    assert.strictEqual(yield* failureOf(repository.find(scope, yield* newId)), noSuchProject)
    assert.strictEqual(yield* failureOf(repository.find(everyOrg, yield* newId)), noSuchProject)
  })

  it.effect("projects: projects created at the same time succeed or fail independently", function* () {
    const { orgId } = yield* insertOrg()
    const orgs = [orgId, yield* newId, undefined, orgId]
    const made = yield* Effect.forEach(orgs, (org) => Effect.option(insertProject(org)), { concurrency: "unbounded" })
    const defaultOrg = (yield* insertProject(undefined)).orgId
    const found = made.map((project) => Option.getOrUndefined(project)?.orgId)
    assert.deepStrictEqual(found, [orgId, undefined, defaultOrg, orgId])
  })

  it.effect("projects: lists the projects of one org, oldest first, in pages", function* () {
    const repository = yield* ProjectRepository
    const { orgId } = yield* insertOrg()
    const foreign = yield* insertTenant
    const before = yield* newId
    const ids = [yield* newId, yield* newId, yield* newId, yield* newId]
    for (const projectId of ids.toReversed()) {
      const project = { projectId, name: "docs", orgId, newOrgId: yield* newId, now: at(0) }
      yield* repository.insert(project, newEntry())
    }
    const others = [yield* insertProject(foreign.orgId), yield* insertProject(foreign.orgId)]
    yield* assertPages((page) => repository.list(oneOrg(orgId), page), idOf, ids)
    yield* assertPages((page) => repository.list(oneOrg(foreign.orgId), page), idOf, others.map(idOf), before)
    yield* assertPages((page) => repository.list(everyOrg, page), idOf, [...ids, ...others.map(idOf)], before)
  })
}
