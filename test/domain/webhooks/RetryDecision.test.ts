import { assert, describe, it } from "@effect/vitest"
import { Duration } from "effect"
import { decideRetry } from "#src/domain/webhooks/RetryDecision.ts"
import { answer, failure } from "../../fakes/WebhookSender.ts"

describe("decideRetry", () => {
  const wait = Duration.minutes(5)
  const delivered = { _tag: "Delivered" } as const
  const retry = (duration: Duration.Duration = wait) => ({ _tag: "Retry", wait: duration }) as const
  const exhausted = { _tag: "Exhausted" } as const
  const gone = { _tag: "Deactivate", reason: "gone" } as const
  const failing = { _tag: "Deactivate", reason: "failing" } as const
  const cut = { failure: { kind: "bad_response", message: "longer than 64 KiB" } } as const
  const almost = Duration.subtract(Duration.days(5), Duration.millis(1))

  it.each([
    ["200", answer(200), delivered, delivered],
    ["204", answer(204), delivered, delivered],
    ["299", answer(299), delivered, delivered],
    ["2xx whose answer did not end", answer(200, cut), retry(), exhausted],
    ["199", answer(199), retry(), exhausted],
    ["300", answer(300), retry(), exhausted],
    ["304", answer(304), retry(), exhausted],
    ["308", answer(308), retry(), exhausted],
    ["400", answer(400), retry(), exhausted],
    ["404", answer(404), retry(), exhausted],
    ["500", answer(500), retry(), exhausted],
    ["410", answer(410), gone, gone],
    ["410 of which no more came", { ...failure("timeout"), status: 410 }, retry(), exhausted],
    ["no answer in time", failure("timeout"), retry(), exhausted],
    ["no such host", failure("dns"), retry(), exhausted],
    ["a refused address", failure("refused_address"), retry(), exhausted],
    ["a bad certificate", failure("tls"), retry(), exhausted],
    ["a refused connection", failure("connection"), retry(), exhausted],
  ] as const)("%s", (_, outcome, expected, atTheEnd) => {
    const spared = [Duration.zero, almost].map((duration) => ({ duration, failures: 50 }))
    // One failure long ago, and a few more today.
    const rare = { duration: Duration.days(50), failures: 4 }
    for (const failingFor of [undefined, ...spared, rare]) {
      assert.deepEqual(decideRetry(outcome, wait, undefined, failingFor), expected)
      assert.deepEqual(decideRetry(outcome, undefined, undefined, failingFor), atTheEnd)
    }
    // Five days of failures deactivate an endpoint with any schedule; a success is a success.
    const ended = expected._tag === "Delivered" ? delivered : expected === gone ? gone : failing
    for (const failingFor of [5, 50].map((n) => ({ duration: Duration.days(n), failures: n }))) {
      for (const left of [wait, undefined]) assert.deepEqual(decideRetry(outcome, left, undefined, failingFor), ended)
    }
  })

  it("a callback whose receiver is gone has no attempt left, so that its org is told: no endpoint is", () => {
    for (const left of [wait, undefined])
      assert.deepEqual(decideRetry(answer(410), left, undefined, undefined, true), exhausted)
    assert.deepEqual(decideRetry(answer(500), wait, undefined, undefined, true), retry())
  })

  it("a secret that cannot be decrypted is retried to the end, and deactivates no endpoint", () => {
    assert.deepEqual(
      decideRetry(failure("secret"), wait, undefined, { duration: Duration.days(50), failures: 50 }),
      retry(),
    )
    assert.deepEqual(
      decideRetry(failure("secret"), undefined, undefined, { duration: Duration.days(50), failures: 50 }),
      exhausted,
    )
  })

  const hour = Duration.hours(1)
  it.each([
    [429, hour, retry(hour)],
    [503, hour, retry(hour)],
    [429, Duration.seconds(1), retry()],
    [503, Duration.zero, retry()],
    [500, hour, retry()],
    [502, hour, retry()],
    [404, hour, retry()],
    [429, undefined, retry()],
  ] as const)("%i with Retry-After %s only lengthens the wait", (status, retryAfter, expected) => {
    assert.deepEqual(decideRetry(answer(status), wait, retryAfter, undefined), expected)
    assert.deepEqual(decideRetry(answer(status), undefined, retryAfter, undefined), exhausted)
  })
})
