import { assert, describe, it } from "@effect/vitest"
import { Result, Schema } from "effect"
import { CreateJob } from "#src/domain/jobs/Job.ts"
import { CreateJobSchedule } from "#src/domain/jobs/JobSchedule.ts"
import { CreateWebhookEndpoint, UpdateWebhookEndpoint } from "#src/domain/webhooks/WebhookEndpoint.ts"

const url = "https://example.com/hook"

describe("the fields of an endpoint", () => {
  const refusal =
    <A>(schema: Schema.Codec<A, unknown>) =>
    (input: unknown) =>
      Result.match(Schema.decodeUnknownResult(schema)(input), { onSuccess: () => "taken", onFailure: String })
  const created = (input: object) => refusal(CreateWebhookEndpoint)({ url, signing_secret: "secret", ...input })

  it("a secret has 1 to 512 characters; a description may be null, and active may not", () => {
    for (const input of [{}, { signing_secret: "x" }, { signing_secret: "x".repeat(512) }, { description: null }]) {
      assert.strictEqual(created(input), "taken")
    }
    for (const input of [
      { signing_secret: "" },
      { signing_secret: "x".repeat(513) },
      { signing_secret: null },
      { url: null },
      { active: null },
      { description: "\0" },
    ]) {
      assert.notStrictEqual(created(input), "taken")
    }
  })

  // Seen failing when it was accepted: signatures then used a secret that nobody can see.
  it("a secret of white space is refused, for endpoints and for callbacks", () => {
    const updated = refusal(UpdateWebhookEndpoint)
    const job = refusal(CreateJob)
    const schedule = refusal(CreateJobSchedule)
    for (const secret of [" ", "   ", "\t", " \n\u00a0"]) {
      assert.include(created({ signing_secret: secret }), "not only white space")
      assert.include(updated({ id: "a", signing_secret: secret }), "not only white space")
      assert.include(job({ workflow: "w", callback_secret: secret }), "not only white space")
      assert.include(schedule({ workflow: "w", cron: "0 4 * * *", callback_secret: secret }), "not only white space")
    }
    for (const secret of [" x", "x ", " a b "]) {
      assert.strictEqual(created({ signing_secret: secret }), "taken")
      assert.strictEqual(job({ workflow: "w", callback_secret: secret }), "taken")
    }
    assert.strictEqual(job({ workflow: "w", callback_secret: null }), "taken")
  })

  it("an update with only its id is refused, with the fields that it could change", () => {
    const updated = refusal(UpdateWebhookEndpoint)
    for (const input of [{ id: "a" }, { id: "a", other: 1 }]) {
      assert.include(updated(input), "id with at least one of url, signing_secret, description, active")
    }
    for (const change of [{ url }, { signing_secret: "x" }, { description: null }, { active: false }]) {
      assert.strictEqual(updated({ id: "a", ...change }), "taken")
    }
    assert.notStrictEqual(updated({ url }), "taken")
  })

  it("the error does not repeat a refused secret", () => {
    assert.notInclude(created({ signing_secret: `${"s3cret".repeat(100)}` }), "s3cret")
  })
})
