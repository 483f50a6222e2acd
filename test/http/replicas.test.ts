/* oxlint-disable vitest/no-standalone-expect -- it.effect is a test */
import { expect, it } from "@effect/vitest"
import { Clock, Context, Effect, Layer } from "effect"
import { adminToken, guarded, onPostgres, TestServer } from "../support/server.ts"
import { must } from "./operations.ts"

const as = adminToken

// Seen failing without the notification of the deletion: the other replica goes on answering from memory.
it.live("a key deleted at one replica is refused by the other, which had it in memory", () =>
  Effect.gen(function* () {
    const environment = yield* onPostgres(guarded)
    const replica = Effect.map(Layer.build(TestServer.layer(environment)), (context) =>
      Context.get(context, TestServer),
    )
    const [one, other] = yield* Effect.all([replica, replica], { concurrency: 2 })
    const { orgId } = yield* must(one.send, "POST", "/api/v0/orgs", { json: { name: "o" }, as })
    const waits: Array<number> = []
    for (let n = 0; n < 20; n++) {
      const { id, key } = yield* must(one.send, "POST", `/api/v0/orgs/${orgId}/keys`, { json: { name: "k" }, as })
      const validate = Effect.map(
        other.send("POST", "/api/v0/keys/validate", { json: { key }, as }),
        ({ status }) => status,
      )
      expect([yield* validate, yield* validate]).toEqual([200, 200])
      yield* must(one.send, "DELETE", `/api/v0/orgs/${orgId}/keys/${id}`, { as })
      const deleted = yield* Clock.currentTimeMillis
      yield* validate.pipe(Effect.repeat({ until: (status) => status === 401 }), Effect.timeout("5 seconds"))
      waits.push((yield* Clock.currentTimeMillis) - deleted)
    }
    expect(Math.max(...waits)).toBeLessThan(1000)
  }),
)
