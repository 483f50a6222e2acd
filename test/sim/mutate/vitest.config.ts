import { defineConfig } from "vitest/config"
import shared from "../../../vitest.config.ts"
import { repository } from "./places.ts"

/** Set: the file in which each test says what it has run, while all of them run. */
const covers = process.env["COVERS"]
const { projects: _, ...others } = shared.test!

/** The tests that are asked about a change of the source. */
export default defineConfig({
  root: repository,
  test: {
    ...others,
    bail: covers === undefined ? 1 : 0,
    maxWorkers: covers === undefined ? 1 : 2,
    // Node loads the source itself: so what V8 counts are the characters of its files.
    experimental: { viteModuleRunner: false },
    setupFiles: ["test/support/busyMachine.ts", ...(covers === undefined ? [] : ["test/sim/mutate/covers.ts"])],
    include: ["test/{cli,domain,contract,infrastructure,http,sim/conversations}/**/*.test.ts"],
  },
})
