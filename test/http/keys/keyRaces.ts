/* oxlint-disable vitest/no-standalone-expect, vitest/valid-expect -- called in tests, and expect takes a message */
import { expect } from "@effect/vitest"
import { Clock, Context, Effect, Layer } from "effect"
import { adminToken, guarded, onPostgres, TestServer } from "../../support/server.ts"
import { until } from "../../support/wait.ts"
import { must } from "../operations.ts"

const as = adminToken

/** Two replicas on one database. */
export const twoReplicas = Effect.gen(function* () {
  const environment = yield* onPostgres(guarded)
  const replica = Effect.map(Layer.build(TestServer.layer(environment)), (context) => Context.get(context, TestServer))
  return yield* Effect.all([replica, replica], { concurrency: 2 })
})
type Replica = (typeof TestServer)["Service"]

/** Up to two milliseconds. */
const soon = Effect.suspend(() => Effect.sleep(Math.random() * 2))

/**
 * Deletes a key at one replica while both are asked for it, so many times, half of the keys in memory before. What is
 * asked after the answer to the deletion is refused there at once, by the other replica soon, and by neither
 * is it served again. Gives how long the other one took at most, in milliseconds.
 */
export const deleteAgainstValidate = Effect.fnUntraced(function* (
  [one, other]: readonly [Replica, Replica],
  times: number,
) {
  const { orgId } = yield* must(one.send, "POST", "/api/v0/orgs", { json: { name: "o" }, as })
  let longest = 0
  for (let n = 0; n < times; n++) {
    const { id, key } = yield* must(one.send, "POST", `/api/v0/orgs/${orgId}/keys`, { json: { name: "k" }, as })
    const ask = ({ send }: Replica) =>
      Effect.map(send("POST", "/api/v0/keys/validate", { json: { key }, as }), ({ status }) => status)
    const askBoth = Effect.all([ask(one), ask(other)], { concurrency: 2 })
    if (n % 2 === 0) expect(yield* askBoth).toEqual([200, 200])

    const remove = must(one.send, "DELETE", `/api/v0/orgs/${orgId}/keys/${id}`, { as })
    // Whatever these are told, they may have read the row before it was gone.
    const asking = Effect.replicateEffect(Effect.andThen(soon, askBoth), 3, { concurrency: 3 })
    const atOne = Effect.gen(function* () {
      yield* Effect.andThen(soon, remove)
      const deleted = yield* Clock.currentTimeMillis
      expect(yield* ask(one), "the replica that deleted it").toBe(401)
      yield* until("the other replica to refuse the key", ask(other), (status) => status === 401)
      longest = Math.max(longest, (yield* Clock.currentTimeMillis) - deleted)
    })
    const [during] = yield* Effect.all([asking, atOne], { concurrency: 2 })
    for (const status of during.flat()) expect([200, 401]).toContain(status)
    // All that had read the row are through with it.
    expect(yield* askBoth, "what was read before is not kept").toEqual([401, 401])
  }
  return longest
})
