import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { layer } from "../support/it.ts"
import { guarded, TestServer } from "../support/server.ts"

const warningsOf = (variable: string) =>
  Effect.map(TestServer, ({ logs }) =>
    logs()
      .split("\n")
      .map((line) => JSON.parse(line) as { readonly level: string; readonly message: string })
      .filter(({ level, message }) => level === "WARN" && message.startsWith(variable)),
  )
const warnings = warningsOf("BASE_URL")

// Seen failing when nothing was logged, and CI's tokens had an unknown audience.
layer(TestServer.layer({ ...guarded, BASE_URL: "" }), { excludeTestServices: true })("guarded mode", (it) => {
  it.effect("without BASE_URL logs one warning that says what to do", function* () {
    expect(yield* warnings).toEqual([
      expect.objectContaining({
        message: expect.stringMatching(
          /^BASE_URL is not set: .*http:\/\/127\.0\.0\.1:\d+.*BASE_URL=https:\/\/\S+$/,
        ) as string,
      }),
    ])
  })

  it.effect("without OIDC_ALLOWED_OWNERS logs one warning that says who may register", function* () {
    expect((yield* warningsOf("OIDC_ALLOWED_OWNERS")).map(({ message }) => message)).toEqual([
      expect.stringMatching(/only linked repositories and those of an org's owners may register/) as string,
    ])
  })
})

layer(TestServer.layer({ ...guarded, METRICS_TOKEN: `"${"m".repeat(32)}"` }), { excludeTestServices: true })(
  "a secret with quotation marks",
  (it) => {
    it.effect("logs one warning, without the secret", function* () {
      const [warning, ...others] = yield* warningsOf("METRICS_TOKEN")
      expect(others).toEqual([])
      expect(warning!.message).toContain("begins or ends with a quotation mark")
      expect(warning!.message).not.toContain("mmm")
    })
  },
)

for (const [name, environment] of [
  ["guarded mode with BASE_URL", guarded],
  ["open mode without BASE_URL", { BASE_URL: "" }],
] as const) {
  layer(TestServer.layer(environment), { excludeTestServices: true })(name, (it) => {
    it.effect("logs no warning", () => Effect.map(warnings, (lines) => expect(lines).toEqual([])))
  })
}
