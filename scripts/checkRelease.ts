/* oxlint-disable no-console -- a program for the terminal */
import { spawnSync } from "node:child_process"
import { readFileSync, writeFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { measured } from "../bench/measured.ts"

/**
 * `npm run check:release`: what must hold for a release, and need not hold for each change. It fails where figures of
 * docs/performance.md are older than the code that they measure and do not say so, or say so and are not. With `--mark`
 * it writes that into their sections instead.
 */

/** A section of measured figures. */
export interface Section {
  readonly title: string
  /** The scenario that measured it. */
  readonly scenario: string
  readonly date: string
  /** The commit of the code that was measured. */
  readonly commit: string
  /** Whether files were changed beside that commit. */
  readonly changed: boolean
  readonly machine: string
  /** Whether the section says that it is older than the code. */
  readonly marked: boolean
}

const circumstances =
  /^(?<date>\d{4}-\d\d-\d\d), Gatehouse (?<commit>[0-9a-f]{7,40})(?<changed> and changes)?, `npm run bench -- (?<scenario>\w+)[^`]*`, on (?<machine>[^.]+ cores? [^.]+)\./m

const partsOf = (document: string) => {
  const [, rest = ""] = document.split(/<!-- measured.*-->/)
  return rest.split("<!-- /measured -->")[0]!.split(/^### /m).slice(1)
}

/** The measured sections of docs/performance.md. Throws for one that does not say what it is of. */
export const sectionsOf = (document: string): ReadonlyArray<Section> =>
  partsOf(document).map((text) => {
    const title = text.split("\n", 1)[0]!
    const { changed, commit, date, machine, scenario } = circumstances.exec(text)?.groups ?? {}
    if (commit === undefined)
      throw new Error(`${title}: the section does not say its date, commit, scenario and machine`)
    return {
      title,
      scenario: scenario!,
      date: date!,
      commit,
      changed: changed !== undefined,
      machine: machine!,
      marked: text.includes("**Older than the code.**"),
    }
  })

/** Why the figures of a section are not those of the checkout's code; `undefined` if they are. */
export const faultOf = ({ changed, commit }: Section, paths: ReadonlyArray<string>, checkout: string) => {
  const git = (...args: ReadonlyArray<string>) => spawnSync("git", args, { cwd: checkout, encoding: "utf8" })
  if (git("merge-base", "--is-ancestor", commit, "HEAD").status !== 0) return `${commit} is no commit of this history`
  if (changed) return `the code had changes that are not in ${commit}`
  const since = git("log", "--format=%h", `${commit}..HEAD`, "--", ...paths)
  if (since.status !== 0) return since.stderr.trim()
  const commits = since.stdout.split("\n").filter((line) => line !== "")
  return commits.length === 0
    ? undefined
    : `${commits.length} commits since ${commit} changed what it measures, the last one ${commits[0]}`
}

const mark = (commit: string) =>
  `**Older than the code.** These figures are of ${commit}; what they measure has changed since, and is not measured again yet.`
const marked = /\*\*Older than the code\.\*\* .*\n\n/g

/** Writes into each section of a document whether it is older than the code. */
export const withMarks = (document: string, isOlder: (section: Section) => boolean): string =>
  sectionsOf(document).reduce((text, section) => {
    const [before, rest] = text.split(`### ${section.title}\n`) as [string, string]
    const end = rest.search(/^### |<!-- \/measured -->/m)
    const own = rest.slice(0, end).replace(marked, "")
    const line = circumstances.exec(own)!
    const written = isOlder(section)
      ? `${own.slice(0, line.index)}${mark(section.commit)}\n\n${own.slice(line.index)}`
      : own
    return `${before}### ${section.title}\n${written}${rest.slice(end)}`
  }, document)

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const repository = fileURLToPath(new URL("../", import.meta.url))
  const path = `${repository}docs/performance.md`
  const document = readFileSync(path, "utf8")
  const sections = sectionsOf(document)
  const faults = new Map(sections.map((one) => [one.title, faultOf(one, measured[one.scenario] ?? [], repository)]))
  if (process.argv.includes("--mark"))
    writeFileSync(
      path,
      withMarks(document, ({ title }) => faults.get(title) !== undefined),
    )
  else
    for (const { marked, scenario, title } of sections) {
      const fault = faults.get(title)
      if (marked === (fault !== undefined)) continue
      console.error(
        `docs/performance.md, ${title}: ${fault ?? "the figures are of this code, but say that they are older"}`,
      )
      console.error(`Run npm run bench -- ${scenario}, or npm run check:release -- --mark`)
      process.exitCode = 1
    }
}
