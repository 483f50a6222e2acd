import { defineConfig } from "vitest/config"
import { measureSlowness } from "./test/support/slowness.ts"

/** The deadlines of the tests, and of the service under test, are as much longer as the machine is slower. */
const slowness = Number(process.env["TEST_SLOWNESS"] ?? measureSlowness())
if (slowness > 1) process.stderr.write(`The machine is busy: deadlines of the tests are ${slowness} times longer.\n`)

export default defineConfig({
  test: {
    globalSetup: ["test/support/postgres.ts"],
    env: { TEST_SLOWNESS: String(slowness) },
    // Far longer than a test takes on a busy machine; what a test waits for has its own bound (test/support/wait.ts).
    testTimeout: 120_000 * slowness,
    // Its own count leaves a core idle on a machine of two, and takes too many where there are many.
    maxWorkers: 2,
    // A worker loads the modules once; tests share no state of theirs.
    isolate: false,
    hookTimeout: 120_000 * slowness,
    // As long as other waits of the tests.
    expect: { poll: { timeout: 60_000 * slowness } },
    projects: [
      {
        extends: true,
        test: {
          name: "main",
          setupFiles: ["test/support/busyMachine.ts"],
          include: ["test/**/*.test.ts"],
          exclude: [
            "test/faults/**",
            "test/package/**",
            "test/generated/**",
            "test/schemathesis/**",
            "test/console/**",
            "test/sim/**",
          ],
        },
      },
      // The console in Chromium, built from this source: `npm run test:console`. A browser on a machine that others use
      // now and then stops answering: a test that fails is run again once, and told as such.
      {
        extends: true,
        test: {
          name: "console",
          include: ["test/console/**/*.test.ts"],
          // A story is many steps, and axe takes seconds for a page on a busy machine.
          testTimeout: 300_000 * slowness,
          retry: 1,
          globalSetup: ["test/support/postgres.ts", "test/console/build.ts"],
        },
      },
      // The whole service in simulation: `npm run test:sim`. A world replaces the clock of its process.
      { extends: true, test: { name: "sim", include: ["test/sim/**/*.test.ts"] } },
      // Processes, databases and networks that fail, and load: `npm run test:faults`. Real time and processes on a
      // machine that others use: one that fails is run again once, and told as such.
      {
        extends: true,
        test: { name: "faults", include: ["test/faults/**/*.test.ts"], testTimeout: 180_000 * slowness, retry: 1 },
      },
      // The command line as a process, and the package installed in an empty folder: `npm run test:package`.
      {
        extends: true,
        test: { name: "package", include: ["test/package/**/*.test.ts"], testTimeout: 180_000 * slowness },
      },
      // Cases that Schemathesis makes from the OpenAPI document: `npm run test:schemathesis`.
      {
        extends: true,
        test: { name: "schemathesis", include: ["test/schemathesis/**/*.test.ts"], testTimeout: 900_000 * slowness },
      },
      // Clients that generators of others make from the OpenAPI document, in five languages: `npm run test:clients`. The first
      // run downloads the generators from their package registries.
      {
        extends: true,
        test: { name: "clients", include: ["test/generated/**/*.test.ts"], testTimeout: 900_000 * slowness },
      },
    ],
  },
})
