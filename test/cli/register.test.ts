import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { mkdtempSync, readFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { vi } from "vitest"
import { runCli } from "../support/cli.ts"
import { it } from "../support/it.ts"
import { makeReceiver } from "../support/receiver.ts"
import { makeRunner } from "../support/runner.ts"

it.live("gatehouse register sends the run's token to the service, and reports its answer", function* () {
  const service = yield* makeReceiver()
  const { endpoint, environment, secrets } = yield* makeRunner("any")
  const register = (...args: ReadonlyArray<string>) =>
    runCli(["register", ...args], { env: { GATEHOUSE_URL: service.url } })
  yield* Effect.acquireRelease(
    Effect.sync(() => Object.entries(environment).forEach(([name, value]) => vi.stubEnv(name, value))),
    () => Effect.sync(() => void vi.unstubAllEnvs()),
  )
  const json = { "content-type": "application/json" }
  const outputs = join(mkdtempSync(join(tmpdir(), "gatehouse-register-")), "outputs")
  vi.stubEnv("GITHUB_OUTPUT", outputs)

  service.behave({ status: 200, headers: json, body: `{"ok":true,"projectId":"P","branch":"add","preview":true}` })
  expect(yield* register()).toEqual({ out: "P\n", err: "Preview of add registered.\n", code: 0 })
  expect(readFileSync(outputs, "utf8")).toBe("project-id=P\nbranch=add\npreview=true\n")
  expect(service.received[0]).toMatchObject({ method: "POST", path: "/api/v0/register-deployment" })
  expect(service.received[0]!.headers.authorization).toBe(`Bearer ${secrets[1]}`)
  expect(endpoint.received[0]!.path).toContain(`audience=${encodeURIComponent(service.url)}`)
  const other = yield* register("--json", "--audience", "https://other.example")
  expect(other).toEqual({ out: `{"ok":true,"projectId":"P","branch":"add","preview":true}\n`, err: "", code: 0 })
  expect(endpoint.received[1]!.path).toContain(`audience=${encodeURIComponent("https://other.example")}`)

  // A temporary failure is retried: the deployment is still registered once.
  let attempts = 0
  service.behave(() => ({
    status: ++attempts < 3 ? 503 : 200,
    headers: json,
    body: attempts < 3 ? "{}" : `{"ok":true}`,
  }))
  expect(yield* register()).toMatchObject({ code: 0 })
  expect(attempts).toBe(3)

  service.behave({ status: 401, headers: json, body: `{"error":"The token has expired.","code":"unauthorized"}` })
  const refused = yield* register()
  expect(refused).toEqual({
    out: "",
    err: [
      "::error title=Gatehouse::The deployment is not registered: The token has expired.",
      "gatehouse: The deployment is not registered: The token has expired.\n",
    ].join("\n"),
    code: 1,
  })

  // Seen failing when the run first requested a token for a service on the runner.
  const asked = endpoint.received.length
  for (const env of [{}, { GATEHOUSE_URL: "" }, { GATEHOUSE_URL: "gatehouse" }] as const) {
    const without = yield* runCli(["register"], { env })
    expect(without).toMatchObject({ out: "", err: expect.stringContaining("Set GATEHOUSE_URL in the job"), code: 1 })
  }
  expect(endpoint.received.length).toBe(asked)
})
