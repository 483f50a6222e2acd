import { execFile } from "node:child_process"
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { type Bug, bugs } from "./bugs.ts"

const repository = fileURLToPath(new URL("../../", import.meta.url))

/** Seeds within which a bug must be found. */
export const maxSeeds = 2_000

/** Whether the simulation found a bug. */
export interface Found {
  readonly bug: Bug
  /** How many seeds were needed; `undefined`: it was not found. */
  readonly seeds: number | undefined
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
const hunters = (folder: string, { race }: Bug, seeds: number) =>
  race === undefined
    ? {
        args: [join(folder, "test/sim/main.ts"), "--seed=1", `--runs=${seeds}`],
        env: {},
        seed: /^Seed (\d+) fails/m,
        why: /^ {2}(\S.*)$/m,
      }
    : {
        args: [
          ...[join(folder, "node_modules/vitest/vitest.mjs"), "run", "--project=sim", "test/sim/locks.test.ts"],
          ...["-t", race],
        ],
        env: { LOCKS: String(seeds) },
        seed: /LOCKS_SEED=(\d+)/,
        why: /LOCKS_SEED=\d+: (.*)/,
      }

/** Plants a bug in a copy of the source, and runs seeds until one fails. */
export const hunt = (bug: Bug, seeds = maxSeeds): Promise<Found> => {
  const folder = copyOf()
  plant(folder, bug)
  const hunter = hunters(folder, bug, seeds)
  return new Promise<Found>((resolve) => {
    execFile(
      process.execPath,
      hunter.args,
      { cwd: folder, maxBuffer: 64 * 1024 * 1024, env: { ...process.env, ...hunter.env } },
      (_, out, err) => {
        const seed = hunter.seed.exec(out + err)?.[1]
        const why = hunter.why.exec(out + err)?.[1] ?? err.split("\n", 1)[0] ?? ""
        resolve({ bug, seeds: seed === undefined ? undefined : Number(seed), why })
      },
    )
  }).finally(() => rmSync(folder, { recursive: true, force: true }))
}

/**
 * Hunts the bugs whose name contains a text, one after the other. Prints a row of a table for each: the bug, how many
 * seeds
 * were needed, and which sentence broke. Returns those not found.
 */
export const huntAll = async (
  text: string,
  seeds: number,
  print: (line: string) => void,
): Promise<ReadonlyArray<Bug>> => {
  const missed: Array<Bug> = []
  for (const bug of bugs.filter(({ name }) => name.includes(text))) {
    const found = await hunt(bug, seeds)
    if (found.seeds === undefined) missed.push(bug)
    print(`| ${bug.name} | ${found.seeds ?? `not found in ${seeds}`} | ${found.why} |`)
  }
  return missed
}
