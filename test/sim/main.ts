import { writeFileSync } from "node:fs"
import { parseArgs } from "node:util"
import { page } from "./page.ts"
import { makePlan } from "./plan.ts"
import { huntAll, maxSeeds } from "./plant.ts"
import { shrink } from "./shrink.ts"
import { simulate } from "./simulation.ts"
import { story } from "./story.ts"

const { values: given } = parseArgs({
  options: {
    seed: { type: "string" },
    runs: { type: "string" },
    hours: { type: "string" },
    log: { type: "boolean" },
    page: { type: "string" },
    bugs: { type: "string" },
  },
})

const print = (...texts: ReadonlyArray<string>) => process.stdout.write(`${texts.join(" ")}\n`)
const minuteMillis = 60_000
/** How long a failing run is cut down. */
const shrinkMillis = 2 * minuteMillis
const now = performance.now.bind(performance)
const first = given.seed === undefined ? Date.now() : Number(given.seed)
/** A seed alone is run once; else there is a minute, or the hours that are asked for. */
const most =
  given.runs === undefined ? (given.seed === undefined || given.hours !== undefined ? Infinity : 1) : Number(given.runs)
const until = now() + (given.hours === undefined ? minuteMillis : Number(given.hours) * 60 * minuteMillis)
const hasTime = () => now() < until || given.runs !== undefined

if (given.bugs !== undefined) {
  const missed = await huntAll(given.bugs === "all" ? "" : given.bugs, Number(given.runs ?? maxSeeds), print)
  process.exit(missed.length === 0 ? 0 : 1)
}

print(`Seeds from ${first} on`)
let [runs, virtual, core] = [0, 0, 0]
while (runs < most && (runs === 0 || hasTime())) {
  const outcome = await simulate(makePlan(first + runs))
  runs++
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
const lived = `${(virtual / 3_600_000).toFixed(2)} hours of virtual time, ${(virtual / core).toFixed(0)} × the time of the core`
print(`${runs} runs: ${lived}`)
