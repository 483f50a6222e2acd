import { expect } from "@effect/vitest"
import * as Yaml from "effect/encoding/Yaml"
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { run } from "./support/cli.ts"
import { it } from "./support/it.ts"
import { makeReceiver } from "./support/receiver.ts"
import { makeRunner } from "./support/runner.ts"

interface Action {
  readonly inputs: Readonly<Record<string, object>>
  readonly outputs: Readonly<Record<string, { readonly value: string }>>
  readonly runs: {
    readonly using: string
    readonly steps: ReadonlyArray<{ readonly id: string; readonly run: string }>
  }
}
const path = new URL("../deploy/github-action/action.yml", import.meta.url)
const { inputs, outputs, runs } = Yaml.parse(readFileSync(path, "utf8")) as unknown as Action
const [step] = runs.steps

it("the action is a composite of one step, which sets its outputs", () => {
  expect([runs.using, runs.steps.length, Object.keys(inputs)]).toEqual(["composite", 1, ["url", "audience"]])
  for (const [name, { value }] of Object.entries(outputs)) {
    expect(value).toBe(`\${{ steps.${step!.id}.outputs.${name} }}`)
  }
})

it.live("registers with the run's token, and reports a failure as an annotation", function* () {
  const service = yield* makeReceiver()
  const { endpoint, environment, secrets } = yield* makeRunner("any")
  const output = join(mkdtempSync(join(tmpdir(), "gatehouse-action-")), "outputs")
  const act = (env: Readonly<Record<string, string>> = {}) =>
    run("bash", ["-c", step!.run], {
      env: {
        ...environment,
        GATEHOUSE_URL: `${service.url}/`,
        GATEHOUSE_AUDIENCE: "",
        GITHUB_OUTPUT: output,
        ...env,
      },
    })
  const json = { "content-type": "application/json" }

  service.behave({ status: 200, headers: json, body: `{"ok":true,"projectId":"P","branch":"add","preview":true}` })
  const registered = yield* act()
  expect(registered, registered.err).toMatchObject({ code: 0 })
  expect(readFileSync(output, "utf8")).toBe("project-id=P\nbranch=add\npreview=true\n")
  expect(service.received[0]).toMatchObject({ method: "POST", path: "/api/v0/register-deployment" })
  expect(service.received[0]!.headers.authorization).toBe(`Bearer ${secrets[1]}`)
  const audienceOf = (at: number) => new URL(endpoint.received[at]!.path, endpoint.url).searchParams.get("audience")
  expect(audienceOf(0)).toBe(service.url)
  yield* act({ GATEHOUSE_AUDIENCE: "https://other.example" })
  expect(audienceOf(1)).toBe("https://other.example")

  // Seen failing: arguments had the tokens, and http was taken.
  expect(step!.run).not.toMatch(/-H "[^"]*\$/)
  for (const url of [
    "http://gatehouse.example",
    "http://localhost.example",
    "http://localhost:x@evil.example",
    "https://",
  ]) {
    const refused = yield* act({ GATEHOUSE_URL: url })
    expect(refused.out).toContain("the input url must be the address of the service, with https.")
  }

  const failed = (sentence: string) => `::error title=Gatehouse::The deployment is not registered: ${sentence}`
  service.behave({ status: 401, headers: json, body: `{"error":"The token has expired.","code":"unauthorized"}` })
  expect(yield* act()).toMatchObject({ out: expect.stringContaining(failed("The token has expired.")), code: 1 })
  const strange = (status: number) =>
    failed(`${service.url} answers with status ${status}, but not as Gatehouse does. Check the input url.`)
  for (const [status, body] of [
    [200, "<html>"],
    [200, "{}"],
    [200, `{"projectId":["P"]}`],
    [404, "<html>"],
    [404, `{"error":{"message":"nope"}}`],
    [404, ""],
  ] as const) {
    service.behave({ status, body })
    expect(yield* act(), body).toMatchObject({ out: expect.stringContaining(`${strange(status)}\n`), code: 1 })
  }
  service.behave({ status: 400, headers: json, body: JSON.stringify({ error: "one\n::set-output name=x::y" }) })
  expect((yield* act()).out).toContain(failed("one ::set-output name=x::y\n"))

  // What the last attempt is answered counts, and nothing of those before it.
  rmSync(output)
  for (const last of [
    { status: 200, headers: json, body: `{"ok":true,"projectId":"Q","branch":"main","preview":false}` },
    { status: 401, headers: json, body: `{"error":"The token has expired.","code":"unauthorized"}` },
  ]) {
    const before = service.received.length
    const busy = {
      status: 503,
      headers: { ...json, "retry-after": "0" },
      body: `{"error":"Busy.","code":"unavailable"}`,
    }
    service.behave(() => (service.received.length - before < 2 ? busy : last))
    const { code, out } = yield* act()
    expect(service.received.length - before).toBe(2)
    expect(out).not.toContain("Busy.")
    expect([code, out.includes(failed("The token has expired."))]).toEqual(last.status === 200 ? [0, false] : [1, true])
  }
  expect(readFileSync(output, "utf8")).toBe("project-id=Q\nbranch=main\npreview=false\n")
  expect(yield* act({ GATEHOUSE_URL: "gatehouse" })).toMatchObject({
    out: expect.stringContaining(failed("the input url must be the address of the service, with https.")),
    code: 1,
  })
  expect(yield* act({ ACTIONS_ID_TOKEN_REQUEST_URL: "" })).toMatchObject({
    out: expect.stringContaining(failed("add 'permissions: id-token: write' to the job.")),
    code: 1,
  })
})
