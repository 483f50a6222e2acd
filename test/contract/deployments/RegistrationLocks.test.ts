import { assert } from "@effect/vitest"
import { Layer } from "effect"
import type { UpdateProject } from "#src/domain/projects/Project.ts"
import { ProjectRepository } from "#src/domain/projects/Projects.ts"
import * as DeploymentsSql from "#src/infrastructure/deployments/deploymentsSql.ts"
import * as OrgsSql from "#src/infrastructure/orgs/orgsSql.ts"
import * as ProjectsSql from "#src/infrastructure/projects/projectsSql.ts"
import { databases } from "../../support/databases.ts"
import { layer } from "../../support/it.ts"
import { meanwhile } from "../meet.ts"
import { shown } from "../projects/projects.ts"
import { at, deploymentsOf, everyOrg, findProject, newEntry, newRepository, push, register } from "../support.ts"

const repositories = Layer.mergeAll(DeploymentsSql.layer, OrgsSql.layer, ProjectsSql.layer)

const update = (projectId: string, changes: UpdateProject) =>
  ProjectRepository.use((projects) => projects.update(everyOrg, projectId, changes, at(1), newEntry()))

// Runs on PostgreSQL only: the embedded database has one session, so sessions never meet there.
layer(Layer.provideMerge(repositories, databases.postgres), { excludeTestServices: true })(
  "locks of registrations",
  (it) => {
    // Seen failing without the lock on the project's row: the run links the project again and is recorded for it.
    it.effect("a run that registers during a manual change of its project sees the changed project", function* () {
      const repository = newRepository()
      const { projectId, deploymentId } = yield* register(push(repository))
      yield* meanwhile(update(projectId, { defaultBranch: "release" }), register(push(repository)))
      const project = yield* findProject(projectId)
      assert.deepStrictEqual([project.defaultBranch, project.currentDeploymentId], ["release", deploymentId])
      assert.strictEqual((yield* deploymentsOf(projectId)).length, 2)

      for (const changes of [
        { hostOwner: null, hostRepo: null },
        { hostOwner: repository.owner, hostRepo: "another" },
      ]) {
        const [unlinked, late] = yield* meanwhile(
          update(projectId, changes),
          register(push(repository), { link: true }),
        )
        assert.deepStrictEqual(late.outcome, { _tag: "NotLinked" })
        assert.deepStrictEqual(shown(yield* findProject(projectId)), shown(unlinked))
        yield* update(projectId, { hostOwner: repository.owner, hostRepo: repository.repo })
        assert.strictEqual((yield* register(push(repository), { link: true })).projectId, projectId)
      }
    })

    it.effect("a run that registers twice at the same time is recorded once", function* () {
      const repository = newRepository()
      const { projectId } = yield* register(push(repository))
      const run = push(repository)
      const [first, second] = yield* meanwhile(register(run), register({ ...run, sha: "0".repeat(40) }))
      assert.deepStrictEqual([first.projectId, second.projectId], [projectId, projectId])
      assert.strictEqual((yield* deploymentsOf(projectId)).length, 2)
      assert.strictEqual((yield* findProject(projectId)).currentDeploymentId, first.deploymentId)
    })
  },
)
