import { assert } from "@effect/vitest"
import { Context, Effect, Layer, Redacted } from "effect"
import { ApiKeyRepository } from "#src/domain/keys/ApiKeyRepository.ts"
import { ApiKeys } from "#src/domain/keys/ApiKeys.ts"
import { AuditLog } from "#src/domain/audit/AuditLog.ts"
import * as KeyCache from "#src/infrastructure/keys/KeyCache.ts"
import { asAdministrator, outcomeOf } from "../../domain/support.ts"
import * as crypto from "../../fakes/crypto.ts"
import { until } from "../../support/wait.ts"
import { insertOrg } from "../support.ts"

/** Sleeps up to three milliseconds. */
const moment = Effect.suspend(() => Effect.sleep(Math.random() * 3))

/** Delays each look-up after the read, so that a deletion can happen in between. */
const slow = Layer.effect(
  ApiKeyRepository,
  Effect.map(ApiKeyRepository, (keys) => ({
    ...keys,
    findByHashes: (hashes: ReadonlyArray<string>) => Effect.tap(keys.findByHashes(hashes), moment),
  })),
)

/** The keys of a replica, with a cache of its own. */
const replica = Layer.build(
  ApiKeys.layer.pipe(
    Layer.provide(Layer.provideMerge(KeyCache.layer, [slow, KeyCache.keyRevocations, AuditLog.layer, crypto.layer])),
    Layer.fresh,
  ),
).pipe(Effect.map((context) => Context.get(context, ApiKeys)))

/**
 * Deletes a key at one of two replicas while both look it up, `times` times. Afterwards neither replica has it in
 * memory: a read from before the deletion is not cached after it.
 */
export const deleteAgainstSlowLookUps = Effect.fnUntraced(function* (times: number) {
  const [one, other] = [yield* replica, yield* replica]
  const { orgId } = yield* insertOrg()
  const ends = { "validated before": 0, "refused during": 0 }
  for (let n = 0; n < times; n++) {
    const { id, key } = yield* one.createForOrg(orgId, { name: "k" }).pipe(asAdministrator)
    const ask = (keys: ApiKeys["Service"]) => outcomeOf(keys.authenticate(Redacted.make(key), "127.0.0.1"))
    const asking = [one, other, one, other].map((keys) => Effect.andThen(moment, ask(keys)))
    const remove = Effect.andThen(moment, one.remove(orgId, id).pipe(asAdministrator))
    const [during] = yield* Effect.all([Effect.all(asking, { concurrency: 4 }), remove], { concurrency: 2 })
    for (const outcome of during) ends[outcome === "ok" ? "validated before" : "refused during"]++
    assert.strictEqual(yield* ask(one), "Unauthorized", "the replica that deleted it")
    // The other replica is notified a little later.
    yield* until("the other replica to refuse the key", ask(other), (outcome) => outcome !== "ok")
    assert.deepStrictEqual([yield* ask(one), yield* ask(other)], ["Unauthorized", "Unauthorized"])
  }
  return ends
})
