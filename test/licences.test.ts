import { assert, it } from "@effect/vitest"
import { execFileSync } from "node:child_process"
import { existsSync, readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { licensed, page, pagePath } from "../scripts/licences.ts"

/** Licences that ask for a notice and no more. */
const permissive = new Set(["0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BlueOak-1.0.0", "ISC", "MIT"])

/** Whether one may take it under a permissive licence: `A OR B` is a choice, `A AND B` is both. */
const isPermissive = (expression: string) =>
  expression
    .replace(/^\((.*)\)$/, "$1")
    .split(" OR ")
    .some((choice) => choice.split(" AND ").every((licence) => permissive.has(licence)))

it("docs/licences.md tells what is installed; npm run licences writes it", () => {
  assert.strictEqual(readFileSync(pagePath, "utf8"), page())
})

// Seen failing with GPL-3.0-only in the lock file in the place of a MIT.
it("every package of production has a permissive licence, as it is installed", () => {
  const packages = licensed()
  assert.isAbove(packages.length, 10)
  for (const { path, name, version, licence } of packages) {
    assert.isTrue(isPermissive(licence), `${name} is under ${licence}`)
    const manifest = fileURLToPath(new URL(`../${path}/package.json`, import.meta.url))
    if (!existsSync(manifest)) continue // Optional, and not for this machine.
    const installed = JSON.parse(readFileSync(manifest, "utf8")) as { version: string; license?: string }
    assert.deepStrictEqual([installed.version, installed.license], [version, licence], name)
  }
})

interface Bill {
  readonly bomFormat: string
  readonly components: ReadonlyArray<{
    readonly group?: string
    readonly name: string
    readonly version: string
    readonly properties: ReadonlyArray<{ readonly name: string }>
  }>
}

// Seen failing with `--omit dev`, with which npm 11 leaves out what a development dependency needs as well: `effect` itself.
it("npm run sbom names every package of production", () => {
  const bill = JSON.parse(execFileSync("npm", ["run", "-s", "sbom"], { encoding: "utf8", stdio: "pipe" })) as Bill
  assert.strictEqual(bill.bomFormat, "CycloneDX")
  const named = bill.components
    .filter(({ properties }) => !properties.some(({ name }) => name === "cdx:npm:package:development"))
    .map(({ group, name, version }) => `${group === undefined ? "" : `${group}/`}${name}@${version}`)
  for (const { name, version } of licensed()) assert.include(named, `${name}@${version}`)
})
