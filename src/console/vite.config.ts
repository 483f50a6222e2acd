import { join } from "node:path"
import { OpenApi } from "effect/http-api"
import { defineConfig, type Plugin } from "vite"
import { type Document, generate } from "../../packages/client/generator.ts"
import { Api } from "../http/api/Api.ts"

/** The method, path and parameters of each operation, from the definition that the server has. */
const operationTable = (): Plugin => ({
  name: "operation-table",
  resolveId: (id) => (id === "virtual:operation-table" ? `\0${id}` : null),
  load: (id) =>
    id === "\0virtual:operation-table"
      ? `export default ${JSON.stringify(generate(OpenApi.fromApi(Api) as unknown as Document).table)}`
      : null,
})

/** Builds the console into `dist/console`, from where the service serves it. */
export default defineConfig({
  root: import.meta.dirname,
  base: "/console/",
  plugins: [operationTable()],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../../dist/console",
    emptyOutDir: true,
    target: "es2022",
    // No inline data: the policy of the page allows files of this server only.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rolldownOptions: {
      // The custom element beside the page: one file with a name that pages of others can load.
      input: {
        index: join(import.meta.dirname, "index.html"),
        element: join(import.meta.dirname, "../../packages/client/src/portal.ts"),
      },
      output: {
        entryFileNames: ({ name }) => (name === "element" ? "element.js" : "assets/[name]-[hash].js"),
        // Twenty files of some hundred bytes compress worse than one.
        codeSplitting: { groups: [{ name: "shared", test: /console.(pages|components)/, minShareCount: 2 }] },
      },
    },
  },
})
