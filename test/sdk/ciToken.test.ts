import { NodeHttpClient } from "@effect/platform-node"
import { assert } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { ciToken, type Environment, isCi } from "#src/sdk/ciToken.ts"
import { it } from "../support/it.ts"

const audience = "https://gatehouse.example"
const get = (environment: Environment) =>
  Effect.provide(Effect.map(ciToken(environment, audience), Redacted.value), NodeHttpClient.layerUndici)
const faultOf = (environment: Environment) => Effect.map(Effect.flip(get(environment)), ({ message }) => message)

it.live.each([
  ["GitLab", { GITLAB_CI: "true" }, "GATEHOUSE_ID_TOKEN", "id_tokens"],
  ["CircleCI", { CIRCLECI: "true" }, "CIRCLE_OIDC_TOKEN_V2", "forks"],
  ["Bitbucket", { BITBUCKET_BUILD_NUMBER: "7" }, "BITBUCKET_STEP_OIDC_TOKEN", "oidc: audiences"],
] as const)(
  "%s: the token is in its variable, and without it the message says what to add",
  function* ([, ci, variable, remedy]) {
    assert.isTrue(isCi(ci))
    assert.strictEqual(yield* get({ ...ci, [variable]: "a.b.c" }), "a.b.c")
    const fault = yield* faultOf(ci)
    assert.include(fault, variable)
    assert.include(fault, remedy)
  },
)

it.live("Buildkite: the agent gets the audience and the ids", function* () {
  const folder = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "gatehouse-agent-"))),
    (folder) => Effect.sync(() => rmSync(folder, { recursive: true })),
  )
  const agent = join(folder, "buildkite-agent")
  const environment = { BUILDKITE: "true", PATH: `${folder}:${process.env["PATH"]}` }
  const behave = (script: string) => {
    writeFileSync(agent, `#!/bin/sh\necho "$@" > ${folder}/asked\n${script}\n`)
    chmodSync(agent, 0o755)
  }
  behave("echo a.b.c")
  assert.strictEqual(yield* get(environment), "a.b.c")
  const asked = readFileSync(join(folder, "asked"), "utf8").trim()
  assert.strictEqual(asked, `oidc request-token --audience ${audience} --claim organization_id,pipeline_id`)
  behave("echo secret >&2; exit 1")
  const fault = yield* faultOf(environment)
  assert.include(fault, "buildkite-agent returned no token")
  assert.notInclude(fault, "secret")
  assert.include(yield* faultOf({ BUILDKITE: "true", PATH: "" }), "buildkite-agent returned no token")
})

it.live("any other CI: the job's own token is used, and has priority", function* () {
  assert.isFalse(isCi({}))
  assert.include(yield* faultOf({}), "GATEHOUSE_ID_TOKEN")
  assert.isTrue(isCi({ GATEHOUSE_ID_TOKEN: "a.b.c" }))
  assert.strictEqual(yield* get({ CIRCLECI: "true", GATEHOUSE_ID_TOKEN: "a.b.c" }), "a.b.c")
})
