import { execFile } from "node:child_process"
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { registerHooks } from "node:module"
import { fileURLToPath, pathToFileURL } from "node:url"
import { type Bug, bugs } from "./bugs.ts"
import { difference } from "./conversations/conversation.ts"
import { invent, recordedAbout, type Theme, themesAbout } from "./conversations/speaker.ts"
import { cornerOf, makePlan } from "./plan.ts"
import { simulate } from "./simulation.ts"

const repository = fileURLToPath(new URL("../../", import.meta.url))

/** Seeds within which a bug must be found. */
export const maxSeeds = 2_000

/** Whether the simulation found a bug. */
export interface Found {
  readonly bug: Bug
  /** What found it: a conversation, or a seed; `undefined`: nothing. */
  readonly by: string | undefined
  /** How many conversations and seeds of its corner have run. */
  readonly runs: number
  /** What the oracle said first, or what differed. */
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

/** A copy of the source and the tests, which runs beside the dependencies of this one. */
const copyOf = () => {
  const folder = mkdtempSync(join(tmpdir(), "gatehouse-bug-"))
  for (const part of ["src", "test", "package.json", "vitest.config.ts"]) {
    cpSync(join(repository, part), join(folder, part), { recursive: true })
  }
  symlinkSync(join(repository, "node_modules"), join(folder, "node_modules"))
  return folder
}

/** The seeds with which a bug is hunted: so many from the first on, and no longer than some hours. */
export interface Hunt {
  readonly first: number
  readonly seeds: number
  readonly hours?: number | undefined
}

/** Orders of a pair of writes that a hunt on real locks runs at most. */
const maxOrders = 100

/** Runs a pair of writes on real locks, in a copy of the source. */
const huntLocks = async (bug: Bug, race: string, { seeds }: Hunt): Promise<Found> => {
  const folder = copyOf()
  try {
    plant(folder, bug)
    const vitest = join(folder, "node_modules/vitest/vitest.mjs")
    const args = [vitest, "run", "--project=sim", "test/sim/locks.test.ts", "-t", race]
    const orders = Math.min(seeds, maxOrders)
    const options = { cwd: folder, maxBuffer: 64 * 1024 * 1024, env: { ...process.env, LOCKS: String(orders) } }
    const text = await new Promise<string>((resolve) =>
      execFile(process.execPath, args, options, (_, out, err) => resolve(out + err)),
    )
    const [, seed, why = ""] = /LOCKS_SEED=(\d+): (.*)/.exec(text) ?? []
    if (seed === undefined) return { bug, by: undefined, runs: orders, why: "" }
    return { bug, by: seed, runs: Number(seed), why: `locks: ${why}` }
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

const planted: Array<Bug> = []
const [sources, simulations] = ["src/", "test/sim/"].map((part) => pathToFileURL(join(repository, part)).href)
/** What is the same with every bug. */
const shared = `${simulations}engine.ts`

/** Modules that are imported with `?bug=n`, and all that they import of the project, have the bug in their source. */
const plantModules = () =>
  registerHooks({
    resolve: (specifier, context, next) => {
      const resolved = next(specifier, context)
      const [, query] = context.parentURL?.split("?bug=") ?? []
      const isOwn = resolved.url.startsWith(sources!) || resolved.url.startsWith(simulations!)
      return query === undefined || !isOwn || resolved.url === shared
        ? resolved
        : { ...resolved, url: `${resolved.url}?bug=${query}` }
    },
    load: (url, context, next) => {
      const loaded = next(url, context)
      const [path, number] = url.split("?bug=")
      if (number === undefined) return loaded
      const edits = planted[Number(number)]!.edits.filter(([file]) => path === `${sources}${file}`)
      const source = edits.reduce((text, [, from, to]) => text.replace(from, () => to), String(loaded.source))
      return { ...loaded, source }
    },
  })

/** Whether a seed holds without a bug. Several bugs ask for the first seeds of a corner: each runs once. */
const without = new Map<number, boolean>()
const holds = async (seed: number) => {
  const known = without.get(seed) ?? (await simulate(makePlan(seed))).violations.length === 0
  without.set(seed, known)
  return known
}

/** What new conversations are like without a bug, likewise: some 200 kB each, so that a night does not keep all. */
const invented = new Map<string, ReturnType<typeof invent>>()
const maxInvented = 500
const inventOnce = (theme: Theme, seed: number) => {
  const name = `${theme}-${seed}`
  const known = invented.get(name)
  if (known !== undefined) return known
  const made = invent(theme, seed)
  if (invented.size < maxInvented) invented.set(name, made)
  return made
}

const now = performance.now.bind(performance)

/**
 * Plants a bug in the modules of a simulation. Holds the conversations that are written down; then makes up new ones,
 * which it holds with the bug and without, and runs seeds until one fails that holds without the bug.
 */
const huntSeeds = async (bug: Bug, { first, hours = Infinity, seeds }: Hunt): Promise<Found> => {
  if (planted.length === 0) plantModules()
  const number = planted.push(bug) - 1
  const buggyConversation = (await import(
    `./conversations/conversation.ts?bug=${number}`
  )) as typeof import("./conversations/conversation.ts")
  const file = bug.edits[0]![0]
  const conversations = recordedAbout(file)
  const themes = themesAbout(file)
  for (const [n, name] of conversations.entries()) {
    const why = await buggyConversation.compare(name)
    if (why !== undefined) return { bug, by: name, runs: n + 1, why: why.replaceAll("\n", " ").slice(0, 300) }
  }
  const buggy = (await import(`./simulation.ts?bug=${number}`)) as typeof import("./simulation.ts")
  const until = now() + hours * 3_600_000
  let runs = conversations.length
  for (let seed = first; seed < first + seeds && now() < until; seed++) {
    const theme = themes[seed % themes.length]!
    const { lines, said } = await inventOnce(theme, seed)
    const steps = [...said]
    const why = difference(await buggyConversation.converse(() => steps.shift()), lines)
    runs++
    if (why !== undefined) return { bug, by: `${theme}-${seed}`, runs, why: why.replaceAll("\n", " ").slice(0, 300) }
    if (bug.corner !== undefined && cornerOf(seed) !== bug.corner) continue
    runs++
    const [violation] = (await buggy.simulate(makePlan(seed))).violations
    if (violation === undefined || !(await holds(seed))) continue
    return { bug, by: `${seed}`, runs, why: `${violation.oracle}: ${violation.what}` }
  }
  return { bug, by: undefined, runs, why: "" }
}

/** Hunts a bug in simulation, or on real locks. */
export const hunt = (bug: Bug, asked: Hunt): Promise<Found> =>
  bug.race === undefined ? huntSeeds(bug, asked) : huntLocks(bug, bug.race, asked)

/**
 * Hunts the bugs whose name contains one of the texts, one after the other. Prints a row of a table for each: the bug,
 * the conversation or the seed that found it, how many runs that took, and which sentence broke. Returns those not
 * found, or `undefined` if no bug has such a name.
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
    const { by, runs, why } = await hunt(bug, asked)
    if (by === undefined) missed.push(bug)
    print(`| ${bug.name} | ${by ?? "not found"} | ${runs} | ${why} |`)
  }
  return missed
}
