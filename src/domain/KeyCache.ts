import { Context, Data, Effect, Option, Stream } from "effect"
import type { KeyGrant } from "./ApiKeys.ts"

/** What a replica hears of deleted keys. Between `Hearing` and the next `Deaf` it hears of every deletion. */
export type Revocation = Data.TaggedEnum<{
  Hearing: {}
  Deaf: {}
  Revoked: { readonly keyId: string }
}>
export const Revocation = Data.taggedEnum<Revocation>()

/** Word of deleted keys, from every replica. Without it nothing is answered from memory. */
export const KeyRevocations = Context.Reference<Stream.Stream<Revocation>>("gatehouse/domain/KeyCache/KeyRevocations", {
  defaultValue: () => Stream.never,
})

/** How many keys are held; the longest held go first. */
const capacity = 100_000

/**
 * Valid keys, held in memory by their hash, and only while this replica hears of every deletion. The scope that it is
 * made in ends its hearing.
 */
export const make = Effect.gen(function* () {
  const grants = new Map<string, KeyGrant>()
  const hashes = new Map<string, string>()
  let hearing = false
  /** Counts what may have outdated a look-up that is under way. */
  let epoch = 0

  const drop = (keyId: string) => {
    epoch++
    const hash = hashes.get(keyId)
    if (hash === undefined) return
    hashes.delete(keyId)
    grants.delete(hash)
  }

  const hear = (now: boolean) => {
    epoch++
    hearing = now
    grants.clear()
    hashes.clear()
  }

  const put = (hash: string, grant: KeyGrant) => {
    if (grants.size >= capacity) {
      const [oldest, { keyId }] = grants.entries().next().value!
      grants.delete(oldest)
      hashes.delete(keyId)
    }
    grants.set(hash, grant)
    hashes.set(grant.keyId, hash)
  }

  yield* (yield* KeyRevocations).pipe(
    Stream.runForEach((revocation) =>
      Effect.sync(() => (revocation._tag === "Revoked" ? drop(revocation.keyId) : hear(revocation._tag === "Hearing"))),
    ),
    Effect.ensuring(Effect.sync(() => hear(false))),
    Effect.forkScoped,
  )

  return {
    /** Forgets a key that this replica deleted. */
    forget: (keyId: string) => Effect.sync(() => drop(keyId)),
    /** The key from memory, else by the look-up. A deletion heard of meanwhile keeps its result out of memory. */
    through: <E, R>(hash: string, lookUp: Effect.Effect<Option.Option<KeyGrant>, E, R>) =>
      Effect.suspend(() => {
        const held = grants.get(hash)
        if (held !== undefined) return Effect.succeedSome(held)
        const began = epoch
        return Effect.tap(lookUp, (found) =>
          Effect.sync(() => {
            if (hearing && epoch === began && Option.isSome(found)) put(hash, found.value)
          }),
        )
      }),
  }
})
