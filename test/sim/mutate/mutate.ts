import { createHash } from "node:crypto"
import {
  appendFileSync,
  cpSync,
  existsSync,
  globSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { parseArgs } from "node:util"
import { createVitest } from "vitest/node"
import { Dice } from "../world.ts"
import type { Cover } from "./covers.ts"
import { type Mutant, places, repository } from "./places.ts"

const usage = `Changes the source by itself, one place at a time, and looks which tests notice.

  npm run mutate -- --runs=20          20 more mutants; those of before are remembered in --results
  npm run mutate -- --report           what is known so far, by folder
  npm run mutate -- --only=TEXT        only places with this text, such as jobs/retryJobs.ts or "drop a lock"
  npm run mutate -- --seed=2           in another order
  npm run mutate -- --at-once=2        so many beside each other
  npm run mutate -- --results=FILE     where results are; by default mutations.jsonl in the folder of temporary files
`

/** A place, with its number in the order of `places`. */
type Place = Mutant & { readonly number: number }

/** The places in an order that a seed decides, each operator as often as the others. */
const inOrder = (seed: number) => {
  const dice = new Dice(seed)
  const ofEach = Map.groupBy(
    places().map((place, number) => ({ ...place, number })),
    ({ operator }) => operator,
  )
  return [...ofEach.values()]
    .flatMap((own) =>
      own
        .map((mutant) => ({ mutant, chance: dice.next() }))
        .toSorted((one, other) => one.chance - other.chance)
        .map(({ mutant, chance }, n) => ({ mutant, turn: n + chance })),
    )
    .toSorted((one, other) => one.turn - other.turn)
    .map(({ mutant }) => mutant)
}

const patternOf = ({ name }: Failed) => (name === "" ? "" : `^${name.replaceAll(/[^\w >]/g, ".")}$`)
const nameOf = ({ file, name }: Failed) => `${file} > ${name}`

/** How long the runs of a place may take, one after the other, until one notices the change; in milliseconds. */
const runMillis = [15_000, 30_000, 60_000]
/** What a file of tests costs before its first test. */
const fileMillis = 2_500

/**
 * The tests that run a place, as a few runs: files, and the names of their tests. Those of its feature come first, or
 * those of locks, and those that run little else: they are about it.
 */
const runsFor = (
  { file, number, operator }: Place,
  covers: ReadonlyArray<Cover>,
): ReadonlyArray<readonly [files: ReadonlyArray<string>, names: string]> => {
  const isAbout = (one: Cover) =>
    operator.includes("lock") ? /Locks|Races/.test(one.file) : one.file.includes(`/${file.split("/")[2]}/`)
  const own = covers
    .filter(({ places }) => places.includes(number))
    .toSorted((one, other) => one.places.length - other.places.length)
    .toSorted((one, other) => Number(isAbout(other)) - Number(isAbout(one)))
  return runMillis.flatMap((longest) => {
    const files = new Set<string>()
    const chosen: Array<Cover> = []
    for (let millis = 0; own.length > 0;) {
      const [next] = own
      millis += next!.millis + (files.has(next!.file) ? 0 : fileMillis)
      if (millis > longest && chosen.length > 0) break
      files.add(next!.file)
      chosen.push(own.shift()!)
    }
    return chosen.length === 0 ? [] : [[[...files], chosen.map(patternOf).join("|")]]
  })
}

/** What each test runs; runs them all for that, unless it is known of this source and these tests. */
const covers = async () => {
  const hash = createHash("sha256")
  for (const path of globSync("{src,test}/**/*.ts", { cwd: repository }).toSorted())
    hash.update(readFileSync(join(repository, path)))
  const file = join(tmpdir(), `gatehouse-covers-${hash.digest("hex").slice(0, 16)}.jsonl`)
  if (!existsSync(file)) {
    print("Looks what each test runs; that takes as long as the tests.")
    const unfinished = `${file}.new`
    rmSync(unfinished, { force: true })
    process.env["COVERS"] = unfinished
    const tests = await openTests(repository)
    await tests.run([], "", 2 ** 31 - 1)
    await tests.close()
    delete process.env["COVERS"]
    renameSync(unfinished, file)
  }
  // The suites of the repositories run on PostgreSQL, too.
  return (linesOf(file) as ReadonlyArray<Cover>).filter(({ name }) => !name.startsWith("embedded > "))
}

/** What stands in a file of JSON lines. */
const linesOf = (file: string): ReadonlyArray<unknown> =>
  readFileSync(file, "utf8")
    .split("\n")
    .filter(Boolean)
    .map((line) => JSON.parse(line))

/** A copy of all that the tests read, which runs beside the dependencies of this one. */
const copy = () => {
  const folder = mkdtempSync(join(tmpdir(), "gatehouse-mutant-"))
  const parts = readdirSync(repository).filter((name) => !["node_modules", ".git", "dist"].includes(name))
  for (const part of parts) cpSync(join(repository, part), join(folder, part), { recursive: true })
  symlinkSync(join(repository, "node_modules"), join(folder, "node_modules"))
  return folder
}

/** A test that failed; without a name: something of its file. */
type Failed = Pick<Cover, "file" | "name">

/** What has failed when the tests do not end, in this time at most. */
const hanging = { file: "a run", name: "that does not end" }
const longestMillis = 180_000

/** The tests of a folder; what they need beside them is started once. */
const openTests = async (folder: string) => {
  const vitest = await createVitest("test", {
    root: folder,
    config: join(folder, "test/sim/mutate/vitest.config.ts"),
    watch: false,
    silent: true,
    reporters: [{}],
  })
  /** Runs tests; returns the first that failed, or `undefined` if none did. */
  const run = async (files: ReadonlyArray<string>, names = "", longest = longestMillis) => {
    vitest.setGlobalTestNamePattern(new RegExp(names))
    const all = await vitest.globTestSpecifications([...files])
    let isHanging = false
    const timer = setTimeout(() => {
      isHanging = true
      void vitest.cancelCurrentRun("test-failure")
    }, longest)
    // The result has what earlier runs have left, too.
    const ran = new Set(all.map(({ moduleId }) => moduleId))
    const testModules = (await vitest.runTestSpecifications(all)).testModules.filter(({ moduleId }) =>
      ran.has(moduleId),
    )
    clearTimeout(timer)
    if (isHanging) return hanging
    for (const module of testModules)
      for (const test of module.children.allTests("failed"))
        return { file: module.relativeModuleId, name: test.fullName }
    const wrong = testModules.find((module) => !module.ok() || module.errors().length > 0)
    return wrong && { file: wrong.relativeModuleId, name: "" }
  }
  return { run, close: () => vitest.close() }
}

interface Result {
  readonly id: string
  readonly file: string
  /** What noticed the mutant; `null`: nothing. */
  readonly by: string | null
}

const options = {
  seed: { type: "string", default: "1" },
  runs: { type: "string", default: "20" },
  only: { type: "string", default: "" },
  "at-once": { type: "string", default: "1" },
  results: { type: "string", default: join(tmpdir(), "mutations.jsonl") },
  report: { type: "boolean", default: false },
  list: { type: "boolean", default: false },
  help: { type: "boolean", default: false },
} as const
const given = parseArgs({ options }).values
const print = (text: string) => process.stdout.write(`${text}\n`)

const known = (): ReadonlyArray<Result> =>
  existsSync(given.results) ? (linesOf(given.results) as ReadonlyArray<Result>) : []

/** Prints the share that was noticed, by folder, and each mutant that was not. */
const report = () => {
  const results = known()
  const folders = Map.groupBy(results, ({ file }) => dirname(file))
  for (const [folder, own] of [...folders].toSorted()) {
    const killed = own.filter(({ by }) => by !== null).length
    print(`| ${folder} | ${own.length} | ${killed} | ${((100 * killed) / own.length).toFixed(0)} % |`)
  }
  for (const { by, id } of results) if (by === null) print(`survived: ${id}`)
}

type Tests = Awaited<ReturnType<typeof openTests>>

/** The first test that fails with a change, also alone, and not without it. Others that failed are forgotten. */
const noticedBy = async (tests: Tests, place: Place, known: Set<Cover>, plant: (isPlanted: boolean) => void) => {
  for (;;) {
    let by: Failed | undefined
    plant(true)
    for (const [files, names] of runsFor(place, [...known])) by ??= await tests.run(files, names)
    const failsAlone = by !== undefined && by !== hanging && (await tests.run([by.file], patternOf(by))) !== undefined
    plant(false)
    if (by === undefined || by === hanging) return by
    if (failsAlone && (await tests.run([by.file], patternOf(by))) === undefined) return by
    print(`fails now and then: ${nameOf(by)}`)
    for (const one of known) if (one.file === by.file && (by.name === "" || one.name === by.name)) known.delete(one)
  }
}

/** Hunts one mutant after the other in a copy of its own. Others take theirs from the same list: each comes once. */
const work = async (mutants: Iterable<Place>, known: Set<Cover>) => {
  const folder = copy()
  const tests = await openTests(folder)
  try {
    for (const mutant of mutants) {
      const path = join(folder, mutant.file)
      const text = readFileSync(join(repository, mutant.file), "utf8")
      const began = Date.now()
      const by = await noticedBy(tests, mutant, known, (isPlanted) =>
        writeFileSync(
          path,
          isPlanted ? text.slice(0, mutant.at) + mutant.to + text.slice(mutant.at + mutant.from.length) : text,
        ),
      )
      const result: Result = { id: mutant.id, file: mutant.file, by: by === undefined ? null : nameOf(by) }
      appendFileSync(given.results, `${JSON.stringify(result)}\n`)
      const seconds = Math.round((Date.now() - began) / 1000)
      print(`${by === undefined ? "survived" : "noticed"}, ${seconds} s: ${mutant.id}${by ? ` (${nameOf(by)})` : ""}`)
    }
  } finally {
    await tests.close()
    rmSync(folder, { recursive: true, force: true })
  }
}

const hunt = async () => {
  const order = inOrder(Number(given.seed)).filter(({ id }) => id.includes(given.only))
  if (given.list) return order.forEach(({ id }) => print(id))
  const done = new Set(known().map(({ id }) => id))
  const next = order.filter(({ id }) => !done.has(id)).slice(0, Number(given.runs))
  print(`${order.length} places; ${next.length} now`)
  const mutants = next.values()
  const all = new Set(await covers())
  await Promise.all(Array.from({ length: Number(given["at-once"]) }, () => work(mutants, all)))
}

if (given.help) print(usage)
else if (given.report) report()
else await hunt()
