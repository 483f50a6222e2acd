import { Clock, Effect, Exit, Option, Redacted, Result } from "effect"
import { NetAddress } from "effect/net"
import { Forbidden, TooManyRequests, Unauthorized, type Unavailable } from "../Errors.ts"
import { CurrentPrincipal } from "../Principal.ts"
import { monotonicMillis } from "../monotonicMillis.ts"
import { apiKeyLength, isWellFormed, type ValidatedKey } from "./ApiKey.ts"
import { ApiKeyRepository, type KeyGrant, type KeyLimits } from "./ApiKeyRepository.ts"
import { KeyHash, KeyLookup, ValidationCounter, type ValidationOutcome, type ValidationSource } from "./KeyLookup.ts"
import * as KeyPortions from "./LeasedQuotas.ts"
import * as KeyUsage from "./KeyUsage.ts"

/** The invalid keys that an anonymous caller may send in a minute. */
const maxFailuresPerMinute = 600

// One value: the error does not reveal why a key is invalid.
const notValid = new Unauthorized({ error: "The key is not valid." })

/** The result of a lookup; `grant` is `undefined` when there is no such key. */
interface Lookup {
  readonly grant: KeyGrant | undefined
  readonly source: ValidationSource
}

/** What a validation asks for, beside the key. */
export interface KeyUse {
  readonly permissions?: ReadonlyArray<string> | undefined
  readonly cost?: number | undefined
  readonly details?: boolean | undefined
}

/** The answer of a validation. */
const answerOf = (grant: KeyGrant, { details }: KeyUse, credits: number | null): ValidatedKey => {
  const { keyId, orgId, projectId } = grant
  if (details !== true) return { keyId, orgId, projectId }
  const { expiresAt, externalId, metadata, name, permissions } = grant
  return { keyId, orgId, projectId, name, externalId, metadata, permissions: permissions.list, expiresAt, credits }
}

/** Whether a use takes nothing of a limit, and does not ask what is left. */
const isUnlimited = (limits: KeyLimits | null, cost: number, { details }: KeyUse): limits is null =>
  limits === null || (cost === 0 && details !== true)

/** The part of `ApiKeys` that serves every request of a gateway: it finds and validates keys. */
export const make = Effect.gen(function* () {
  const repository = yield* ApiKeyRepository
  const hashOf = yield* KeyHash
  const clock = yield* Clock.Clock
  const count = yield* ValidationCounter
  const failures = failureLimit(maxFailuresPerMinute)
  const lookup = yield* KeyLookup
  const portions = yield* KeyPortions.make(notValid)
  const usage = KeyUsage.make(repository, yield* KeyUsage.KeyUsageRepository)

  /** Returns the grant if it is valid at a time. */
  const validAt = (grant: KeyGrant | undefined, now: number) =>
    grant === undefined || !grant.enabled || (grant.expiresAt !== null && grant.expiresAt.epochMilliseconds <= now)
      ? undefined
      : grant

  /** Returns the grant if it is valid, and records its use. */
  const accept = (grant: KeyGrant | undefined) => {
    const now = clock.currentTimeMillisUnsafe()
    const valid = validAt(grant, now)
    if (valid !== undefined) usage.seen(valid, now)
    return valid
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

  const recognize = (key: string, done: (grant: KeyGrant | undefined) => void) =>
    lookUp(key, (found) => done(Exit.isSuccess(found) ? accept(found.value) : undefined))

  /** Takes the cost of a use from memory; `undefined` when the operation has to decide. */
  const takeFromMemory = ({ limits, orgId }: KeyGrant, cost: number, use: KeyUse) =>
    isUnlimited(limits, cost, use) ? null : portions.takeFromMemory(orgId, limits, cost)

  const tryValidate = (key: string, use: KeyUse, done: (answer: ValidatedKey | undefined) => void) =>
    lookUp(key, (found, source) => {
      const now = clock.currentTimeMillisUnsafe()
      const grant = Exit.isSuccess(found) ? validAt(found.value, now) : undefined
      if (grant === undefined) return done(undefined)
      const { cost = 1, permissions } = use
      if (permissions !== undefined && grant.permissions.missing(permissions) !== undefined) return done(undefined)
      const credits = takeFromMemory(grant, cost, use)
      if (credits === undefined) return done(undefined)
      count("valid", source, grant.orgId)
      usage.count(grant, "valid", cost, now)
      done(answerOf(grant, use, credits))
    })

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

  /** Validates a use of a key that was found: permissions first, then the limits. */
  const useKey = Effect.fnUntraced(function* (grant: KeyGrant, use: KeyUse, source: ValidationSource) {
    const now = clock.currentTimeMillisUnsafe()
    const { cost = 1, permissions = [] } = use
    const missing = grant.permissions.missing(permissions)
    if (missing !== undefined) {
      count("forbidden", source, grant.orgId)
      usage.count(grant, "forbidden", 0, now)
      return yield* new Forbidden({ error: `The key does not have the permission ${missing}.` })
    }
    const { limits, orgId } = grant
    const taken = isUnlimited(limits, cost, use) ? Effect.succeed(null) : portions.take(orgId, limits, cost)
    const credits = yield* Effect.tapError(taken, ({ _tag }) =>
      Effect.sync(() => {
        const isLimited = _tag === "TooManyRequests" || _tag === "CostAboveLimit" || _tag === "CreditsExhausted"
        count(isLimited ? "limited" : _tag === "Unauthorized" ? "invalid" : "unavailable", source, orgId)
        if (isLimited) usage.count(grant, "limited", 0, now)
      }),
    )
    count("valid", source, grant.orgId)
    usage.count(grant, "valid", cost, now)
    return answerOf(grant, use, credits)
  })

  const validate = Effect.fnUntraced(function* (key: Redacted.Redacted<string>, address: string, use: KeyUse = {}) {
    const { principal } = yield* CurrentPrincipal
    const isAnonymous = principal._tag === "Anonymous"
    const counted = (outcome: ValidationOutcome, source: ValidationSource) => () =>
      Effect.sync(() => count(outcome, source))
    if (isAnonymous) yield* Effect.tapError(failures.check(address), counted("limited", "memory"))
    const { grant: found, source } = yield* Effect.tapError(
      find(Redacted.value(key)),
      counted("unavailable", "database"),
    )
    const grant = accept(found)
    if (grant !== undefined) return yield* useKey(grant, use, source)
    count("invalid", source)
    if (isAnonymous) yield* failures.record(address)
    return yield* notValid
  })

  return {
    ...{ recognize, tryValidate, authenticate, authenticateHash, validate },
    flushUsage: usage.flush,
    returnIdlePortions: portions.returnIdle,
    returnPortions: portions.returnAll,
  }
})

interface Window {
  readonly startedAt: number
  failures: number
}

const windowMillis = 60_000
const maxWindows = 10_000
/** Longer than any address. A proxy may pass on text that is none. */
const maxNameLength = 64

/**
 * What an address counts as: an IPv6 address as its /64 network, of which one client has all addresses, an IPv4-mapped
 * one as its IPv4 address. Text that is no address counts as itself.
 */
const networkOf = (address: string): string => {
  if (!address.includes(":")) return address.slice(0, maxNameLength)
  const parsed = NetAddress.ipv6FromString(address.replace(/%.*$/s, ""))
  if (Result.isFailure(parsed)) return address.slice(0, maxNameLength)
  return Option.match(NetAddress.fromIpv4Mapped(parsed.success), {
    onSome: NetAddress.formatIp,
    onNone: () => `${NetAddress.ipv6ToSegments(parsed.success).slice(0, 4).join(":")}::/64`,
  })
}

/**
 * Counts failures per client network in windows of a minute. At most 10,000 windows are kept: one that has ended makes
 * room first, else the one with the fewest failures, so that a flood of addresses does not free the worst of them.
 *
 * @param limit how many failures a network has in a minute before it is refused for the rest of it
 */
export const failureLimit = (limit: number) => {
  /** The oldest first. */
  const windows = new Map<string, Window>()
  /** The networks by their number of failures; in each the one that reached it first comes first. */
  const byFailures = Array.from({ length: limit + 1 }, () => new Set<string>())

  /** Fails with `TooManyRequests` while the address has used up its failures. */
  const check = (address: string) =>
    Effect.flatMap(monotonicMillis, (now) => {
      const window = windows.get(networkOf(address))
      if (window === undefined || window.failures < limit) return Effect.void
      const left = window.startedAt + windowMillis - now
      if (left <= 0) return Effect.void
      return Effect.fail(
        new TooManyRequests({
          error:
            "Too many validations from this address failed. Try again after the seconds in Retry-After, or send an org key as the credential.",
          retryAfterSeconds: Math.ceil(left / 1000),
        }),
      )
    })

  const count = (network: string, window: Window, failures: number) => {
    byFailures[window.failures]!.delete(network)
    window.failures = failures
    byFailures[failures]!.add(network)
  }

  const forget = (network: string) => {
    const window = windows.get(network)
    if (window === undefined) return
    byFailures[window.failures]!.delete(network)
    windows.delete(network)
  }

  const removeWindow = (now: number) => {
    const [oldest, { startedAt }] = windows.entries().next().value!
    const fewest = byFailures.find(({ size }) => size > 0)!
    forget(now - startedAt >= windowMillis ? oldest : fewest.values().next().value!)
  }

  const record = (address: string) =>
    Effect.map(monotonicMillis, (now) => {
      const network = networkOf(address)
      const window = windows.get(network)
      if (window !== undefined && now - window.startedAt < windowMillis) {
        // Requests that were checked at the same time can be more than the limit.
        if (window.failures < limit) count(network, window, window.failures + 1)
        return
      }
      forget(network)
      if (windows.size >= maxWindows) removeWindow(now)
      windows.set(network, { startedAt: now, failures: 1 })
      byFailures[1]!.add(network)
    })

  return { check, record }
}
