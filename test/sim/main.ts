import { writeFileSync } from "node:fs"
import { parseArgs } from "node:util"
import { page } from "./page.ts"
import { cornerOf, corners, makePlan } from "./plan.ts"
import { huntAll, maxSeeds } from "./plant.ts"
import { shrink } from "./shrink.ts"
import { simulate } from "./simulation.ts"
import { story } from "./story.ts"

const usage = `Runs the whole service in simulation. Exit code 1: a seed fails, or a planted bug is not found.

  npm run sim                        new seeds for a minute
  npm run sim -- --seed=17           one seed again
  npm run sim -- --seed=1 --runs=25  the seeds 1 to 25, until one fails

  --seed=N        the first seed; without it, the time
  --runs=N        how many seeds run; a seed that fails is not cut down
  --hours=N       how long new seeds run
  --corner=NAME   only seeds that look at this corner: ${Object.keys(corners).join(", ")}
  --log           prints all that happens
  --page=FILE     writes a page that replays the last seed
  --bugs=TEXT     plants the bugs with this text in their name, or "all", or what a FILE.patch changes, and hunts them with
                  up to --runs seeds, for --hours at most; may be given several times
  --help          prints this
`

const options = {
  seed: { type: "string" },
  runs: { type: "string" },
  hours: { type: "string" },
  corner: { type: "string" },
  log: { type: "boolean" },
  page: { type: "string" },
  bugs: { type: "string", multiple: true },
  help: { type: "boolean" },
} as const

/** Ends with what is wrong with the command. */
const refuse = (why: string): never => {
  process.stderr.write(`${why}\n\n${usage}`)
  return process.exit(2)
}

const parse = () => {
  try {
    return parseArgs({ options }).values
  } catch (cause) {
    return refuse((cause as Error).message.split("\n", 1)[0]!)
  }
}
const given = parse()
if (given.help === true) {
  process.stdout.write(usage)
  process.exit(0)
}
for (const name of ["seed", "runs", "hours"] as const) {
  const text = given[name]
  const isNumber = text === undefined || (name === "hours" ? /^\d*\.?\d+$/ : /^\d+$/).test(text)
  if (!isNumber) refuse(`--${name} is a number, not "${text}"`)
}
if (given.corner !== undefined && !(given.corner in corners)) refuse(`There is no corner "${given.corner}"`)

const print = (...texts: ReadonlyArray<string>) => process.stdout.write(`${texts.join(" ")}\n`)
const minuteMillis = 60_000
/** How long a failing run is cut down. */
const shrinkMillis = 2 * minuteMillis
const now = performance.now.bind(performance)
const first = Number(given.seed ?? (given.bugs === undefined ? Date.now() : 1))
/** A seed alone is run once; else there is a minute, or the hours that are asked for. */
const most =
  given.runs === undefined ? (given.seed === undefined || given.hours !== undefined ? Infinity : 1) : Number(given.runs)
const until = now() + (given.hours === undefined ? minuteMillis : Number(given.hours) * 60 * minuteMillis)
const hasTime = () => now() < until || (given.runs !== undefined && given.hours === undefined)

if (given.bugs !== undefined) {
  const hours = given.hours === undefined ? undefined : Number(given.hours)
  const missed = await huntAll(given.bugs, { first, hours, seeds: Number(given.runs ?? maxSeeds) }, print)
  if (missed === undefined) refuse(`No planted bug has "${given.bugs.join('" or "')}" in its name`)
  process.exit(missed!.length === 0 ? 0 : 1)
}

print(`Seeds from ${first} on`)
let [runs, lived, virtual, core] = [0, 0, 0, 0]
while (runs < most && (runs === 0 || hasTime())) {
  const seed = first + runs
  runs++
  if (given.corner !== undefined && cornerOf(seed) !== given.corner) continue
  lived++
  const outcome = await simulate(makePlan(seed))
  virtual += outcome.virtualMillis
  core += outcome.coreMillis
  if (given.log === true) for (const { at, what, who } of outcome.log) print((at / 1000).toFixed(3), who, what)
  if (given.page !== undefined) writeFileSync(given.page, page(outcome))
  if (outcome.violations.length === 0) continue
  print(`Seed ${outcome.plan.seed} fails`)
  // Who asks for a number of runs wants to know whether one fails.
  print(story(given.runs === undefined ? await shrink(outcome, now() + shrinkMillis) : outcome))
  process.exitCode = 1
  break
}
const sum = `${(virtual / 3_600_000).toFixed(2)} hours of virtual time, ${(virtual / Math.max(1, core)).toFixed(0)} × the time of the core`
print(`${lived} runs: ${sum}`)
