import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { build } from "vite"
import type { TestProject } from "vitest/node"

declare module "vitest" {
  interface ProvidedContext {
    /** The folder of the built console. */
    readonly consoleFolder: string
  }
}

/** Builds the console of this source as it is shipped, once for the run. */
export default async function setup(project: TestProject) {
  const folder = mkdtempSync(join(tmpdir(), "gatehouse-console-"))
  const root = new URL("../../src/console/", import.meta.url).pathname
  // Libraries have more code in the environment of tests.
  const environment = process.env["NODE_ENV"]
  process.env["NODE_ENV"] = "production"
  await build({ configFile: join(root, "vite.config.ts"), logLevel: "warn", build: { outDir: folder } })
  process.env["NODE_ENV"] = environment
  project.provide("consoleFolder", folder)
  return () => rmSync(folder, { recursive: true, force: true })
}
