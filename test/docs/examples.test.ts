import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { must } from "../http/operations.ts"
import { run } from "../support/cli.ts"
import { layer } from "../support/it.ts"
import { makeReceiver } from "../support/receiver.ts"
import { onPostgres, TestServer } from "../support/server.ts"
import { until } from "../support/wait.ts"
import { zip } from "../support/zip.ts"
import { blocks, exampleId } from "./pages.ts"
import { curlRequest, operationOf } from "./requests.ts"
import { runBlock } from "./shell.ts"

/** The requests to /v1 follow one another: test/http/webhooks/webhooksReadme.test.ts runs them. */
const withCurl = blocks.filter(({ language, text }) => language === "sh" && /^curl.*3000\/api/m.test(text))

/** Runs each curl of the blocks with existing ids, and checks the answers against the definition. */
const answeredAsDocumented = Effect.fnUntraced(function* () {
  const { send, url } = yield* TestServer
  const make = (path: string, json: object) => must(send, "POST", `/api/v0/${path}`, { json })
  yield* make("projects", { name: "docs" })
  const host = yield* makeReceiver()
  host.behave({
    status: 200,
    body: zip([{ path: "guides/keys.md", content: "# Keys\n\nTo rotate a key, make another." }]),
  })
  /** Stores the documentation of a project. */
  const storeDocs = Effect.fnUntraced(function* (projectId: string) {
    const path = `/api/v0/projects/${projectId}/docs`
    const docs = { docsZipUrl: `${host.url}/docs.zip`, keepQuestions: true }
    yield* must(send, "PUT", path, { json: docs })
    yield* until("the documentation", must(send, "GET", path), ({ state }) => state === "stored")
  })
  expect(withCurl.length).toBeGreaterThan(0)
  for (const { at, text } of withCurl) {
    // Each block has its own org, because it may delete it.
    const { orgId } = yield* make("orgs", { name: "Acme" })
    const { projectId } = yield* make("projects", { name: "docs", orgId })
    const ids = { orgId, projectId, ...(yield* make("keys", { name: "ci", projectId, permissions: ["*"] })) } as Record<
      string,
      string
    >
    if (text.includes("/docs")) yield* storeDocs(projectId!)
    const filled = text
      .replaceAll(/<(\w+)>/g, (whole, name: string) => ids[name] ?? whole)
      // A date in the future of any run.
      .replace(/"expiresAt":"\d{4}/, `"expiresAt":"9999`)
    const { calls, errors, status: ended } = runBlock(filled, ["curl", "npm", "openssl"])
    expect(ended, `${at}: ${errors}`).toBe(0)
    for (const { args: printed } of calls.filter(({ program }) => program === "curl")) {
      // The output of the curl stand-in, and variables of a block, are replaced by existing values.
      const args = printed.map((arg) =>
        arg.replace("svc_example", ids["key"]!).replace(`orgs/${exampleId}`, `orgs/${orgId}`),
      )
      const here = args.map((arg) => arg.replace("http://127.0.0.1:3000", url))
      const { out } = yield* run("curl", [...here, "--write-out", "\n%{http_code}"])
      const [, body, status] = /^(.*)\n(\d+)$/s.exec(out)!
      expect(status, `${at}: ${out}`).toBe("200")
      const { method, url: called } = curlRequest(args)
      if (called.pathname === "/api/svc/chat") expect(body, at).toMatch(/^data: .*data: \[DONE\]\s*$/s)
      else if (called.pathname.endsWith("/audit/export")) {
        const lines = body!.trimEnd().split("\n")
        expect(lines.map((line) => Object.keys(JSON.parse(line) as object)[0])).toEqual(lines.map(() => "id"))
      } else expect(operationOf(method, called.pathname)!.faultOfResult(JSON.parse(body!)), at).toBeUndefined()
    }
  }
})

layer(TestServer.layer(onPostgres()), { excludeTestServices: true })("in open mode", (it) => {
  it.effect("every request of the platform interface gets the documented answer", () => answeredAsDocumented())

  it.effect("every SQL statement is valid in the database", function* () {
    const { sql } = yield* TestServer
    const [{ name }] = (yield* sql`SELECT current_database() AS name`) as [{ readonly name: string }]
    const statements = blocks
      // That of the outbox is for another database: test/sdk/outbox.test.ts executes it.
      .filter(({ language, page }) => language === "sql" && page !== "docs/outbox.md")
      .flatMap(({ text }) => text.trim().split("\n"))
      .map((statement) => statement.replace("DATABASE gatehouse", `DATABASE ${name}`))
    expect(statements).toHaveLength(7)
    for (const statement of statements) yield* sql.unsafe(statement)
  })
})
