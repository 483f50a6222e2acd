import { execFile } from "node:child_process"
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { type Bug, bugs } from "./bugs.ts"
import { makePlan } from "./plan.ts"
import { simulate } from "./simulation.ts"

const repository = fileURLToPath(new URL("../../", import.meta.url))

/** Seeds within which a bug must be found. */
export const maxSeeds = 2_000

/** Whether the simulation found a bug. */
export interface Found {
  readonly bug: Bug
  /** The last seed that was needed; `undefined`: it was not found. */
  readonly seeds: number | undefined
  /** How many seeds of its corner have run. */
  readonly runs: number
  /** What the oracle said first. */
  readonly why: string
}

/**
 * Replaces texts in a copy of the source. Fails if a text does not stand exactly once in its file: then the code has
 * changed, and the bug must be planted elsewhere.
 *
 * @param folder has the copy of `src`
 */
export const plant = (folder: string, { edits, name }: Bug) => {
  for (const [file, from, to] of edits) {
    const path = join(folder, "src", file)
    const text = readFileSync(path, "utf8")
    const places = text.split(from).length - 1
    if (places !== 1) {
      throw new Error(`"${name}" cannot be planted: src/${file} has this text ${places} times, not once:\n${from}`)
    }
    writeFileSync(
      path,
      text.replace(from, () => to),
    )
  }
}

/** A copy of the source and the simulation, which runs beside the dependencies of this one. */
const copyOf = () => {
  const folder = mkdtempSync(join(tmpdir(), "gatehouse-bug-"))
  for (const part of ["src", "test", "package.json", "vitest.config.ts"]) {
    cpSync(join(repository, part), join(folder, part), { recursive: true })
  }
  symlinkSync(join(repository, "node_modules"), join(folder, "node_modules"))
  return folder
}

/** What finds a bug: the command, and how it names the seed and the reason. */
const hunters = (folder: string, { corner, race }: Bug, { first, hours, seeds }: Hunt) =>
  race === undefined
    ? {
        args: [
          ...[join(folder, "test/sim/main.ts"), `--seed=${first}`, `--runs=${seeds}`],
          ...(corner === undefined ? [] : [`--corner=${corner}`]),
          ...(hours === undefined ? [] : [`--hours=${hours}`]),
        ],
        env: {},
        seed: /^Seed (\d+) fails/m,
        why: /^ {2}(\S.*)$/m,
        runs: /^(\d+) runs: /m,
      }
    : {
        args: [
          ...[join(folder, "node_modules/vitest/vitest.mjs"), "run", "--project=sim", "test/sim/locks.test.ts"],
          ...["-t", race],
        ],
        env: { LOCKS: String(Math.min(seeds, 100)) },
        seed: /LOCKS_SEED=(\d+)/,
        why: /LOCKS_SEED=\d+: (.*)/,
        runs: /^never$/,
      }

/** The seeds with which a bug is hunted: so many from the first on, and no longer than some hours. */
export interface Hunt {
  readonly first: number
  readonly seeds: number
  readonly hours?: number | undefined
}

const run = (folder: string, args: ReadonlyArray<string>, env: Readonly<Record<string, string>>) =>
  new Promise<{ readonly text: string; readonly error: string }>((resolve) => {
    const options = { cwd: folder, maxBuffer: 64 * 1024 * 1024, env: { ...process.env, ...env } }
    execFile(process.execPath, args, options, (_, out, err) => resolve({ text: out + err, error: err }))
  })

/** Whether a seed holds without a bug. Several bugs ask for the first seeds of a corner: each runs once. */
const without = new Map<number, Promise<boolean>>()
const holds = (seed: number) => {
  const known = without.get(seed) ?? simulate(makePlan(seed)).then(({ violations }) => violations.length === 0)
  without.set(seed, known)
  return known
}

/** Plants a bug in a copy of the source, and runs seeds until one fails that holds without the bug. */
export const hunt = async (bug: Bug, asked: Hunt): Promise<Found> => {
  const folder = copyOf()
  const last = asked.first + asked.seeds
  try {
    plant(folder, bug)
    let runs = 0
    for (let first = asked.first; first < last;) {
      const hunter = hunters(folder, bug, { ...asked, first, seeds: last - first })
      const { error, text } = await run(folder, hunter.args, hunter.env)
      runs += Number(hunter.runs.exec(text)?.[1] ?? 0)
      const seed = hunter.seed.exec(text)?.[1]
      const why = hunter.why.exec(text)?.[1] ?? error.split("\n", 1)[0] ?? ""
      if (seed === undefined) return { bug, seeds: undefined, runs, why }
      if (bug.race !== undefined || (await holds(Number(seed)))) return { bug, seeds: Number(seed), runs, why }
      first = Number(seed) + 1
    }
    return { bug, seeds: undefined, runs, why: "" }
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/**
 * Hunts the bugs whose name contains one of the texts, one after the other. Prints a row of a table for each: the bug,
 * the seed that found it, how many runs that took, and which sentence broke. Returns those not found, or `undefined` if
 * no bug has such a name.
 */
export const huntAll = async (
  texts: ReadonlyArray<string>,
  asked: Hunt,
  print: (line: string) => void,
): Promise<ReadonlyArray<Bug> | undefined> => {
  const wanted = bugs.filter(({ name }) => texts.some((text) => text === "all" || name.includes(text)))
  if (wanted.length === 0) return undefined
  const missed: Array<Bug> = []
  for (const bug of wanted) {
    const { runs, seeds, why } = await hunt(bug, asked)
    if (seeds === undefined) missed.push(bug)
    print(`| ${bug.name} | ${seeds ?? "not found"} | ${runs} | ${why} |`)
  }
  return missed
}
