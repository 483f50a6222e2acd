import { Clock, DateTime, Effect, Exit, Redacted } from "effect"
import { apiKeyLength, isWellFormed } from "./ApiKey.ts"
import { ApiKeyRepository, type KeyGrant } from "./ApiKeyRepository.ts"
import { CurrentPrincipal } from "../Principal.ts"
import type { Unavailable } from "../Errors.ts"
import { Unauthorized } from "../Errors.ts"
import * as FailureLimit from "./FailureLimit.ts"
import { KeyHash } from "./KeyHash.ts"
import { KeyLookup, ValidationCounter, type ValidationOutcome, type ValidationSource } from "./KeyLookup.ts"
import * as KeyRateLimit from "./KeyRateLimit.ts"

/** The invalid keys that an anonymous caller may send in a minute. */
const maxFailuresPerMinute = 600

/** Keys whose last use one statement writes. */
const usageBatchSize = 1_000

// One value: the error does not reveal why a key is invalid.
const notValid = new Unauthorized({ error: "The key is not valid." })

/** The result of a lookup; `grant` is `undefined` when there is no such key. */
interface Lookup {
  readonly grant: KeyGrant | undefined
  readonly source: ValidationSource
}

/** Collects when keys were last used, and writes it in batches. */
const makeUsage = (repository: ApiKeyRepository["Service"]) => {
  // The time of the last use in milliseconds, by key id.
  let usage = new Map<string, number>()

  const flush = Effect.suspend(() => {
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
    // Also after an interruption: the last flush follows at shutdown.
    return Effect.onError(write, () =>
      Effect.sync(() => void (usage = new Map([...flushing.slice(written), ...usage]))),
    )
  })

  return { record: (keyId: string, at: number) => void usage.set(keyId, at), flush }
}

/** The part of `ApiKeys` that serves every request of a gateway: it finds and validates keys. */
export const make = Effect.gen(function* () {
  const repository = yield* ApiKeyRepository
  const hashOf = yield* KeyHash
  const clock = yield* Clock.Clock
  const count = yield* ValidationCounter
  const failures = FailureLimit.make(maxFailuresPerMinute)
  const rateLimit = KeyRateLimit.make()
  const lookup = yield* KeyLookup
  const usage = makeUsage(repository)

  /** Returns the grant unless it has expired, and records its use. */
  const accept = (grant: KeyGrant | undefined) => {
    const now = clock.currentTimeMillisUnsafe()
    if (grant === undefined || (grant.expiresAt !== null && grant.expiresAt.epochMilliseconds <= now)) return undefined
    usage.record(grant.keyId, now)
    return grant
  }

  const lookUp = (
    key: string,
    done: (found: Exit.Exit<KeyGrant | undefined, Unavailable>, source: ValidationSource) => void,
  ) => {
    if (key.length !== apiKeyLength) return done(Exit.succeed(undefined), "memory")
    const hash = hashOf(key)
    const cached = lookup.cached(hash)
    if (cached !== undefined) return done(Exit.succeed(cached), "memory")
    // Only on a miss: cached keys have passed the checksum, which costs as much as the hash.
    if (!isWellFormed(key)) return done(Exit.succeed(undefined), "memory")
    lookup.lookUp(hash, (found) => done(found, "database"))
  }

  const recognize = (key: string, done: (grant: KeyGrant | undefined, source: ValidationSource) => void) =>
    lookUp(key, (found, source) => done(Exit.isSuccess(found) ? accept(found.value) : undefined, source))

  const find = (key: string) =>
    Effect.callback<Lookup, Unavailable>((resume) =>
      lookUp(key, (found, source) => resume(Exit.map(found, (grant) => ({ grant, source })))),
    )

  const orInvalid = (found: KeyGrant | undefined) => {
    const grant = accept(found)
    return grant === undefined ? Effect.fail(notValid) : Effect.succeed(grant)
  }
  const authenticate = (key: Redacted.Redacted<string>) =>
    Effect.flatMap(find(Redacted.value(key)), ({ grant }) => orInvalid(grant))

  const authenticateHash = (hash: string) =>
    Effect.callback<KeyGrant | undefined, Unavailable>((resume) => {
      const cached = lookup.cached(hash)
      if (cached !== undefined) return resume(Effect.succeed(cached))
      lookup.lookUp(hash, resume)
    }).pipe(Effect.flatMap(orInvalid))

  const validate = Effect.fnUntraced(function* (key: Redacted.Redacted<string>, address: string) {
    const { principal } = yield* CurrentPrincipal
    const isAnonymous = principal._tag === "Anonymous"
    const counted = (outcome: ValidationOutcome, source: ValidationSource, orgId?: string) => () =>
      Effect.sync(() => count(outcome, source, orgId))
    if (isAnonymous) yield* Effect.tapError(failures.check(address), counted("limited", "memory"))
    const { grant: found, source } = yield* Effect.tapError(
      find(Redacted.value(key)),
      counted("unavailable", "database"),
    )
    const grant = accept(found)
    if (grant === undefined) {
      count("invalid", source)
      if (isAnonymous) yield* failures.record(address)
      return yield* notValid
    }
    yield* Effect.tapError(rateLimit.check(grant), counted("limited", source, grant.orgId))
    count("valid", source, grant.orgId)
    const { keyId, orgId, projectId } = grant
    return { keyId, orgId, projectId }
  })

  return { recognize, authenticate, authenticateHash, validate, flushUsage: usage.flush }
})
