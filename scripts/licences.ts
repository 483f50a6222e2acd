import { readFileSync, writeFileSync } from "node:fs"
import { fileURLToPath } from "node:url"

const at = (path: string) => fileURLToPath(new URL(`../${path}`, import.meta.url))

interface LockedPackage {
  readonly version: string
  readonly license?: string
  readonly dev?: boolean
  readonly devOptional?: boolean
  /** A package of this repository. */
  readonly link?: boolean
}

/** A package that an installation without development dependencies holds, as the lock file has it. */
export interface Licensed {
  /** Where it is, from the project's folder: `node_modules/effect`. */
  readonly path: string
  readonly name: string
  readonly version: string
  /** An SPDX expression. */
  readonly licence: string
}

/** Every package of production, by its name. */
export const licensed = (): ReadonlyArray<Licensed> => {
  const { packages } = JSON.parse(readFileSync(at("package-lock.json"), "utf8")) as {
    readonly packages: Readonly<Record<string, LockedPackage>>
  }
  return Object.entries(packages)
    .filter(([path, { dev, devOptional, link }]) => {
      const isOurs = link === true || !path.startsWith("node_modules/")
      return !isOurs && dev !== true && devOptional !== true
    })
    .map(([path, { version, license = "none named" }]) => {
      return { path, name: path.slice(path.lastIndexOf("node_modules/") + 13), version, licence: license }
    })
    .sort((a, b) => (`${a.name}@${a.version}` < `${b.name}@${b.version}` ? -1 : 1))
}

/** The page of the licences. */
export const page = () => `# Licences

Gatehouse has the MIT licence. This table lists every package of an installation, with its licence (SPDX). All of them allow
use, change and redistribution if the notice is kept. \`npm run licences\` writes this page, and a test compares it with the
lock file. \`npm run sbom\` prints a bill of materials (CycloneDX) of these packages and, marked, of those for development.

| package | version | licence |
| --- | --- | --- |
${licensed()
  .map(({ name, version, licence }) => `| \`${name}\` | ${version} | ${licence} |`)
  .join("\n")}
`

export const pagePath = at("docs/licences.md")

if (import.meta.main) writeFileSync(pagePath, page())
