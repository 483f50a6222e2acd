import { assert } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { DocsQuestionRepository } from "#src/domain/docs/DocsQuestions.ts"
import { ProjectDocsRepository } from "#src/domain/docs/ProjectDocsRepository.ts"
import * as DocsQuestionsSql from "#src/infrastructure/docs/docsQuestionsSql.ts"
import * as ProjectDocsSql from "#src/infrastructure/docs/projectDocsSql.ts"
import * as OrgsSql from "#src/infrastructure/orgs/orgsSql.ts"
import * as ProjectsSql from "#src/infrastructure/projects/projectsSql.ts"
import { databases } from "../../support/databases.ts"
import { layer } from "../../support/it.ts"
import { meanwhile } from "../meet.ts"
import { at, everyOrg, newEntry, newId } from "../support.ts"
import { asked, insertDocs, list } from "./docsQuestions.ts"

const repositories = Layer.mergeAll(DocsQuestionsSql.layer, ProjectDocsSql.layer, OrgsSql.layer, ProjectsSql.layer)

// Runs on PostgreSQL only: the embedded database has one session, so sessions never meet there.
layer(Layer.provideMerge(repositories, databases.postgres), { excludeTestServices: true })(
  "locks of questions",
  (it) => {
    // Seen failing without the lock on the documentation's row: the removal does not wait, and its erasure misses the
    // questions.
    it.effect(
      "a removal of documentation waits for questions that are being written, and they go with it",
      function* () {
        const [repository, questions] = [yield* ProjectDocsRepository, yield* DocsQuestionRepository]
        const docs = yield* insertDocs()
        const insert = Effect.flatMap(asked(docs), (one) => questions.insert([one], 100))
        const remove = repository.remove(everyOrg, docs.projectId, at(1), newEntry())
        yield* meanwhile(insert, remove)
        const leased = { ...docs, lease: yield* newId }
        assert.isTrue(yield* repository.claim(leased, 2, at(2), at(30)))
        assert.strictEqual(yield* repository.clean(leased, 10), 1)
      },
    )

    it.effect("questions that wait for a removal of documentation are not kept", function* () {
      const [repository, questions] = [yield* ProjectDocsRepository, yield* DocsQuestionRepository]
      const docs = yield* insertDocs()
      const insert = Effect.flatMap(asked(docs), (one) => questions.insert([one], 100))
      yield* meanwhile(repository.remove(everyOrg, docs.projectId, at(1), newEntry()), insert)
      assert.deepStrictEqual(yield* list(docs), [])
    })
  },
)
