import { afterAll, beforeAll, describe, expect } from "@effect/vitest"
import { OpenApi } from "effect/http-api"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Api } from "#src/http/api/Api.ts"
import { run } from "../support/cli.ts"
import { it } from "../support/it.ts"
import { hasTools, toolPath } from "../support/tools.ts"

const folder = mkdtempSync(join(tmpdir(), "gatehouse-openapi-"))
const document = join(folder, "openapi.json")
beforeAll(() => writeFileSync(document, JSON.stringify(OpenApi.fromApi(Api))))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

describe.skipIf(!hasTools)("other linters' recommended rules find nothing in the OpenAPI document", () => {
  it.live("Redocly", function* () {
    const env = { REDOCLY_TELEMETRY: "off", REDOCLY_SUPPRESS_UPDATE_NOTICE: "true", HOME: folder }
    const args = ["lint", document, "--extends", "recommended", "--format", "json"]
    const { code, err, out } = yield* run(toolPath("redocly"), args, { cwd: folder, env })
    expect(code, err).toBe(0)
    expect(JSON.parse(out)).toMatchObject({ totals: { errors: 0, warnings: 0 } })
  })

  it.live("Spectral", function* () {
    writeFileSync(join(folder, ".spectral.yaml"), 'extends: ["spectral:oas"]\n')
    const args = ["lint", document, "--format", "json", "--fail-severity", "warn", "--quiet"]
    const { code, err, out } = yield* run(toolPath("spectral"), args, { cwd: folder })
    expect([code, JSON.parse(out)], err).toEqual([0, []])
  })
})
