import { spawn } from "node:child_process"
import {
  appendFileSync,
  cpSync,
  existsSync,
  globSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs"
import { stripTypeScriptTypes } from "node:module"
import { tmpdir } from "node:os"
import { basename, dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"
import { Dice } from "./world.ts"

const usage = `Changes the source by itself, one place at a time, and looks which tests notice.

  npm run mutate -- --runs=20          20 more mutants; those of before are remembered in --results
  npm run mutate -- --report           what is known so far, by folder
  npm run mutate -- --only=TEXT        only places with this text, such as jobs/retryJobs.ts or "drop a lock"
  npm run mutate -- --seed=2           in another order
  npm run mutate -- --at-once=2        so many beside each other
  npm run mutate -- --results=FILE     where results are; by default mutations.jsonl in the folder of temporary files
`

const repository = fileURLToPath(new URL("../../", import.meta.url))

/** A place of the source, and what stands there instead. */
interface Mutant {
  readonly id: string
  readonly operator: string
  readonly file: string
  readonly at: number
  readonly from: string
  readonly to: string
}

/** What a mutant changes: each match of a text, and what comes in its place. SQL and TypeScript are both texts here. */
const operators: Readonly<Record<string, readonly [RegExp, (match: RegExpMatchArray) => string]>> = {
  // A condition ends before the next one, a bracket that it has not opened, or a line.
  "drop a condition": [
    /\s+AND (?!pg_|NULL)(?:\$\{[^}`\n]*\}|\([^()`\n]*\)|(?! AND | OR |BETWEEN)[^()`\n;])+(?=[\n`);])/g,
    () => "",
  ],
  "drop a condition in a line": [
    / AND [\w.]+ (?:=|<>|<=|>=|<|>|IS NULL|IS NOT NULL)(?: ?\$\{[^}`\n]*\}| ?[\w.:']+)?(?= AND )/g,
    () => "",
  ],
  "drop a condition of code": [/ && [\w.!]+(?: (?:===|!==|<|>|<=|>=) [\w."]+)?(?=[ )\n])/g, () => ""],
  "drop a lock": [/ FOR (?:NO KEY UPDATE|UPDATE|SHARE)(?: OF \w+)?(?: SKIP LOCKED| NOWAIT)?/g, () => ""],
  "wait for a lock": [/ SKIP LOCKED/g, () => ""],
  "flip a comparison": [
    / (<=|>=|<|>|===|!==|<>) (?=[\w$'"(])/g,
    ([, sign]) => ` ${{ "<=": "<", ">=": ">", "<": "<=", ">": ">=", "===": "!==", "!==": "===", "<>": "=" }[sign!]!} `,
  ],
  "turn a condition around": [/ (&&|\|\|) /g, ([, sign]) => (sign === "&&" ? " || " : " && ")],
  "take the clock of the process": [/\bnow\(\)/g, () => "'${new Date().toISOString()}'::timestamptz"],
  "drop a statement": [/\n +yield\* (?!Effect\.log|Effect\.annotate)[\w.]+[(`][^\n]*[)`](?=\n)/g, () => ""],
  "swap two statements": [
    /\n( +)(yield\* [^\n]*[)`])\n\1(yield\* [^\n]*[)`])(?=\n)/g,
    ([, space, one, other]) => `\n${space}${other}\n${space}${one}`,
  ],
  "forget a default": [/coalesce\(([\w.]+), [\w']+\)/g, ([, name]) => name!],
  "the greatest is the least": [
    /\b(greatest|least|max|min)\(/g,
    ([, name]) => `${{ greatest: "least", least: "greatest", max: "min", min: "max" }[name!]!}(`,
  ],
}

/** Text that changes no behaviour, or that no promise is about: comments, imports, types, logs. */
const isApart = (text: string, at: number) => {
  const line = text.slice(text.lastIndexOf("\n", at - 1) + 1, text.indexOf("\n", at + 1))
  const own = text.slice(at).startsWith("\n") ? text.slice(at + 1, text.indexOf("\n", at + 1)) : line
  return (
    /^\s*(\/\/|\*|\/\*|--|import |export type|readonly )/.test(own) ||
    /Effect\.log|=> *void|Schema\.|: ReadonlyArray<|interface /.test(own)
  )
}

/** Files without decisions about the state of the service, or whose outcome only the outside world shows. */
const leftOut =
  /infrastructure\/(checks|telemetry|net|oidc|crypto|docs)\/|domain\/docs\/|migrations|embedded|domain\/.*Repository\.ts|Schemas\.ts/

/** All places where the source can be changed, in the order of their files. */
const places = (): ReadonlyArray<Mutant> =>
  globSync("src/{infrastructure,domain}/**/*.ts", { cwd: repository })
    .filter((file) => !leftOut.test(file))
    .toSorted()
    .flatMap((file) => {
      const text = readFileSync(join(repository, file), "utf8")
      return Object.entries(operators).flatMap(([operator, [pattern, replaced]]) =>
        [...text.matchAll(pattern)].flatMap((match): ReadonlyArray<Mutant> => {
          const [from] = match
          const to = replaced(match)
          const [before, after] = [text.slice(0, match.index), text.slice(match.index + from.length)]
          // Only a statement with parameters has a place for a time.
          const isInSql = (before.match(/`/g)?.length ?? 0) % 2 === 1
          if (operator === "take the clock of the process" && !isInSql) return []
          if (isApart(text, match.index) || !isSound(before + to + after)) return []
          const line = `${before}\n`.split("\n").length - (from.startsWith("\n") ? 0 : 1)
          const what = from.trim().replaceAll(/\s+/g, " ")
          return [{ id: `${file}:${line}: ${operator}: ${what}`, operator, file, at: match.index, from, to }]
        }),
      )
    })

/** The places in an order that a seed decides, each operator as often as the others. */
const inOrder = (seed: number) => {
  const dice = new Dice(seed)
  const ofEach = Map.groupBy(places(), ({ operator }) => operator)
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

/** Whether a text is still TypeScript. */
const isSound = (text: string) => {
  try {
    stripTypeScriptTypes(text)
    return true
  } catch {
    return false
  }
}

/** The tests of a file, the quickest first: each is the arguments of a run. */
const stepsFor = (file: string): ReadonlyArray<ReadonlyArray<string>> => {
  const [folder, ...inside] = file.split("/").slice(2)
  // A file that stands in no feature has tests of its own name.
  const feature = inside.length > 0 ? folder! : basename(file, ".ts")
  const own = (part: string) =>
    globSync(`test/${part}/${feature}{/*,}.test.ts`, { cwd: repository }).length > 0 ? [`test/${part}/${feature}`] : []
  const isOfWebhooks = feature === "jobs" || feature === "webhooks"
  const suite = `test/contract/${isOfWebhooks ? "webhooks/Webhooks" : "Repositories"}.test.ts`
  const steps = [
    own("domain"),
    [suite, "-t", "postgres"],
    [...own("infrastructure"), ...own("contract"), ...own("http")],
    ["test/contract/Races.test.ts"],
  ]
  const inMain = (file.startsWith("src/domain/") ? steps : steps.slice(1)).filter((step) => step.length > 0)
  const conversations = ["--project=sim", "test/sim/conversations"]
  return [...inMain.map((step) => ["--project=main", ...step]), conversations]
}

/** A copy of the source and the tests, which runs beside the dependencies of this one. */
const copy = () => {
  const folder = mkdtempSync(join(tmpdir(), "gatehouse-mutant-"))
  for (const part of ["src", "test", "docs", "packages", "package.json", "vitest.config.ts"]) {
    cpSync(join(repository, part), join(folder, part), { recursive: true })
  }
  symlinkSync(join(repository, "node_modules"), join(folder, "node_modules"))
  return folder
}

/** How long one run of tests takes at most; a mutant that hangs is noticed. */
const longestMillis = 400_000

/** Runs tests in a copy; returns what failed first, or `undefined` if nothing did. */
const run = (folder: string, args: ReadonlyArray<string>) =>
  new Promise<string | undefined>((resolve) => {
    const vitest = [join(folder, "node_modules/vitest/vitest.mjs"), "run", "--bail=1", "--retry=0"]
    const child = spawn(process.execPath, [...vitest, "--silent", "--reporter=tap-flat", ...args], {
      cwd: folder,
      stdio: ["ignore", "pipe", "pipe"],
      env: { ...process.env, NO_COLOR: "1" },
    })
    let text = ""
    child.stdout.on("data", (part: Buffer) => (text += part.toString()))
    child.stderr.on("data", (part: Buffer) => (text += part.toString()))
    const timer = setTimeout(() => child.kill(), longestMillis)
    child.on("close", (code) => {
      clearTimeout(timer)
      const failed = /^not ok \d+ - (.*?)(?: # time.*)?$/m.exec(text)?.[1]
      resolve(code === 0 ? undefined : (failed ?? "a run that ended otherwise").slice(0, 160))
    })
  })

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
  existsSync(given.results)
    ? readFileSync(given.results, "utf8")
        .split("\n")
        .filter(Boolean)
        .map((line) => JSON.parse(line) as Result)
    : []

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

/** Hunts one mutant after the other in a copy of its own. Others take theirs from the same list: each comes once. */
const work = async (mutants: Iterable<Mutant>) => {
  const folder = copy()
  try {
    for (const mutant of mutants) {
      const path = join(folder, mutant.file)
      const text = readFileSync(join(repository, mutant.file), "utf8")
      writeFileSync(path, text.slice(0, mutant.at) + mutant.to + text.slice(mutant.at + mutant.from.length))
      const began = Date.now()
      let by: string | undefined
      for (const step of stepsFor(mutant.file)) if (by === undefined) by = await run(folder, step)
      writeFileSync(path, text)
      const result: Result = { id: mutant.id, file: mutant.file, by: by ?? null }
      appendFileSync(given.results, `${JSON.stringify(result)}\n`)
      const seconds = Math.round((Date.now() - began) / 1000)
      print(
        `${by === undefined ? "survived" : "noticed"}, ${seconds} s: ${mutant.id}${by === undefined ? "" : ` (${by})`}`,
      )
    }
  } finally {
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
  await Promise.all(Array.from({ length: Number(given["at-once"]) }, () => work(mutants)))
}

if (given.help) print(usage)
else if (given.report) report()
else await hunt()
