import { expect, it } from "vitest"
import { spawnSync } from "node:child_process"
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { runInNewContext } from "node:vm"

const root = new URL("../../", import.meta.url)
const check = readFileSync(new URL("bin/node.cjs", root), "utf8")

/** The output of the command on a version of Node before it loads anything. */
const printedOn = (node: string) => {
  let printed = ""
  const exit = (code: number) => void (printed += `exit ${code}`)
  runInNewContext(check, {
    process: { versions: { node }, stderr: { write: (text: string) => (printed += text) }, exit },
  })
  return printed
}

it("the command names the required Node version on a version that cannot read the program", () => {
  for (const old of ["12.22.0", "18.20.8", "20.20.2", "22.18.0"]) {
    expect(printedOn(old)).toMatch(
      new RegExp(`^gatehouse: This is Node ${old}, and Gatehouse needs Node 22\\.19 or newer\\. .*\nexit 1$`),
    )
  }
  for (const good of ["22.19.0", "24.21.0", "26.0.0"]) expect(printedOn(good)).toBe("")
})

it("the check requires the Node version of the package, in syntax of any version", () => {
  const { engines } = JSON.parse(readFileSync(new URL("package.json", root), "utf8")) as {
    readonly engines: { readonly node: string }
  }
  expect(engines.node).toBe(`>=${/needed = \[(\d+), (\d+)\]/.exec(check)!.slice(1).join(".")}`)
  expect(check).not.toMatch(/=>|`|\bconst\b|\blet\b|\?\.|\?\?|^import /m)
})

it("npm start says in a sentence what a checkout lacks, and starts without the console", () => {
  const folder = mkdtempSync(join(tmpdir(), "gatehouse-checkout-"))
  try {
    for (const part of ["bin", "scripts"]) cpSync(new URL(part, root), join(folder, part), { recursive: true })
    const start = () => {
      const { status, stderr } = spawnSync(process.execPath, ["scripts/beforeStart.cjs"], { cwd: folder })
      return [status, stderr.toString()]
    }
    expect(start()).toEqual([1, "gatehouse: The packages are not installed. Run npm ci, then npm start again.\n"])
    mkdirSync(join(folder, "node_modules/effect"), { recursive: true })
    expect(start()).toEqual([
      0,
      expect.stringMatching(/^gatehouse: The service starts without the console: npm ci.*\n$/),
    ])
    mkdirSync(join(folder, "dist/console"), { recursive: true })
    writeFileSync(join(folder, "dist/console/index.html"), "")
    expect(start()).toEqual([0, ""])
  } finally {
    rmSync(folder, { recursive: true })
  }
})
