import { DateTime, Effect, Layer } from "effect"
import type { NewQuestion, QuestionFilter } from "#src/domain/docs/DocsQuestion.ts"
import { DocsQuestionRepository } from "#src/domain/docs/DocsQuestions.ts"
import type { DocsOf } from "#src/domain/docs/ProjectDocsRepository.ts"
import { pageOf, World } from "./World.ts"

const newestFirst = (a: NewQuestion, b: NewQuestion) => (a.id < b.id ? 1 : -1)

/** Questions of readers in memory. */
export const layer = Layer.effect(
  DocsQuestionRepository,
  Effect.map(World, ({ docs, questions }) => {
    const ofProject = ({ orgId, projectId }: DocsOf, { found, since, thumb, until }: QuestionFilter = {}) =>
      [...questions.values()]
        .filter((one) => one.orgId === orgId && one.projectId === projectId)
        .filter((one) => (found ?? one.found) === one.found && (thumb ?? one.thumb) === one.thumb)
        .filter(({ askedAt }) => since === undefined || DateTime.isGreaterThanOrEqualTo(askedAt, since))
        .filter(({ askedAt }) => until === undefined || DateTime.isLessThan(askedAt, until))
        .sort(newestFirst)

    return DocsQuestionRepository.of({
      insert: (asked, perProject) =>
        Effect.sync(() => {
          for (const one of asked) {
            const found = docs.get(one.projectId)
            if (found?.orgId !== one.orgId || !found.keepQuestions || found.docsZipUrl === null) continue
            if (DateTime.isLessThan(one.askedAt, found.updatedAt)) continue
            const thumb = one.thumb ?? questions.get(one.id)?.thumb ?? null
            questions.set(one.id, { ...one, thumb })
          }
          for (const one of asked) for (const { id } of ofProject(one).slice(perProject)) questions.delete(id)
        }),
      setThumb: (of, id, thumb) =>
        Effect.sync(() => {
          const found = ofProject(of).find((one) => one.id === id)
          if (found !== undefined) questions.set(id, { ...found, thumb })
          return found !== undefined
        }),
      list: (of, page) =>
        Effect.sync(() => {
          const rows = ofProject(of, page).map(({ askedAt, found, id, question, thumb }) => ({
            id,
            question,
            askedAt,
            found,
            thumb,
          }))
          return pageOf(rows, ({ id }) => id, page, -1)
        }),
      mostAsked: (of, { limit, ...filter }) =>
        Effect.sync(() => {
          const topics = [...Map.groupBy(ofProject(of, filter), ({ topic }) => topic).values()]
          const count = (all: ReadonlyArray<NewQuestion>, is: (one: NewQuestion) => boolean) => all.filter(is).length
          return topics
            .sort((a, b) => b.length - a.length || newestFirst(a[0]!, b[0]!))
            .slice(0, limit)
            .map((all) => ({
              question: all[0]!.question,
              times: all.length,
              notFound: count(all, ({ found }) => !found),
              thumbsUp: count(all, ({ thumb }) => thumb === "up"),
              thumbsDown: count(all, ({ thumb }) => thumb === "down"),
              lastAskedAt: all.map(({ askedAt }) => askedAt).reduce((a, b) => DateTime.max(a, b)),
            }))
        }),
      erase: (of, now, limit) =>
        Effect.sync(() => {
          const found = docs.get(of.projectId)
          if (found !== undefined) docs.set(of.projectId, { ...found, updatedAt: DateTime.max(found.updatedAt, now) })
          const gone = ofProject(of).slice(0, limit)
          for (const { id } of gone) questions.delete(id)
          return gone.length
        }),
      removeOld: (before, limit) =>
        Effect.sync(() => {
          const old = [...questions.values()].filter(({ askedAt }) => DateTime.isLessThan(askedAt, before))
          for (const { id } of old.slice(0, limit)) questions.delete(id)
          return Math.min(old.length, limit)
        }),
    })
  }),
)
