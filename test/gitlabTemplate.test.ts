import { expect } from "@effect/vitest"
import * as Yaml from "effect/encoding/Yaml"
import { mkdtempSync, readFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { run } from "./support/cli.ts"
import { it } from "./support/it.ts"
import { makeReceiver } from "./support/receiver.ts"

interface Header {
  readonly spec: { readonly inputs: Readonly<Record<string, object>> }
}
interface Jobs {
  readonly "gatehouse-register": {
    readonly id_tokens: Readonly<Record<string, { readonly aud: string }>>
    readonly variables: Readonly<Record<string, string>>
    readonly script: ReadonlyArray<string>
    readonly artifacts: { readonly reports: { readonly dotenv: string } }
  }
}
const text = readFileSync(new URL("../deploy/gitlab/register.yml", import.meta.url), "utf8")
const [header, body] = text.split("\n---\n") as [string, string]
const { spec } = Yaml.parse(header) as unknown as Header
const { "gatehouse-register": job } = Yaml.parse(body) as unknown as Jobs

it("the template has inputs, and one job whose token is for the service", () => {
  expect(Object.keys(spec.inputs)).toEqual(["url", "stage"])
  const used = [...body.matchAll(/\$\[\[ inputs\.(\w+) \]\]/g)].map(([, name]) => name)
  expect(new Set(used)).toEqual(new Set(Object.keys(spec.inputs)))
  expect(job.id_tokens).toEqual({ GATEHOUSE_ID_TOKEN: { aud: "$[[ inputs.url ]]" } })
  expect(job.variables["GATEHOUSE_URL"]).toBe("$[[ inputs.url ]]")
})

it.live("registers with the job's token, passes its outputs on, and says what went wrong", function* () {
  const service = yield* makeReceiver()
  const folder = mkdtempSync(join(tmpdir(), "gatehouse-gitlab-"))
  const act = (env: Readonly<Record<string, string>> = {}) =>
    run("sh", ["-e", "-c", job.script.join("\n")], {
      cwd: folder,
      env: { GATEHOUSE_URL: `${service.url}/`, GATEHOUSE_ID_TOKEN: "token-of-the-job", ...env },
    })
  const json = { "content-type": "application/json" }
  const outputs = () => readFileSync(join(folder, job.artifacts.reports.dotenv), "utf8")

  service.behave({ status: 200, headers: json, body: `{"ok":true,"projectId":"P","branch":"add","preview":true}` })
  const registered = yield* act()
  expect(registered, registered.err).toMatchObject({ code: 0 })
  expect(outputs()).toBe("GATEHOUSE_PROJECT_ID=P\nGATEHOUSE_PREVIEW=true\n")
  expect(service.received[0]).toMatchObject({ method: "POST", path: "/api/v0/register-deployment" })
  expect(service.received[0]!.headers.authorization).toBe("Bearer token-of-the-job")
  service.behave({ status: 200, headers: json, body: `{"ok":true,"projectId":"P","branch":"main"}` })
  yield* act()
  expect(outputs()).toBe("GATEHOUSE_PROJECT_ID=P\nGATEHOUSE_PREVIEW=false\n")

  const failed = (sentence: string) => ({
    err: expect.stringContaining(`The deployment is not registered: ${sentence}`),
    code: 1,
  })
  service.behave({ status: 401, headers: json, body: `{"error":"The token has expired.","code":"unauthorized"}` })
  expect(yield* act()).toMatchObject(failed("The token has expired. (status 401)"))
  // Seen failing: a sentence ended at its first comma or quotation mark, before what to do.
  for (const error of [
    "The repository may not register: no project is linked to it. Link it, or add the owner.",
    'The token\'s claim "exp" is missing, {or} \\ wrong.',
  ]) {
    service.behave({ status: 401, headers: json, body: JSON.stringify({ error, code: "unauthorized" }) })
    expect(yield* act()).toMatchObject(failed(`${error} (status 401)`))
  }
  for (const status of [200, 404]) {
    service.behave({ status, body: "<html>" })
    const sentence = `${service.url} answers with status ${status}, but not as Gatehouse does. Check the input url.`
    expect(yield* act()).toMatchObject(failed(sentence))
  }
  // What the last attempt is answered counts, and nothing of those before it.
  const before = service.received.length
  const busy = { status: 503, headers: { ...json, "retry-after": "0" }, body: `{"projectId":"Busy","error":"Busy."}` }
  const last = { status: 200, headers: json, body: `{"ok":true,"projectId":"Q","preview":false}` }
  service.behave(() => (service.received.length - before < 2 ? busy : last))
  expect(yield* act()).toMatchObject({ code: 0 })
  expect(outputs()).toBe("GATEHOUSE_PROJECT_ID=Q\nGATEHOUSE_PREVIEW=false\n")
  expect(yield* act({ GATEHOUSE_URL: "gatehouse" })).toMatchObject(
    failed("the input url must be the address of the service."),
  )
  expect(yield* act({ GATEHOUSE_ID_TOKEN: "" })).toMatchObject(failed("the job has no token in GATEHOUSE_ID_TOKEN."))
  expect(yield* act({ GATEHOUSE_URL: "http://127.0.0.1:1" })).toMatchObject(
    failed("http://127.0.0.1:1 does not answer."),
  )
})
