import { expect, it } from "@effect/vitest"
import { spawnSync } from "node:child_process"
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { OpenApi } from "effect/http-api"
import { Api } from "#src/http/api/Api.ts"
import { type Document, generate } from "../../packages/client/generator.ts"
import { blocks, repository } from "./pages.ts"

/** The sources of the package's entries in the repository. */
const entries = {
  "gatehouse-server/api": ["src/http/api/Api.ts"],
  "gatehouse-server/client": ["src/sdk/client.ts"],
  "gatehouse-server/vite": ["src/sdk/vite.ts"],
  "gatehouse-server/webhooks": ["src/sdk/webhooks.ts"],
  "gatehouse-webhooks": ["src/sdk/webhooks.ts"],
  "gatehouse-gateway": ["packages/gateway/src/index.ts"],
  "gatehouse-server/worker": ["src/sdk/worker.ts"],
  "gatehouse-worker": ["src/sdk/worker.ts"],
  "gatehouse-worker/outbox": ["src/sdk/outbox.ts"],
}

/** What the pages import from elsewhere: values of the reader. */
const given = `
declare const secret: string
declare const body: string
declare const headers: Record<string, string>
`

/** Compiles blocks, each as a module in an empty folder; returns the output of the compiler. */
const checked = (languages: ReadonlyArray<string>, compilerOptions: object) => {
  const folder = mkdtempSync(join(tmpdir(), "gatehouse-docs-types-"))
  try {
    symlinkSync(join(repository, "node_modules"), join(folder, "node_modules"))
    writeFileSync(join(folder, "package.json"), `{"type":"module"}`)
    writeFileSync(join(folder, "given.d.ts"), given)
    // The types of the client are generated from the definition.
    const client = generate(OpenApi.fromApi(Api) as unknown as Document).types
    writeFileSync(join(folder, "client.d.ts"), client.replaceAll("./runtime.js", "runtime"))
    for (const [index, { language, text }] of blocks.entries()) {
      if (languages.includes(language)) writeFileSync(join(folder, `block${index}.${language}`), text)
    }
    const config = {
      extends: join(repository, "tsconfig.json"),
      compilerOptions: {
        noUnusedLocals: false,
        paths: {
          ...Object.fromEntries(Object.entries(entries).map(([name, [path]]) => [name, [repository + path]])),
          "gatehouse-client": [join(folder, "client.d.ts")],
          runtime: [`${repository}packages/client/src/runtime.ts`],
        },
        ...compilerOptions,
      },
      include: ["*"],
      exclude: [],
    }
    writeFileSync(join(folder, "tsconfig.json"), JSON.stringify(config))
    const compiler = join(repository, "node_modules/typescript/bin/tsc")
    const { stdout } = spawnSync(process.execPath, [compiler, "-p", folder], { encoding: "utf8" })
    return stdout.replaceAll(/block(\d+)\.\w+/g, (_, index: string) => blocks[Number(index)]!.at)
  } finally {
    rmSync(folder, { recursive: true })
  }
}

// Seen failing with a misspelled option, field and function.
it("the TypeScript of the documentation compiles with the types of the package", () => {
  expect(checked(["ts", "tsx"], { lib: ["es2024", "dom", "dom.iterable"], jsx: "react-jsx" })).toBe("")
})

it("the JavaScript of the documentation does too", () => {
  expect(checked(["js"], { allowJs: true, checkJs: true, strict: false, exactOptionalPropertyTypes: false })).toBe("")
})
