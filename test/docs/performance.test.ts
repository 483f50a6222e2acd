import { describe, expect, it } from "@effect/vitest"
import { execFileSync } from "node:child_process"
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll } from "vitest"
import { measured } from "../../bench/measured.ts"
import { type Saved, withFigures } from "../../bench/support/report.ts"
import { faultOf, type Section, sectionsOf, withMarks } from "../../scripts/checkRelease.ts"
import { pages, repository } from "./pages.ts"

const document = pages.find(({ path }) => path === "docs/performance.md")!.text

it("every section of figures names its date, commit, machine, and a scenario whose source is known", () => {
  const sections = sectionsOf(document)
  expect(sections.length).toBeGreaterThan(4)
  expect(sections.filter(({ scenario }) => !(scenario in measured))).toEqual([])
  expect(() => sectionsOf(document.replace(/, Gatehouse [0-9a-f]{7}/, ", Gatehouse"))).toThrow("does not say its date")
})

it("every scenario names source that there is", () => {
  const paths = new Set(Object.values(measured).flat())
  expect([...paths].filter((path) => !existsSync(join(repository, path)))).toEqual([])
  for (const name of Object.keys(measured))
    expect(existsSync(join(repository, `bench/scenarios/${name}.ts`)), name).toBe(true)
})

describe("npm run check:release", () => {
  const folder = mkdtempSync(join(tmpdir(), "gatehouse-release-"))
  afterAll(() => rmSync(folder, { recursive: true, force: true }))
  const git = (...args: ReadonlyArray<string>) =>
    execFileSync("git", ["-c", "user.name=t", "-c", "user.email=t@example.com", ...args], {
      cwd: folder,
      encoding: "utf8",
    })
  const commit = (path: string, text: string) => {
    mkdirSync(join(folder, "src/keys"), { recursive: true })
    writeFileSync(join(folder, path), text)
    git("add", "-A")
    git("commit", "-qm", path)
    return git("rev-parse", "--short=7", "HEAD").trim()
  }
  const section = (commit: string, changed = false): Section => ({
    title: "Validate",
    scenario: "validate",
    date: "2026-11-23",
    machine: "2 cores",
    commit,
    changed,
    marked: false,
  })
  const paths = ["src/keys"]

  it("fails for figures that are older than what they measure, and for those of unknown code", () => {
    git("init", "-q")
    const first = commit("src/keys/a.ts", "1")
    const other = commit("README.md", "1")
    expect(faultOf(section(first), paths, folder)).toBeUndefined()
    const last = commit("src/keys/a.ts", "2")
    for (const one of [first, other]) {
      expect(faultOf(section(one), paths, folder)).toBe(
        `1 commits since ${one} changed what it measures, the last one ${last}`,
      )
    }
    expect(faultOf(section(last), paths, folder)).toBeUndefined()
    expect(faultOf(section(last, true), paths, folder)).toContain("changes that are not in")
    expect(faultOf(section("0123456"), paths, folder)).toContain("no commit of this history")
  })

  it("marks exactly the sections that are older, and takes a mark away", () => {
    const [one] = sectionsOf(document)
    const marked = withMarks(document, ({ title }) => title === one!.title)
    expect(marked.match(/Older than the code/g)).toHaveLength(1)
    expect(marked).toContain(`These figures are of ${one!.commit};`)
    expect(sectionsOf(marked).map((section) => section.marked)).toEqual(sectionsOf(document).map((_, at) => at === 0))
    expect(withMarks(marked, () => false)).not.toContain("Older than the code")
  })

  it("a later measurement of other sections leaves a mark", () => {
    const [one, two] = sectionsOf(document)
    const marked = withMarks(document, ({ title }) => title === one!.title)
    const figures = (name: string, title: string): Saved => ({
      ...{ name, title, about: "", command: `npm run bench -- ${name}`, date: "2027-01-02", commit: "0123456" },
      ...{ machine: "2 cores of x", versions: "Node 24", conditions: "", quick: false },
      found: { tables: [], bars: [], notes: [] },
    })
    const saved = [figures(one!.scenario, one!.title), figures(two!.scenario, two!.title)]
    const written = sectionsOf(withFigures(marked, saved, new Set([two!.scenario])))
    expect(written.map((section) => section.marked)).toEqual(sectionsOf(marked).map((section) => section.marked))
    expect(written.map(({ commit }) => commit).slice(0, 2)).toEqual([one!.commit, "0123456"])
  })
})
