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

/** Sleeps up to two milliseconds. */
const soon = Effect.suspend(() => Effect.sleep(Math.random() * 2))

/**
 * Deletes a key at one replica while both validate it, `times` times; half of the keys are cached before. After the
 * answer to the deletion, that replica refuses the key at once and the other one soon, and neither accepts it again.
 * Returns the longest delay of the other replica, in milliseconds.
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
    // These may be accepted or refused: they may have read the row before its deletion.
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
    // By now every read of the row has ended.
    expect(yield* askBoth, "earlier reads are not cached").toEqual([401, 401])
  }
  return longest
})
