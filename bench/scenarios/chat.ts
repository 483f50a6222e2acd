import * as DocsSearch from "../../src/domain/docs/DocsSearch.ts"
import { figuresOf, judge, type Judged } from "../questions/judge.ts"
import { halves, questionSets } from "../questions/sets.ts"
import { join } from "node:path"
import { smallChatsBeside, startDocs, startReader } from "../support/chatLoad.ts"
import { folder } from "../support/postgres.ts"
import { amount, atLeast, atMost, figure, type Found, type RunOptions, type Scenario } from "../support/result.ts"
import type { Scope } from "../support/scope.ts"
import { startService } from "../support/service.ts"
import { percentile } from "../support/stats.ts"

const percent = (share: number) => `${(100 * share).toFixed(1)} %`

const rowOf = (name: string, judged: ReadonlyArray<Judged>) => {
  const { questions, recallAt1, recallAt3, exactNames, falseAnswers } = figuresOf(judged)
  return [name, amount(questions), ...[recallAt1, recallAt3, exactNames, falseAnswers].map(percent)]
}

/** The zips that another org's chats bring at the same time. */
const largeZips = 10

/** How soon the chat answers over HTTP: with cached pages, and beside large documentation of another org. */
const answerTimes = async (scope: Scope, { quick, say }: RunOptions): Promise<Found> => {
  const home = folder(scope)
  const environment = { DATA_DIR: join(home, "data"), ALLOW_PRIVATE_NETWORKS: "true" }
  const [service, docs] = [await startService(scope, home, environment), await startDocs(scope, largeZips)]
  const [chat, other] = [await startReader(service), await startReader(service)]

  const cached = { docsZipUrl: `${docs}/small` }
  for (let n = 0; n < 20; n++) await chat(cached)
  const first: Array<number> = []
  for (let n = 0; n < (quick ? 100 : 500); n++) first.push((await chat(cached)).millis)
  const [p50, p99] = [percentile(first, 0.5), percentile(first, 0.99)]
  say(`500 cached pages: p50 ${p50.toFixed(1)} ms, p99 ${p99.toFixed(1)} ms`)

  const { found, millis } = await smallChatsBeside(chat, () =>
    Promise.all(Array.from({ length: largeZips }, (_, n) => other({ docsZipUrl: `${docs}/large/${n}` }))),
  )
  const refused = found.find(({ status }) => status !== 200 && status !== 503)
  if (refused !== undefined) throw new Error(`A chat with a zip was answered ${refused.status}`)
  const answered = found.filter(({ status }) => status === 200).length
  const [beside50, slowest] = [percentile(millis, 0.5), Math.max(...millis)]
  say(
    `beside ${largeZips} zips (${answered} answered): p50 ${beside50.toFixed(0)} ms, at most ${slowest.toFixed(0)} ms`,
  )
  return {
    tables: [
      {
        title: "First byte of an answer over HTTP",
        columns: ["", "chats", "p50 ms", "p99 ms", "longest ms"],
        rows: [
          ["500 cached pages", amount(first.length), ...[p50, p99, Math.max(...first)].map((one) => figure(one))],
          [
            `a small chat beside ${largeZips} zips of another org`,
            amount(millis.length),
            ...[beside50, percentile(millis, 0.99), slowest].map((one) => figure(one)),
          ],
        ],
      },
    ],
    bars: [
      atMost("first byte, 500 cached pages, p50", 5, p50, " ms"),
      atMost("first byte, 500 cached pages, p99", 50, p99, " ms"),
      atMost("a small chat beside large zips, longest", 200, slowest, " ms"),
    ],
    notes: [`Of ${largeZips} chats with a zip of 10 MiB, ${answered} are answered; the others are a 503.`],
  }
}

/** How well the chat finds answers: bench/questions, and how soon it answers. */
export const chat: Scenario = {
  name: "chat",
  title: "Find answers in documentation",
  about:
    "Questions of readers about five documentation sets: names, plain words, typing errors, follow-ups, questions about the " +
    "reader's page, and questions that the documentation does not answer. The search was tuned with one half of each set; " +
    "the other half is only measured. Recall at 1 and 3: a right passage is the first, or one of the three that are quoted. " +
    "False answers: the share of the unanswerable questions with an answer.",
  run: async (scope, options) => {
    const { say } = options
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
    const answers = await answerTimes(scope, options)
    return {
      tables: [{ title: "Questions about documentation", columns, rows }, ...answers.tables],
      bars: [...bars, ...answers.bars],
      notes: answers.notes,
    }
  },
}
