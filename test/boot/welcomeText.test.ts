import { expect, it } from "@effect/vitest"
import { Redacted } from "effect"
import { welcomeText } from "#src/boot/app.ts"

const url = "http://127.0.0.1:3000"

it("the welcome says where the console and the documentation are", () => {
  const text = welcomeText(url, { adminTokens: undefined, databaseUrl: undefined, dataDir: "./data" })
  expect(text.split("\n").map((line) => line.trim().split(/ {2,}/).slice(0, 2))).toEqual([
    [`Gatehouse listens on ${url} (open mode, embedded database in ./data)`],
    ["console", `${url}/console`],
    ["docs", `${url}/docs`],
    ["try", expect.stringContaining("curl -X POST")],
  ])
})

it("the welcome of guarded mode uses a token of ADMIN_TOKEN, and does not print it", () => {
  const adminTokens = [Redacted.make("secret-one"), Redacted.make("secret-two")]
  const text = welcomeText(url, { adminTokens, databaseUrl: Redacted.make("postgres://"), dataDir: "./data" })
  expect(text).toContain("guarded mode, PostgreSQL")
  expect(text).toContain("Bearer ${ADMIN_TOKEN%%,*}")
  expect(text).not.toContain("secret-")
})
