import { execFile } from "node:child_process"
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { registerHooks } from "node:module"
import { fileURLToPath, pathToFileURL } from "node:url"
import { type Bug, bugs } from "./bugs.ts"
import { again, difference, recorded } from "./conversations/conversation.ts"
import { Coverage } from "./conversations/coverage.ts"
import { invent, themesAbout } from "./conversations/speaker.ts"
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
  /** How many conversations and seeds have run its place. */
  readonly runs: number
  /** What the oracle said first, or what differed. */
  readonly why: string
}

/**
 * The text of a file in which a bug is planted. Fails if what it replaces does not stand exactly once there: then the
 * code has changed, and the bug must be planted elsewhere.
 */
const textFor = (folder: string, name: string, [file, from]: Bug["edits"][number]) => {
  const text = readFileSync(join(folder, "src", file), "utf8")
  const places = text.split(from).length - 1
  if (places !== 1) {
    throw new Error(`"${name}" cannot be planted: src/${file} has this text ${places} times, not once:\n${from}`)
  }
  return text
}

/**
 * Replaces texts in a copy of the source.
 *
 * @param folder has the copy of `src`
 */
const plant = (folder: string, { edits, name }: Bug) => {
  for (const edit of edits) {
    const [file, from, to] = edit
    const text = textFor(folder, name, edit)
    writeFileSync(
      join(folder, "src", file),
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

type Why = string | undefined
type Tell = (found: Found) => void

/** The seeds with which bugs are hunted: so many from the first on, and no longer than some hours. */
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

/** What a patch changes, as a bug: each of its hunks is a replacement. */
const bugOfPatch = (path: string): Bug => {
  const files = readFileSync(path, "utf8")
    .split(/^diff --git .*\n/m)
    .slice(1)
  const edits = files.flatMap((text) => {
    const [, file] = /^\+\+\+ b\/src\/(.*)$/m.exec(text) ?? []
    if (file === undefined) throw new Error(`${path} changes more than src: git diff -- src makes a patch to hunt`)
    const hunks = text.split(/^@@ .*\n/m).slice(1)
    const side = (hunk: string, sign: string) =>
      hunk
        .split("\n")
        .filter((line) => line.startsWith(" ") || line.startsWith(sign))
        .map((line) => `${line.slice(1)}\n`)
        .join("")
    return hunks.map((hunk) => [file, side(hunk, "-"), side(hunk, "+")] as const)
  })
  return { name: path, about: "", edits }
}

/** The first character of a file that a replacement changes; the last one of the text, if it is only longer. */
const placeOf = (name: string, edit: Bug["edits"][number]) => {
  const [, from, to] = edit
  let same = 0
  while (same < from.length - 1 && from[same] === to[same]) same++
  return textFor(repository, name, edit).indexOf(from) + same
}

/** A bug that is hunted: the modules that have it, and where it is. */
interface Hunted {
  readonly bug: Bug
  readonly conversation: typeof import("./conversations/conversation.ts")
  readonly simulation: typeof import("./simulation.ts")
  readonly places: ReadonlyArray<readonly [url: string, at: number]>
  runs: number
}

const plantIn = async (bug: Bug): Promise<Hunted> => {
  const places = bug.edits.map((edit) => [`${sources}${edit[0]}`, placeOf(bug.name, edit)] as const)
  if (planted.length === 0) plantModules()
  const query = `?bug=${planted.push(bug) - 1}`
  const [conversation, simulation] = await Promise.all([
    import(`./conversations/conversation.ts${query}`),
    import(`./simulation.ts${query}`),
  ])
  return { bug, conversation, simulation, places, runs: 0 }
}

const now = performance.now.bind(performance)

/**
 * Hunts bugs in simulation, all together: what runs without a bug, and runs the place of one, runs with it. Holds the
 * conversations that are written down; then, seed by seed, a new one about each theme of their features, and the
 * seed itself, which counts if it holds without the bug.
 */
const huntTogether = async (bugs: ReadonlyArray<Bug>, { first, hours = Infinity, seeds }: Hunt, tell: Tell) => {
  const coverage = new Coverage()
  await coverage.start()
  const hunted = new Set<Hunted>()
  for (const bug of bugs) hunted.add(await plantIn(bug))
  const until = now() + hours * 3_600_000
  const tryAll = async <A>(without: () => Promise<A>, by: string, differs: (one: Hunted, plain: A) => Promise<Why>) => {
    await coverage.take()
    const plain = await without()
    const ran = await coverage.take()
    for (const one of hunted) {
      if (now() > until || !one.places.some(([url, at]) => ran.get(url)?.[at] === 1)) continue
      one.runs++
      const why = await differs(one, plain)
      if (why === undefined) continue
      hunted.delete(one)
      tell({ bug: one.bug, by, runs: one.runs, why: why.replaceAll("\n", " ").slice(0, 300) })
    }
  }
  for (const name of recorded()) {
    const known = () => again(name, 2)
    await tryAll(known, name, async ({ conversation }, lines) => difference(await conversation.again(name, 2), lines))
  }
  for (let seed = first; seed < first + seeds && hunted.size > 0 && now() < until; seed++) {
    for (const theme of new Set([...hunted].flatMap(({ bug }) => themesAbout(bug.edits[0]![0])))) {
      await tryAll(
        () => invent(theme, seed),
        `${theme}-${seed}`,
        async ({ conversation }, { lines, said }) => {
          const steps = [...said]
          return difference(await conversation.converse(() => steps.shift()), lines)
        },
      )
    }
    const corner = cornerOf(seed)
    if ([...hunted].every(({ bug }) => bug.corner !== undefined && bug.corner !== corner)) continue
    await tryAll(
      () => simulate(makePlan(seed)),
      `${seed}`,
      async ({ bug, simulation }, { violations }) => {
        if (violations.length > 0 || (bug.corner !== undefined && bug.corner !== corner)) return undefined
        const [violation] = (await simulation.simulate(makePlan(seed))).violations
        return violation && `${violation.oracle}: ${violation.what}`
      },
    )
  }
  for (const { bug, runs } of hunted) tell({ bug, by: undefined, runs, why: "" })
}

/**
 * Hunts the bugs whose name contains one of the texts, and those of patches of the source (`FILE.patch`). Prints a row
 * of a table for each: the bug, the conversation or the seed that found it, how many runs of its place that took, and
 * which sentence broke. Returns those not found, or `undefined` if no bug has such a name.
 */
export const huntAll = async (
  texts: ReadonlyArray<string>,
  asked: Hunt,
  print: (line: string) => void,
): Promise<ReadonlyArray<Bug> | undefined> => {
  const patches = texts.filter((text) => text.endsWith(".patch"))
  const named = bugs.filter(({ name }) => texts.some((text) => text === "all" || name.includes(text)))
  const wanted = [...named, ...patches.map(bugOfPatch)]
  if (wanted.length === 0) return undefined
  const missed: Array<Bug> = []
  const tell: Tell = ({ bug, by, runs, why }) => {
    if (by === undefined) missed.push(bug)
    print(`| ${bug.name} | ${by ?? "not found"} | ${runs} | ${why} |`)
  }
  for (const bug of wanted) if (bug.race !== undefined) tell(await huntLocks(bug, bug.race, asked))
  await huntTogether(
    wanted.filter(({ race }) => race === undefined),
    asked,
    tell,
  )
  return missed
}
