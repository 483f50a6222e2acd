import { assert, it } from "@effect/vitest"
import { execFileSync } from "node:child_process"
import { existsSync, readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { licensed, page, pagePath } from "../scripts/licences.ts"

/**
 * Promise (Licences): Everything that production installs has a permissive licence and is in the bill of materials.
 */

/** Licences that require only a notice. */
const permissive = new Set([
  "0BSD",
  "Apache-2.0",
  "BSD-2-Clause",
  "BSD-3-Clause",
  "BlueOak-1.0.0",
  "ISC",
  "MIT",
  "MIT-0",
])

/** Whether the licence can be permissive: `A OR B` is a choice, `A AND B` means both. */
const isPermissive = (expression: string) =>
  expression
    .replace(/^\((.*)\)$/, "$1")
    .split(" OR ")
    .some((choice) => choice.split(" AND ").every((licence) => permissive.has(licence)))

it("docs/licences.md lists the installed packages; npm run licences writes it", () => {
  assert.strictEqual(readFileSync(pagePath, "utf8"), page())
})

// Seen failing with GPL-3.0-only in the lock file in place of MIT.
it("every installed production package has a permissive licence", () => {
  const packages = licensed()
  assert.isAbove(packages.length, 10)
  for (const { path, name, version, licence } of packages) {
    assert.isTrue(isPermissive(licence), `${name} is under ${licence}`)
    const manifest = fileURLToPath(new URL(`../${path}/package.json`, import.meta.url))
    if (!existsSync(manifest)) continue // An optional package for another platform.
    const installed = JSON.parse(readFileSync(manifest, "utf8")) as { version: string; license?: string }
    assert.deepStrictEqual([installed.version, installed.license], [version, licence], name)
  }
})

/** The type checker on platforms that our registry does not serve: the lock file cannot know their hashes. */
const unknownHashes = /^node_modules\/@effect\/tsgo-(darwin|linux|win32)-/

it.each(["", "bench/", "tools/"])("every entry of %spackage-lock.json has the hash of its package", (folder) => {
  const { packages } = JSON.parse(readFileSync(new URL(`../${folder}package-lock.json`, import.meta.url), "utf8")) as {
    readonly packages: Readonly<Record<string, { readonly integrity?: string; readonly link?: boolean }>>
  }
  const without = Object.entries(packages)
    .filter(([path, { integrity, link }]) => path.includes("node_modules/") && link !== true && integrity === undefined)
    .map(([path]) => path)
  assert.deepStrictEqual(
    without.filter((path) => !unknownHashes.test(path)),
    [],
  )
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

// Seen failing with `--omit dev`: npm 11 also leaves out what a development dependency needs, even `effect`.
it("npm run sbom lists every production package", () => {
  const bill = JSON.parse(execFileSync("npm", ["run", "-s", "sbom"], { encoding: "utf8", stdio: "pipe" })) as Bill
  assert.strictEqual(bill.bomFormat, "CycloneDX")
  const named = bill.components
    .filter(({ properties }) => !properties.some(({ name }) => name === "cdx:npm:package:development"))
    .map(({ group, name, version }) => `${group === undefined ? "" : `${group}/`}${name}@${version}`)
  for (const { name, version } of licensed()) assert.include(named, `${name}@${version}`)
})
