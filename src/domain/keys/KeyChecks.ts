import { Clock, DateTime, Effect, Exit, Redacted } from "effect"
import { isWellFormed, keyLength } from "./ApiKey.ts"
import { ApiKeyRepository, type KeyGrant } from "./ApiKeyRepository.ts"
import { CurrentPrincipal } from "../Principal.ts"
import type { Unavailable } from "../Errors.ts"
import { Unauthorized } from "../Errors.ts"
import * as FailureLimit from "./FailureLimit.ts"
import { KeyHash } from "./KeyHash.ts"
import { KeyLookup, ValidationCounter, type ValidationOutcome, type ValidationSource } from "./KeyLookup.ts"
import * as KeyRateLimit from "./KeyRateLimit.ts"

/** How many keys that are not valid a caller without a credential may try in a minute. */
const failuresPerMinute = 600

/** Of how many keys one statement writes when they were last used. */
const usageBatchSize = 1_000

// One value, so that no reason for refusing a key can be told from another.
const notValid = new Unauthorized({ error: "The key is not valid." })

/** What a look-up found, and where. */
interface Lookup {
  readonly grant: KeyGrant | undefined
  readonly source: ValidationSource
}

/** The part of `ApiKeys` that is asked before every request of a gateway: whose a key is, and whether it may be used. */
export const make = Effect.gen(function* () {
  const repository = yield* ApiKeyRepository
  const hashOf = yield* KeyHash
  const clock = yield* Clock.Clock
  const count = yield* ValidationCounter
  const failures = FailureLimit.make(failuresPerMinute)
  const rateLimit = KeyRateLimit.make()
  const cache = yield* KeyLookup
  /** When keys were last used, in milliseconds. */
  let usage = new Map<string, number>()

  /** The grant, its use written down, unless it has expired. */
  const accept = (grant: KeyGrant | undefined) => {
    const now = clock.currentTimeMillisUnsafe()
    if (grant === undefined || (grant.expiresAt !== null && grant.expiresAt.epochMilliseconds <= now)) return undefined
    usage.set(grant.keyId, now)
    return grant
  }

  const lookUp = (
    key: string,
    done: (found: Exit.Exit<KeyGrant | undefined, Unavailable>, source: ValidationSource) => void,
  ) => {
    if (key.length !== keyLength) return done(Exit.succeed(undefined), "memory")
    const hash = hashOf(key)
    const held = cache.held(hash)
    if (held !== undefined) return done(Exit.succeed(held), "memory")
    // Only on a miss: cached keys have passed the checksum, which costs as much as the hash.
    if (!isWellFormed(key)) return done(Exit.succeed(undefined), "memory")
    cache.lookUp(hash, (found) => done(found, "database"))
  }

  const recognize = (key: string, done: (grant: KeyGrant | undefined, source: ValidationSource) => void) =>
    lookUp(key, (found, source) => done(Exit.isSuccess(found) ? accept(found.value) : undefined, source))

  const find = (key: string) =>
    Effect.callback<Lookup, Unavailable>((resume) =>
      lookUp(key, (found, source) => resume(Exit.map(found, (grant) => ({ grant, source })))),
    )

  const authenticate = (key: Redacted.Redacted<string>) =>
    Effect.flatMap(find(Redacted.value(key)), (found) => {
      const grant = accept(found.grant)
      return grant === undefined ? Effect.fail(notValid) : Effect.succeed(grant)
    })

  const validate = Effect.fnUntraced(function* (key: Redacted.Redacted<string>, address: string) {
    const { principal } = yield* CurrentPrincipal
    const limited = principal._tag === "Anonymous"
    const counted = (outcome: ValidationOutcome, source: ValidationSource) => () =>
      Effect.sync(() => count(outcome, source))
    if (limited) yield* Effect.tapError(failures.check(address), counted("limited", "memory"))
    const { grant: found, source } = yield* Effect.tapError(
      find(Redacted.value(key)),
      counted("unavailable", "database"),
    )
    const grant = accept(found)
    if (grant === undefined) {
      count("invalid", source)
      if (limited) yield* failures.record(address)
      return yield* notValid
    }
    yield* Effect.tapError(rateLimit.check(grant), counted("limited", source))
    count("valid", source)
    const { keyId, orgId, projectId } = grant
    return { keyId, orgId, projectId }
  })

  const flushUsage = Effect.suspend(() => {
    const flushing = [...usage]
    usage = new Map()
    let written = 0
    const write = Effect.gen(function* () {
      while (written < flushing.length) {
        const batch = flushing.slice(written, written + usageBatchSize)
        yield* repository.touch(new Map(batch.map(([keyId, at]) => [keyId, DateTime.makeUnsafe(at)])))
        written += batch.length
      }
    })
    // However it ends: a write that is cut short at shutdown is followed by the last flush.
    return Effect.onError(write, () =>
      Effect.sync(() => void (usage = new Map([...flushing.slice(written), ...usage]))),
    )
  })

  return { recognize, authenticate, validate, flushUsage }
})
