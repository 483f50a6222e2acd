import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { spawnSync } from "node:child_process"
import { mkdtempSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { must } from "../http/operations.ts"
import { run } from "../support/cli.ts"
import { layer } from "../support/it.ts"
import { adminToken, type Environment, guarded, onPostgres, TestServer } from "../support/server.ts"

/**
 * Promise (Documented responses): Schemathesis finds no response that the document does not have, no valid request
 * that is refused and no invalid one that is accepted.
 */

/** In this version: others have other checks. */
const version = "4.32.5"
const isHere = spawnSync("schemathesis", ["--version"]).stdout?.toString().includes(version) === true
if (!isHere) {
  process.stdout.write(`skipped: needs schemathesis ${version} on PATH (pip install schemathesis==${version})\n`)
}

const config = fileURLToPath(new URL("./schemathesis.toml", import.meta.url))
/** `SCHEMATHESIS_SEED` repeats a run. */
const seed = process.env["SCHEMATHESIS_SEED"] ?? "1"

const modes: Readonly<Record<string, Environment | Effect.Effect<Environment, never, never>>> = {
  "open mode": {},
  "guarded mode on PostgreSQL": onPostgres(guarded) as Effect.Effect<Environment, never, never>,
}

for (const [mode, environment] of Object.entries(modes)) {
  layer(TestServer.layer<never, never>(environment as never), { excludeTestServices: true })(mode, (it) => {
    it.effect.skipIf(!isHere)("every case gets an answer of the document", function* () {
      const { logs, send, url } = yield* TestServer
      const isOpen = mode === "open mode"
      const as = isOpen ? undefined : adminToken
      const { orgId } = yield* must(send, "POST", "/api/v0/orgs", { json: { name: "Acme" }, as })
      const credential = isOpen ? [] : ["--header", `Authorization: Bearer ${adminToken}`]
      // It keeps the cases that failed in its folder.
      const cwd = mkdtempSync(join(tmpdir(), "gatehouse-schemathesis-"))
      const args = [
        ...["--no-color", "--config-file", config, "run", `${url}/openapi.json`, "--url", url],
        // The stream of changes does not end.
        ...["--exclude-operation-id", "live.follow", "--header", `x-org-id: ${orgId}`, ...credential],
        // In open mode x-org-id names an org, and is no credential.
        ...(isOpen ? ["--exclude-checks", "ignored_auth"] : []),
        ...["--max-examples", "12", "--seed", seed, "--phases", "examples,coverage,fuzzing", "--warnings", "off"],
        ...["--request-timeout", "30", "--continue-on-failure"],
      ]
      const { code, err, out } = yield* run("schemathesis", args, { cwd })
      expect(code, out.slice(-20_000) + err).toBe(0)
      expect(Number(/(\d+) generated/.exec(out)?.[1]), out.slice(-2_000)).toBeGreaterThan(3_000)
      expect(logs()).not.toContain('"level":"ERROR"')
    })

    it.effect.skipIf(!isHere || mode !== "open mode")(
      "every event of a stream fits its schema, with no settings",
      function* () {
        const { url } = yield* TestServer
        const cwd = mkdtempSync(join(tmpdir(), "gatehouse-schemathesis-"))
        const args = [
          ...["--no-color", "run", `${url}/openapi.json`, "--url", url],
          ...["--include-operation-id", "chat.answer", "--include-operation-id", "live.follow"],
          // Documents whose hosts do not resolve, and ids that do not exist, are refused.
          ...["--exclude-checks", "positive_data_acceptance"],
          ...["--max-examples", "12", "--seed", seed, "--phases", "examples,coverage", "--continue-on-failure"],
        ]
        const { code, err, out } = yield* run("schemathesis", args, { cwd })
        expect(code, out.slice(-20_000) + err).toBe(0)
        expect(out).toContain("Tested: 2")
      },
    )
  })
}
