/* oxlint-disable no-console -- a program for the terminal */
import { execFileSync } from "node:child_process"
import { existsSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { measured } from "./measured.ts"
import { leaveServerCore } from "./support/cpu.ts"
import { tool } from "./support/load.ts"
import { busyness, commit, machine, versions } from "./support/machine.ts"
import { print, save, writeDocument } from "./support/report.ts"
import type { Scenario } from "./support/result.ts"
import { endAll, scoped } from "./support/scope.ts"

/**
 * `npm run bench [-- <names>] [-- --quick]`: measures the service beside its peers, prints tables, stores the figures
 * in bench/results and writes those of five scenarios into docs/performance.md. Starts and stops everything that it
 * needs.
 */
const usage = `npm run bench -- [names] [--quick] [--rounds=N] [--seconds=N] [--beside=FOLDER]
  names: validate, operations, deliveries, latency (all four when none is named), publish, growth, abuse, bounded, gateway, chat, console, pressure
  --beside: publish also measures the service of another checkout, with its dependencies installed`

/** The longest time of a scenario, in minutes. */
const scenarioMinutes = 60

const words = process.argv.slice(2)
const text = (name: string) => words.find((word) => word.startsWith(`--${name}=`))?.slice(name.length + 3)
const option = (name: string) => {
  const value = text(name)
  return value === undefined ? undefined : Number(value)
}
const quick = words.includes("--quick")
const all = Object.keys(measured)
/** Those whose figures are in docs/performance.md. */
const documented = ["validate", "operations", "deliveries", "latency", "publish"]
const named = words.filter((word) => !word.startsWith("--"))
const names = named.length > 0 ? named : all.slice(0, 4)
const unknown = [
  ...names.filter((name) => !all.includes(name)),
  ...words.filter((word) => word.startsWith("--") && !/^--(quick|rounds=\d+|seconds=\d+|beside=.+)$/.test(word)),
]
if (unknown.length > 0) {
  console.error(`Unknown: ${unknown.join(", ")}\n${usage}`)
  process.exit(2)
}

const bench = fileURLToPath(new URL(".", import.meta.url))
if (!existsSync(`${bench}node_modules`)) {
  console.log("The peers are not installed: npm ci --prefix bench")
  execFileSync("npm", ["ci", "--prefix", bench, "--ignore-scripts"], { stdio: "inherit" })
}

let stopped: Promise<void> | undefined
const stop = (signal: NodeJS.Signals) => {
  console.error(`${signal}: ending what was started`)
  stopped ??= endAll().finally(() => process.exit(130))
}
process.on("SIGINT", stop).on("SIGTERM", stop)

const busy = busyness()
const cores = leaveServerCore()
console.log(`${machine()}\nGatehouse ${commit()}, ${versions()}\nLoad by ${tool}. ${cores} ${busy}\n`)

let failed = false
const measuredNow = new Set<string>()
for (const name of names) {
  const scenario = (await import(`./scenarios/${name}.ts`))[name] as Scenario
  const options = {
    quick,
    rounds: option("rounds") ?? (quick ? (scenario.quick?.rounds ?? 3) : 5),
    seconds: option("seconds") ?? (quick ? (scenario.quick?.seconds ?? 2) : 5),
    // V8 compiles a program of this size for that long; the comparison starts afterwards.
    warmUp: quick ? 1 : 15,
    other: text("beside"),
    say: (line: string) => console.log(`  ${line}`),
  }
  console.log(`${scenario.title}\n  ${scenario.about}`)
  const since = performance.now()
  const late = setTimeout(() => stop("SIGTERM"), scenarioMinutes * 60_000)
  try {
    const found = await scoped((scope) => scenario.run(scope, options))
    const seconds = Math.round((performance.now() - since) / 1000)
    print(scenario, found)
    console.log(`  ${seconds} s\n`)
    measuredNow.add(name)
    save(scenario, found, {
      // Without the folder's path, which is of this machine.
      command: ["npm run bench --", name, ...words.filter((word) => word.startsWith("--"))]
        .join(" ")
        .replace(/--beside=\S+/, `--beside=<checkout of ${commit(text("beside"))}>`),
      date: new Date().toISOString().slice(0, 10),
      machine: machine(),
      versions: versions(),
      commit: commit(),
      conditions: `Rounds: ${options.rounds}; loads of ${options.seconds} s, by ${tool}. ${cores} ${busy}`,
      quick,
    })
  } catch (error) {
    // Stopped processes may cause errors; this process ends with them.
    await stopped
    failed = true
    console.error(`${name} could not be measured:`, error)
  } finally {
    clearTimeout(late)
  }
}
writeDocument(documented, measuredNow)
process.exit(failed ? 1 : 0)
