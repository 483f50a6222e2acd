import { Clock, DateTime, Effect, Exit, Redacted } from "effect"
import { isWellFormed } from "./ApiKey.ts"
import { ApiKeyRepository, type KeyGrant } from "./ApiKeyRepository.ts"
import { CurrentCaller } from "./Caller.ts"
import type { Unavailable } from "./Errors.ts"
import { Unauthorized } from "./Errors.ts"
import * as FailureLimit from "./FailureLimit.ts"
import * as KeyCache from "./KeyCache.ts"
import { KeyHash } from "./KeyHash.ts"
import * as KeyRateLimit from "./KeyRateLimit.ts"

/** How many keys that are not valid a caller without a credential may try in a minute. */
const failuresPerMinute = 600

// One value, so that no reason for refusing a key can be told from another.
const notValid = new Unauthorized({ error: "The key is not valid." })

/** The part of `ApiKeys` that is asked before every request of a gateway: whose a key is, and whether it may be used. */
export const make = Effect.gen(function* () {
  const repository = yield* ApiKeyRepository
  const hashOf = yield* KeyHash
  const clock = yield* Clock.Clock
  const failures = FailureLimit.make(failuresPerMinute)
  const rateLimit = KeyRateLimit.make()
  const cache = yield* KeyCache.make(repository.findByHashes)
  /** When keys were last used, in milliseconds. */
  let usage = new Map<string, number>()

  /** The grant, its use written down, unless it has expired. */
  const accept = (grant: KeyGrant | undefined) => {
    const now = clock.currentTimeMillisUnsafe()
    if (grant === undefined || (grant.expiresAt !== null && grant.expiresAt.epochMilliseconds <= now)) return undefined
    usage.set(grant.keyId, now)
    return grant
  }

  const recognize = (key: string, done: (grant: KeyGrant | undefined) => void) => {
    if (!isWellFormed(key)) return done(undefined)
    const hash = hashOf(key)
    const held = cache.held(hash)
    if (held !== undefined) return done(accept(held))
    cache.lookUp(hash, (found) => done(Exit.isSuccess(found) ? accept(found.value) : undefined))
  }

  const find = (key: string): Effect.Effect<KeyGrant | undefined, Unavailable> => {
    if (!isWellFormed(key)) return Effect.undefined
    const hash = hashOf(key)
    const held = cache.held(hash)
    return held !== undefined ? Effect.succeed(held) : Effect.callback((resume) => cache.lookUp(hash, resume))
  }

  const authenticate = (key: Redacted.Redacted<string>) =>
    Effect.flatMap(find(Redacted.value(key)), (found) => {
      const grant = accept(found)
      return grant === undefined ? Effect.fail(notValid) : Effect.succeed(grant)
    })

  const validate = Effect.fnUntraced(function* (key: Redacted.Redacted<string>, address: string) {
    const { caller } = yield* CurrentCaller
    const limited = caller._tag === "Anonymous"
    if (limited) yield* failures.check(address)
    const grant = yield* authenticate(key).pipe(
      Effect.tapError((error) => (limited && error._tag === "Unauthorized" ? failures.record(address) : Effect.void)),
    )
    yield* rateLimit.check(grant)
    const { keyId, orgId, projectId } = grant
    return { keyId, orgId, projectId }
  })

  const flushUsage = Effect.suspend(() => {
    if (usage.size === 0) return Effect.void
    const flushing = usage
    usage = new Map()
    const times = new Map(Array.from(flushing, ([keyId, at]) => [keyId, DateTime.makeUnsafe(at)]))
    // However it ends: a write that is cut short at shutdown is followed by the last flush.
    return Effect.onError(repository.touch(times), () =>
      Effect.sync(() => {
        for (const [keyId, at] of usage) flushing.set(keyId, at)
        usage = flushing
      }),
    )
  })

  return { forget: cache.forget, recognize, authenticate, validate, flushUsage }
})
