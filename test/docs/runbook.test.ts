import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { readFileSync } from "node:fs"
import * as Yaml from "effect/encoding/Yaml"
import { must } from "../http/operations.ts"
import { makeTenant } from "../http/tenants.ts"
import { run, runCli } from "../support/cli.ts"
import { freshFolder } from "../support/databases.ts"
import { it, layer } from "../support/it.ts"
import { makeReceiver } from "../support/receiver.ts"
import { onPostgres, TestServer } from "../support/server.ts"
import { blocks, repository } from "./pages.ts"
import { runBlock } from "./shell.ts"

const page = "docs/runbook.md"
const text = readFileSync(repository + page, "utf8")
const commands = blocks.filter((block) => block.page === page && block.language === "sh")

/** A tenant with one of everything that the commands name. */
const makeThings = Effect.gen(function* () {
  const { send, sql } = yield* TestServer
  const tenant = yield* makeTenant()
  const receiver = yield* makeReceiver()
  const endpoint = yield* tenant.endpoint(receiver.url)
  const job = yield* tenant.finished()
  const { delivery_id } = yield* tenant.attempted(job)
  const { projectId } = yield* must(send, "POST", "/api/v0/projects", { json: { name: "docs", orgId: tenant.orgId } })
  const deployment = "01KAF8ZJ4V2M6T8Q0R1S2T3V4W"
  yield* sql`INSERT INTO deployments (id, org_id, project_id, provider, branch, ref, sha, preview, run_id, run_attempt,
      event_name, created_at)
    VALUES (${deployment}, ${tenant.orgId}, ${projectId!}, 'github', 'main', 'refs/heads/main', 'abc', false, '1', 1, 'push', now())`
  const ids: Readonly<Record<string, string>> = {
    orgId: tenant.orgId,
    keyId: tenant.keyId,
    projectId: projectId!,
    deployment,
    endpoint,
    delivery: delivery_id,
    job,
  }
  return ids
})

layer(TestServer.layer(onPostgres()), { excludeTestServices: true })("the runbook", (it) => {
  it.effect("every command works against a running service", function* () {
    const { url } = yield* TestServer
    const ids = yield* makeThings
    const folder = yield* freshFolder("empty")
    let tried = 0
    for (const { at, text } of commands) {
      const filled = text.replaceAll(/<(\w+)>/g, (whole, name: string) => ids[name] ?? whole)
      for (const { args, program } of runBlock(filled, ["curl", "gatehouse"]).calls) {
        const words = args.map((word) => word.replace("http://127.0.0.1:3000", url))
        const env = {
          GATEHOUSE_URL: url,
          DATA_DIR: `${folder}/data`,
        }
        const { code, err, out } =
          program === "curl" ? yield* run("curl", ["--fail-with-body", ...words]) : yield* runCli(words, { env })
        expect(code, `${at}: ${program} ${words.join(" ")}: ${out}${err}`).toBe(0)
        tried++
      }
    }
    expect(tried).toBeGreaterThan(20)
  })
})

it("has ten questions, and each has a place in the console and a command", () => {
  const questions = text.split(/^## (?=\d+\. )/m).slice(1)
  expect(questions.map((question) => parseInt(question))).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
  for (const question of questions) {
    expect(question).toContain("**Console**: ")
    expect(question).toContain("```sh\n")
  }
})

it("leads from every alert to a question", () => {
  const { groups } = Yaml.parse(readFileSync(`${repository}deploy/alerts.yaml`, "utf8")) as {
    readonly groups: ReadonlyArray<{ readonly rules: ReadonlyArray<{ readonly alert: string }> }>
  }
  const named = [...text.matchAll(/`(Gatehouse\w+)`/g)].map(([, alert]) => alert!)
  expect(named.toSorted()).toEqual(groups.flatMap(({ rules }) => rules.map(({ alert }) => alert)).toSorted())
})
