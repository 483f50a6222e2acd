import { defineConfig } from "vitest/config"
import { measureSlowness } from "../../support/slowness.ts"
import { repository } from "./places.ts"

const slowness = Number(process.env["TEST_SLOWNESS"] ?? measureSlowness())

/** The tests that are asked about a change of the source. COVERS: a file in which each test says what it has run. */
export default defineConfig({
  root: repository,
  test: {
    globalSetup: ["test/support/postgres.ts"],
    env: { TEST_SLOWNESS: String(slowness) },
    testTimeout: 120_000 * slowness,
    hookTimeout: 120_000 * slowness,
    expect: { poll: { timeout: 60_000 * slowness } },
    maxWorkers: Number(process.env["WORKERS"] ?? 1),
    isolate: false,
    // Node loads the source itself: so what V8 counts are the characters of its files.
    experimental: { viteModuleRunner: false },
    setupFiles: [
      "test/support/busyMachine.ts",
      ...(process.env["COVERS"] === undefined ? [] : ["test/sim/mutate/covers.ts"]),
    ],
    include: ["test/{cli,domain,contract,infrastructure,http,sim/conversations}/**/*.test.ts"],
  },
})
