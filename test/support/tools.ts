import { existsSync } from "node:fs"
import { fileURLToPath } from "node:url"

/** The program of a tool in `tools`, which `npm ci --prefix tools` installs. */
export const toolPath = (name: string) =>
  fileURLToPath(new URL(`../../tools/node_modules/.bin/${name}`, import.meta.url))

/** Whether the tools are installed. */
export const hasTools = existsSync(toolPath("publint"))
if (!hasTools) process.stdout.write("tests with tools are skipped: run npm ci --prefix tools\n")
