import { writeFileSync } from "node:fs"
import { parseArgs } from "node:util"
import { Dice } from "../world.ts"
import { again, converse, fileOf, recorded, type Step } from "./conversation.ts"
import { Speaker, type Theme, themes } from "./speaker.ts"

const usage = `Writes down conversations with the service, which each later change of it must repeat.

  npm run conversations                           holds all again, and writes down what is answered now: look at
                                                  the difference with git, and say in the commit why it is wanted
  npm run conversations -- --only=jobs            only those with this text in their name
  npm run conversations -- --new=jobs --seed=9    makes up the conversation jobs-9
                           themes: ${Object.keys(themes).join(", ")}
`

/** How many requests and waits a new conversation has, before it looks at all that there is. */
const steps = 70

/** Makes up a conversation about a theme, and holds it. */
const invent = (theme: Theme, seed: number) => {
  const speaker = new Speaker(new Dice(seed), theme)
  let left = steps
  let survey: Array<Step> | undefined
  const next = () => (left-- > 0 ? speaker.next() : (survey ??= [...speaker.survey()]).shift())
  return converse(next, (step, { body }) => speaker.hear(step, body))
}

const options = {
  new: { type: "string" },
  only: { type: "string", default: "" },
  seed: { type: "string", default: "1" },
  help: { type: "boolean", default: false },
} as const
const given = parseArgs({ options }).values

const write = async (name: string, lines: Promise<ReadonlyArray<string>>) => {
  writeFileSync(fileOf(name), `${(await lines).join("\n")}\n`)
  process.stdout.write(`${name}\n`)
}

if (given.help || (given.new !== undefined && !(given.new in themes))) process.stdout.write(usage)
else if (given.new !== undefined)
  await write(`${given.new}-${given.seed}`, invent(given.new as Theme, Number(given.seed)))
else for (const name of recorded().filter((one) => new RegExp(given.only).test(one))) await write(name, again(name))
