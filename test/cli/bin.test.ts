import { expect, it } from "vitest"
import { readFileSync } from "node:fs"
import { runInNewContext } from "node:vm"

const path = new URL("../../bin/gatehouse.cjs", import.meta.url)
// The last lines load the program.
const [check] = readFileSync(path, "utf8")
  .replace(/^#!.*\n/, "")
  .split("// A checkout has the sources")

/** The output of the command on a version of Node before it loads anything. */
const printedOn = (node: string) => {
  let printed = ""
  const exit = (code: number) => void (printed += `exit ${code}`)
  runInNewContext(check!, {
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
  const { engines } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as {
    readonly engines: { readonly node: string }
  }
  expect(engines.node).toBe(`>=${/needed = \[(\d+), (\d+)\]/.exec(check!)!.slice(1).join(".")}`)
  expect(check).not.toMatch(/=>|`|\bconst\b|\blet\b|\?\.|\?\?|^import /m)
})
