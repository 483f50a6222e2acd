import * as DocsSearch from "../../src/domain/chat/DocsSearch.ts"
import { figuresOf, judge, type Judged } from "../questions/judge.ts"
import { halves, questionSets } from "../questions/sets.ts"
import { amount, atLeast, atMost, type Scenario } from "../support/result.ts"

const percent = (share: number) => `${(100 * share).toFixed(1)} %`

const rowOf = (name: string, judged: ReadonlyArray<Judged>) => {
  const { questions, recallAt1, recallAt3, exactNames, falseAnswers } = figuresOf(judged)
  return [name, amount(questions), ...[recallAt1, recallAt3, exactNames, falseAnswers].map(percent)]
}

/** How well the chat finds answers: bench/questions. */
export const chat: Scenario = {
  name: "chat",
  title: "Find answers in documentation",
  about:
    "Questions of readers about five documentation sets: names, plain words, typing errors, follow-ups, questions about the " +
    "reader's page, and questions that the documentation does not answer. The search was tuned with one half of each set; " +
    "the other half is only measured. Recall at 1 and 3: a right passage is the first, or one of the three that are quoted. " +
    "False answers: the share of the unanswerable questions with an answer.",
  run: async (_, { say }) => {
    const tuning: Array<Judged> = []
    const heldOut: Array<Judged> = []
    const rows: Array<ReadonlyArray<string>> = []
    for (const { name, pages, questions } of questionSets()) {
      say(`${name}: ${pages.length} pages, ${questions.length} questions`)
      const index = DocsSearch.make(pages)
      const half = halves(questions)
      const judged = [half.tuning, half.heldOut].map((some) => some.map((question) => judge(index, question)))
      tuning.push(...judged[0]!)
      heldOut.push(...judged[1]!)
      rows.push(rowOf(`${name}, ${pages.length} pages`, judged.flat()))
    }
    rows.push(rowOf("all, tuning half", tuning), rowOf("all, held-out half", heldOut))
    const bars = Object.entries({ "tuning half": tuning, "held-out half": heldOut }).flatMap(([half, judged]) => {
      const { recallAt1, recallAt3, exactNames, falseAnswers } = figuresOf(judged)
      return [
        atLeast(`recall at 1, ${half}`, 90, 100 * recallAt1, " %"),
        atLeast(`recall at 3, ${half}`, 97, 100 * recallAt3, " %"),
        atLeast(`exact names, ${half}`, 100, 100 * exactNames, " %"),
        atMost(`false answers, ${half}`, 3, 100 * falseAnswers, " %"),
      ]
    })
    const columns = ["", "questions", "recall at 1", "recall at 3", "exact names", "false answers"]
    return { tables: [{ title: "Questions about documentation", columns, rows }], bars, notes: [] }
  },
}
