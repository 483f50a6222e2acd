import { assert } from "@effect/vitest"
import { Effect } from "effect"
import type { NewQuestion, QuestionFilter } from "#src/domain/docs/DocsQuestion.ts"
import { DocsQuestionRepository } from "#src/domain/docs/DocsQuestions.ts"
import { type DocsOf, ProjectDocsRepository } from "#src/domain/docs/ProjectDocsRepository.ts"
import { assertPages, at, everyOrg, insertTenant, type It, itemsOf, newEntry, newId } from "../support.ts"

/** Promise (Documentation) */

const settings = { docsZipUrl: "https://docs.example.com/docs.zip", docsUrl: null, public: false, keepQuestions: true }

/** A project whose owner keeps questions. */
export const insertDocs = Effect.fnUntraced(function* (changes: Partial<typeof settings> = {}, since = at(0)) {
  const { orgId, project } = yield* insertTenant
  const { projectId } = project
  yield* ProjectDocsRepository.use((docs) =>
    docs.put(everyOrg, projectId, { ...settings, ...changes }, since, newEntry()),
  )
  return { orgId, projectId } satisfies DocsOf
})

export const asked = Effect.fnUntraced(function* (docs: DocsOf, changes: Partial<NewQuestion> = {}) {
  const question = "How do I rotate a key?"
  const made = { ...docs, id: yield* newId, askedAt: at(0), question, topic: "rotate", found: true, thumb: null }
  return { ...made, ...changes } satisfies NewQuestion
})

export const list = (docs: DocsOf, filter: QuestionFilter = {}) =>
  DocsQuestionRepository.use((questions) => itemsOf(questions.list(docs, { limit: 100, ...filter })))
const idsOf = (rows: ReadonlyArray<{ readonly id: string }>) => rows.map(({ id }) => id)

/** Questions of readers. */
export const docsQuestions = (it: It) => {
  it.effect("questions are kept for projects that want them, and listed newest first in pages", function* () {
    const questions = yield* DocsQuestionRepository
    const [docs, other, off] = [yield* insertDocs(), yield* insertDocs(), yield* insertDocs({ keepQuestions: false })]
    const awkward = { question: `O'Brien "quoted" \\ $1 😀`, found: false, thumb: "down" as const }
    const own = [yield* asked(docs), yield* asked(docs, awkward), yield* asked(docs)]
    yield* questions.insert([...own, yield* asked(other), yield* asked(off)], 100)
    yield* questions.insert([own[0]!], 100)
    const [, second] = yield* list(docs)
    assert.deepStrictEqual(second, { id: own[1]!.id, askedAt: at(0), ...awkward })
    const newest = idsOf(own).toReversed()
    yield* assertPages(
      (page) => questions.list(docs, page),
      ({ id }) => id,
      newest,
    )
    assert.deepStrictEqual(idsOf(yield* list(docs, { found: false })), [own[1]!.id])
    assert.deepStrictEqual(idsOf(yield* list(docs, { found: true })), [own[2]!.id, own[0]!.id])
    assert.deepStrictEqual(idsOf(yield* list(docs, { thumb: "down" })), [own[1]!.id])
    assert.strictEqual((yield* list(other)).length, 1)
    assert.deepStrictEqual(yield* list(off), [])
    assert.deepStrictEqual(yield* list({ orgId: other.orgId, projectId: docs.projectId }), [])
  })

  it.effect("questions of a range have its start and not its end", function* () {
    const questions = yield* DocsQuestionRepository
    const docs = yield* insertDocs()
    const all = yield* Effect.forEach([0, 1, 2, 3], (seconds) => asked(docs, { askedAt: at(seconds) }))
    yield* questions.insert(all, 100)
    assert.deepStrictEqual(idsOf(yield* list(docs, { since: at(1), until: at(3) })), [all[2]!.id, all[1]!.id])
    assert.deepStrictEqual(idsOf(yield* list(docs, { since: at(3) })), [all[3]!.id])
    assert.deepStrictEqual(idsOf(yield* list(docs, { until: at(1) })), [all[0]!.id])
    const [most] = yield* questions.mostAsked(docs, { limit: 10, since: at(1), until: at(3) })
    assert.deepInclude(most, { times: 2, lastAskedAt: at(2) })
  })

  it.effect("feedback belongs to a question of the project", function* () {
    const questions = yield* DocsQuestionRepository
    const [docs, other] = [yield* insertDocs(), yield* insertDocs()]
    const one = yield* asked(docs)
    yield* questions.insert([one], 100)
    assert.isFalse(yield* questions.setThumb(other, one.id, "down"))
    assert.isTrue(yield* questions.setThumb(docs, one.id, "down"))
    assert.isTrue(yield* questions.setThumb(docs, one.id, "up"))
    assert.deepStrictEqual((yield* list(docs))[0]!.thumb, "up")
    assert.isFalse(yield* questions.setThumb(docs, "unknown", "up"))
    // A question is written again when its write was not known to have ended.
    yield* questions.insert([one], 100)
    assert.deepStrictEqual((yield* list(docs))[0]!.thumb, "up")
    yield* questions.insert([{ ...one, thumb: "down" }], 100)
    assert.deepStrictEqual((yield* list(docs))[0]!.thumb, "down")
  })

  it.effect("the most asked come first, with what became of them", function* () {
    const questions = yield* DocsQuestionRepository
    const docs = yield* insertDocs()
    const all = [
      yield* asked(docs, { topic: "a", question: "A?", found: false, thumb: "down", askedAt: at(1) }),
      yield* asked(docs, { topic: "b", question: "B?", found: false }),
      yield* asked(docs, { topic: "a", question: "a!", thumb: "up", askedAt: at(2) }),
      yield* asked(docs, { topic: "c", question: "C?" }),
    ]
    yield* questions.insert(all, 100)
    const [a, c] = yield* questions.mostAsked(docs, { limit: 2 })
    assert.deepStrictEqual(a, {
      question: "a!",
      times: 2,
      notFound: 1,
      thumbsUp: 1,
      thumbsDown: 1,
      lastAskedAt: at(2),
    })
    assert.deepInclude(c, { question: "C?", times: 1, notFound: 0 })
    const missing = yield* questions.mostAsked(docs, { limit: 10, found: false })
    assert.deepStrictEqual(
      missing.map(({ question, times }) => [question, times]),
      [
        ["B?", 1],
        ["A?", 1],
      ],
    )
  })

  it.effect("a project keeps its newest questions; old ones and those that are erased go", function* () {
    const questions = yield* DocsQuestionRepository
    const [docs, other] = [yield* insertDocs({}, at(-1_000)), yield* insertDocs()]
    const all = yield* Effect.forEach([0, 1, 2, 3, 4], (seconds) => asked(docs, { askedAt: at(seconds - 1_000) }))
    const kept = yield* asked(other)
    yield* questions.insert([...all, kept], 3)
    assert.deepStrictEqual(idsOf(yield* list(docs)), idsOf(all).slice(2).toReversed())
    assert.isAtLeast(yield* questions.removeOld(at(3 - 1_000), 10), 1)
    assert.deepStrictEqual(idsOf(yield* list(docs)), idsOf(all).slice(3).toReversed())
    assert.strictEqual(yield* questions.erase(docs, at(0), 1), 1)
    assert.strictEqual(yield* questions.erase(docs, at(0), 5), 1)
    assert.deepStrictEqual(yield* list(docs), [])
    assert.deepStrictEqual(idsOf(yield* list(other)), [kept.id])
  })

  it.effect("questions of removed documentation are erased with it", function* () {
    const [repository, questions] = [yield* ProjectDocsRepository, yield* DocsQuestionRepository]
    const docs = yield* insertDocs()
    yield* questions.insert([yield* asked(docs), yield* asked(docs)], 100)
    yield* repository.remove(everyOrg, docs.projectId, at(1), newEntry())
    const leased = { ...docs, lease: yield* newId }
    assert.isTrue(yield* repository.claim(leased, 2, at(2), at(30)))
    assert.strictEqual(yield* repository.clean(leased, 10), 2)
    assert.deepStrictEqual(yield* list(docs), [])
    yield* questions.insert([yield* asked(docs)], 100)
    assert.deepStrictEqual(yield* list(docs), [])
  })

  // Seen failing: the questions of before stayed when the documentation was set before they were erased.
  it.effect("documentation that is set again at once has no questions from before its removal", function* () {
    const [repository, questions] = [yield* ProjectDocsRepository, yield* DocsQuestionRepository]
    const [docs, other] = [yield* insertDocs(), yield* insertDocs()]
    const set = () => repository.put(everyOrg, docs.projectId, settings, at(2), newEntry())
    yield* questions.insert([yield* asked(docs), yield* asked(docs), yield* asked(other)], 100)
    yield* set()
    assert.strictEqual((yield* list(docs)).length, 2)
    yield* repository.remove(everyOrg, docs.projectId, at(1), newEntry())
    yield* set()
    assert.deepStrictEqual(yield* list(docs), [])
    // Replicas write questions up to a second after they were asked.
    const later = yield* asked(docs, { askedAt: at(2) })
    yield* questions.insert([yield* asked(docs), yield* asked(docs, { askedAt: at(1) }), later], 100)
    assert.deepStrictEqual(idsOf(yield* list(docs)), [later.id])
    assert.strictEqual((yield* list(other)).length, 1)
  })

  // Seen failing: a question that was asked just before came back with the next write of its replica.
  it.effect("questions from before an erasure that are written after it are not kept", function* () {
    const questions = yield* DocsQuestionRepository
    const docs = yield* insertDocs()
    yield* questions.insert([yield* asked(docs)], 100)
    assert.strictEqual(yield* questions.erase(docs, at(5), 10), 1)
    const later = yield* asked(docs, { askedAt: at(5) })
    yield* questions.insert([yield* asked(docs, { askedAt: at(4) }), later], 100)
    assert.deepStrictEqual(idsOf(yield* list(docs)), [later.id])
  })
}
