import { readFile } from "node:fs/promises"
import { fileURLToPath } from "node:url"

declare const WebAssembly: { readonly compile: (bytes: Uint8Array) => Promise<never> }

/** The engine, compiled once in a process: what V8 has optimized in a run, the next run has. */
export const compiled = (async () => {
  const file = (name: string) =>
    readFile(fileURLToPath(import.meta.resolve("@electric-sql/pglite").replace("index.js", name)))
  return {
    pgliteWasmModule: await WebAssembly.compile(await file("pglite.wasm")),
    fsBundle: new Blob([await file("pglite.data")]),
  }
})()

/** The files of a database with all migrations, which the first run of a process makes. */
export const engine: { template: Promise<File | Blob> | undefined } = { template: undefined }
