import { expect, it } from "vitest"
import * as DocsSearch from "#src/domain/docs/DocsSearch.ts"
import { figuresOf, judge } from "../../../bench/questions/judge.ts"
import { questionSets } from "../../../bench/questions/sets.ts"

/**
 * Promise (Documentation): The chat finds the names and most answers of a public question set, and nothing for what is
 * not answered.
 */

it("finds the answers of the public question set and all names, and nothing for unanswerable questions", () => {
  const judged = questionSets().flatMap(({ pages, questions }) => {
    const index = DocsSearch.make(pages)
    return questions.map((question) => judge(index, question))
  })
  const { questions, recallAt1, recallAt3, exactNames, falseAnswers } = figuresOf(judged)
  expect(questions).toBeGreaterThan(300)
  expect(recallAt1).toBeGreaterThanOrEqual(0.9)
  expect(recallAt3).toBeGreaterThanOrEqual(0.95)
  expect(exactNames).toBe(1)
  // At most two of 43. One set has pages of this repository, which change. The bench reports the figure.
  expect(falseAnswers).toBeLessThan(0.05)
})
