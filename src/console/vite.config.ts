import { defineConfig } from "vite"

/** Builds the console into `dist/console`, from where the service serves it. */
export default defineConfig({
  root: import.meta.dirname,
  base: "/console/",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../../dist/console",
    emptyOutDir: true,
    target: "es2022",
    // No inline data: the policy of the page allows files of this server only.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
})
