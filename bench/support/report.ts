/* oxlint-disable no-console -- a program for the terminal */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import type { Bar, Found, Scenario, Table } from "./result.ts"

/** The circumstances of the figures. */
export interface Circumstances {
  readonly command: string
  readonly date: string
  /** The commit of the service. */
  readonly commit: string
  readonly machine: string
  readonly versions: string
  readonly conditions: string
  readonly quick: boolean
}

/** The stored figures of a scenario. */
export interface Saved extends Circumstances {
  readonly name: string
  readonly title: string
  readonly about: string
  readonly found: Found
}

const results = fileURLToPath(new URL("../results/", import.meta.url))
const document = fileURLToPath(new URL("../../docs/performance.md", import.meta.url))
const begin = "<!-- measured: written by `npm run bench`, do not edit -->"
const end = "<!-- /measured -->"

/** Prints the figures in columns. */
export const print = (scenario: Scenario, { bars, notes, tables }: Found): void => {
  console.log("")
  for (const { columns, rows, title } of tables) {
    const widths = columns.map((column, at) => Math.max(column.length, ...rows.map((row) => row[at]?.length ?? 0)))
    const line = (cells: ReadonlyArray<string>) =>
      cells.map((cell, at) => (at === 0 ? cell.padEnd(widths[at]!) : cell.padStart(widths[at]!))).join("  ")
    console.log(`  ${title}\n  ${[columns, ...rows].map(line).join("\n  ")}\n`)
  }
  for (const bar of bars) console.log(`  ${bar.met ? "met    " : "NOT MET"}  ${bar.what}: ${bar.found} (${bar.wanted})`)
  for (const note of notes) console.log(`  ${note}`)
  if (bars.length === 0) console.log(`  ${scenario.name} has no bars.`)
}

/** Stores the figures of one scenario in place of earlier ones. */
export const save = ({ about, name, title }: Scenario, found: Found, circumstances: Circumstances): void => {
  mkdirSync(results, { recursive: true })
  const saved: Saved = { name, title, about, ...circumstances, found }
  writeFileSync(`${results}${name}.json`, `${JSON.stringify(saved, null, 2)}\n`)
}

const tableText = ({ columns, rows, title }: Table) => {
  const line = (cells: ReadonlyArray<string>) => `| ${cells.join(" | ")} |`
  const rule = columns.map((_, at) => (at === 0 ? "---" : "---:"))
  return [`**${title}**`, "", ...[columns, rule, ...rows].map(line)].join("\n")
}

const barsText = (bars: ReadonlyArray<Bar>) => {
  const missed = bars
    .filter(({ met }) => !met)
    .map(({ found, wanted, what }) => `${what} is ${found} (goal: ${wanted})`)
  const met = `${bars.length - missed.length} of ${bars.length} goals are met.`
  return missed.length === 0 ? met : `${met} Not met: ${missed.join("; ")}.`
}

const section = ({ about, command, commit, conditions, date, found, machine, quick, title }: Saved) =>
  [
    `### ${title}`,
    about,
    `${date}, Gatehouse ${commit}, \`${command}\`, on ${machine}. ${conditions}${quick ? " A quick run: its figures are rough." : ""}`,
    ...found.tables.map(tableText),
    ...(found.bars.length > 0 ? [barsText(found.bars)] : []),
    ...found.notes,
  ].join("\n\n")

/** The sections of the document's figures, by their titles. */
const sectionsOf = (measured: string) =>
  new Map(
    measured
      .split(/^(?=### )/m)
      .slice(1)
      .map((text) => [/^### (.*)$/m.exec(text)![1]!, text.trim()] as const),
  )

/**
 * The document with the figures of these scenarios, in this order. A section that the document has and that is not
 * measured now stays as it is, also with a mark of `npm run check:release`.
 */
export const withFigures = (text: string, saved: ReadonlyArray<Saved>, measuredNow: ReadonlySet<string>): string => {
  const [before, rest] = text.split(begin)
  const [measuredBefore, after] = rest?.split(end) ?? []
  if (before === undefined || measuredBefore === undefined || after === undefined) {
    throw new Error(`${document} has no place for the figures`)
  }
  const sections = sectionsOf(measuredBefore)
  const others = [...sections.keys()].filter((title) => !saved.some((one) => one.title === title))
  const known = others.length > 0 ? (measuredBefore.split("### ")[0]!.match(/^\S.*$/gm) ?? []) : []
  for (const one of saved) {
    if (measuredNow.has(one.name) || !sections.has(one.title)) sections.set(one.title, section(one))
  }
  const used = [...new Set([...known, ...saved.map(({ versions }) => `${versions}.`)])]
  return before + [begin, ...used, ...sections.values(), end].join("\n\n") + after
}

/** Writes the figures that are stored for these scenarios into docs/performance.md. */
export const writeDocument = (names: ReadonlyArray<string>, measuredNow: ReadonlySet<string>): void => {
  const saved = names
    .map((name) => `${results}${name}.json`)
    .filter((path) => existsSync(path))
    .map((path) => JSON.parse(readFileSync(path, "utf8")) as Saved)
  writeFileSync(document, withFigures(readFileSync(document, "utf8"), saved, measuredNow))
}
