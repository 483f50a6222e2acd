import { Context, Data, Effect, Layer, Stream } from "effect"
import { ApiKeyRepository, type KeyGrant } from "../../domain/keys/ApiKeyRepository.ts"
import { KeyLookup } from "../../domain/keys/KeyLookup.ts"
import { noOrg, RequestOrg } from "../../domain/orgs/RequestOrg.ts"
import * as Batches from "../database/Batches.ts"

/** What a replica hears of deleted keys. Between `Hearing` and the next `Deaf` it hears of every deletion. */
export type Revocation = Data.TaggedEnum<{
  Hearing: {}
  Deaf: {}
  Revoked: { readonly keyId: string }
}>
export const Revocation = Data.taggedEnum<Revocation>()

/** Word of deleted keys, from every replica. Without it nothing is answered from memory. */
export const KeyRevocations = Context.Reference<Stream.Stream<Revocation>>(
  "gatehouse/infrastructure/KeyCache/KeyRevocations",
  {
    defaultValue: () => Stream.never,
  },
)

/** How many keys are held in memory; an org that has half of them replaces its own, else the longest held go first. 0: none. */
export const KeyCacheSize = Context.Reference<number>("gatehouse/infrastructure/KeyCache/KeyCacheSize", {
  defaultValue: () => 100_000,
})

/** How many keys one statement looks up at most. */
const maxLookUps = 256

/** Keys from memory only while this replica hears of every deletion. The scope that it is made in ends its hearing. */
export const make = Effect.gen(function* () {
  const capacity = yield* KeyCacheSize
  const { findByHashes } = yield* ApiKeyRepository
  const hashes = new Map<string, string>()
  const grants = new Map<string, KeyGrant>()
  /** The hashes of each org's keys, the longest held first. */
  const byOrg = new Map<string, Set<string>>()
  let hearing = false
  /** Counts what may have outdated a look-up that is under way. */
  let epoch = 0

  const remove = (hash: string) => {
    const grant = grants.get(hash)
    if (grant === undefined) return
    const { keyId, orgId } = grant
    grants.delete(hash)
    hashes.delete(keyId)
    const own = byOrg.get(orgId)!
    own.delete(hash)
    if (own.size === 0) byOrg.delete(orgId)
  }

  const drop = (keyId: string) => {
    epoch++
    const hash = hashes.get(keyId)
    if (hash !== undefined) remove(hash)
  }

  const hear = (now: boolean) => {
    epoch++
    hearing = now
    grants.clear()
    hashes.clear()
    byOrg.clear()
  }

  const put = (hash: string, grant: KeyGrant) => {
    remove(hash)
    if (grants.size >= capacity) {
      const own = byOrg.get(grant.orgId)
      const [oldest] = own !== undefined && own.size >= capacity / 2 ? own : grants.keys()
      remove(oldest!)
    }
    grants.set(hash, grant)
    hashes.set(grant.keyId, hash)
    const own = byOrg.get(grant.orgId) ?? new Set()
    byOrg.set(grant.orgId, own.add(hash))
  }

  yield* (yield* KeyRevocations).pipe(
    Stream.runForEach((revocation) =>
      Effect.sync(() => (revocation._tag === "Revoked" ? drop(revocation.keyId) : hear(revocation._tag === "Hearing"))),
    ),
    Effect.ensuring(Effect.sync(() => hear(false))),
    Effect.forkScoped,
  )

  const lookUp = yield* Batches.make(
    (asked: ReadonlyArray<string>) =>
      Effect.suspend(() => {
        const began = epoch
        // Requests wait for it: it has no part in the share of background work.
        const found = Effect.provideService(findByHashes(asked), RequestOrg, noOrg)
        return Effect.tap(found, (found) =>
          Effect.sync(() => {
            // A deletion heard of meanwhile keeps its result out of memory.
            if (hearing && epoch === began && capacity > 0) found.forEach((grant, hash) => put(hash, grant))
          }),
        )
      }),
    maxLookUps,
  )

  return KeyLookup.of({
    forget: (keyId) => Effect.sync(() => drop(keyId)),
    cached: (hash) => grants.get(hash),
    lookUp: (hash, done) => void lookUp(hash, done),
  })
})

export const layer = Layer.effect(KeyLookup, make)
