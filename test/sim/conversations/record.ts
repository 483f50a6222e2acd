import { writeFileSync } from "node:fs"
import { join, resolve } from "node:path"
import { pathToFileURL } from "node:url"
import { parseArgs } from "node:util"
import { Coverage } from "./coverage.ts"
import { again, difference, fileOf, recorded } from "./conversation.ts"
import { invent, type Theme, themes } from "./speaker.ts"

const usage = `Writes down conversations with the service, which each later change of it must repeat.

  npm run conversations                           holds all again, and writes down what is answered now: look at
                                                  the difference with git, and say in the commit why it is wanted
  npm run conversations -- --only=jobs            only those with this text in their name
  npm run conversations -- --new=jobs --seed=9    makes up the conversation jobs-9
                           themes: ${Object.keys(themes).join(", ")}
  npm run conversations -- --grow=100 --seed=9
                           makes up as many about each theme in turn, and writes down those that run code which none of
                           the others runs
  npm run conversations -- --beside=FOLDER --runs=50
                           writes nothing: makes up as many, holds each here and in another checkout, such as the last
                           release, and prints what differs. Exit code 1: something does
`

/** Holds new conversations here and in another checkout. */
const compareWith = async (folder: string, first: number, runs: number) => {
  const there = pathToFileURL(join(resolve(folder), "test/sim/conversations/conversation.ts")).href
  const other = (await import(there)) as typeof import("./conversation.ts")
  const all = Object.keys(themes) as Array<Theme>
  for (let seed = first; seed < first + runs; seed++) {
    const theme = all[seed % all.length]!
    const { lines, said } = await invent(theme, seed)
    const differs = difference(lines, await other.converse(() => said.shift()))
    if (differs === undefined) continue
    process.stdout.write(`${theme}-${seed}: ${differs}\n`)
    process.exitCode = 1
  }
}

/** How many characters of code a conversation must run that no other one runs, to be written down: a few conditions. */
const leastNews = 150

/** Makes up conversations, and writes down those that run what none has run. */
const grow = async (first: number, runs: number) => {
  const coverage = new Coverage()
  await coverage.start()
  for (const name of recorded()) await again(name)
  await coverage.add()
  const all = Object.keys(themes) as Array<Theme>
  for (let n = 0; n < runs; n++) {
    const [theme, seed] = [all[n % all.length]!, first + Math.floor(n / all.length)]
    const { lines } = await invent(theme, seed)
    const news = await coverage.add()
    if (news >= leastNews) write(`${theme}-${seed}`, lines)
  }
}

const options = {
  new: { type: "string" },
  only: { type: "string", default: "" },
  seed: { type: "string", default: "1" },
  grow: { type: "string" },
  beside: { type: "string" },
  runs: { type: "string", default: "20" },
  help: { type: "boolean", default: false },
} as const
const given = parseArgs({ options }).values

const write = (name: string, lines: ReadonlyArray<string>) => {
  writeFileSync(fileOf(name), `${lines.join("\n")}\n`)
  process.stdout.write(`${name}\n`)
}

const seed = Number(given.seed)
if (given.help || (given.new !== undefined && !(given.new in themes))) process.stdout.write(usage)
else if (given.grow !== undefined) await grow(seed, Number(given.grow))
else if (given.beside !== undefined) await compareWith(given.beside, seed, Number(given.runs))
else if (given.new !== undefined) write(`${given.new}-${seed}`, (await invent(given.new as Theme, seed)).lines)
else for (const name of recorded().filter((one) => new RegExp(given.only).test(one))) write(name, await again(name))
