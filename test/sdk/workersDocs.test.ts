import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { spawn, spawnSync } from "node:child_process"
import { once } from "node:events"
import { fileURLToPath } from "node:url"
import { blocks } from "../docs/pages.ts"
import { get, make } from "../http/jobs/jobCalls.ts"
import { makeTenant } from "../http/tenants.ts"
import { layer } from "../support/it.ts"
import { onPostgres, TestServer } from "../support/server.ts"
import { until, within } from "../support/wait.ts"

const [withPackage, alone] = blocks.filter(({ language, page }) => language === "python" && page === "docs/workers.md")
const PYTHONPATH = fileURLToPath(new URL("../../packages/worker-python", import.meta.url))

layer(TestServer.layer(onPostgres()), { excludeTestServices: true })("docs/workers.md", (it) => {
  it.effect.each([
    { name: "with its package", program: withPackage!.text },
    { name: "alone", program: alone!.text },
  ])(
    "has a Python worker, $name, that finishes jobs, retries errors, and stops at SIGTERM",
    function* ({ program }, { skip }) {
      skip(spawnSync("python3", ["--version"]).status !== 0, "there is no python3 here")
      const { url } = yield* TestServer
      const tenant = yield* makeTenant()
      const [good, bad] = [
        yield* make(tenant, { workflow: "nightly-report", input: [1] }),
        yield* make(tenant, { workflow: "nightly-report", input: "bad", max_attempts: 1 }),
      ]
      // The work fails for one input.
      const input = program === alone!.text ? 'job["input"]' : "job.input"
      const text = program.replace(
        '    return {"rows"',
        `    if ${input} == "bad": raise ValueError("bad input")\n    return {"rows"`,
      )
      const env = {
        ...process.env,
        GATEHOUSE_URL: url,
        GATEHOUSE_TOKEN: tenant.key,
        PYTHONPATH,
        PYTHONDONTWRITEBYTECODE: "1",
      }
      const worker = yield* Effect.acquireRelease(
        Effect.sync(() => spawn("python3", ["-c", text], { env, stdio: ["ignore", "ignore", "pipe"] })),
        (child) => Effect.sync(() => child.kill("SIGKILL")),
      )
      let errors = ""
      worker.stderr.on("data", (chunk) => (errors += String(chunk)))
      yield* until("the result", get(tenant, good), ({ status }) => status === "completed")
      expect((yield* get(tenant, good)).result).toEqual({ rows: 3, input: [1] })
      yield* until("the failure", get(tenant, bad), ({ status }) => status === "failed")
      expect((yield* get(tenant, bad)).error).toBe("bad input")
      const exit = once(worker, "exit")
      worker.kill("SIGTERM")
      const [code] = yield* within(
        "the worker to stop",
        Effect.promise(() => exit),
      )
      expect([code, errors]).toEqual([0, ""])
    },
  )
})
