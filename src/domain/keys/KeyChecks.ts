import { Clock, Context, Effect, Exit, Redacted } from "effect"
import { Forbidden, IpNotAllowed, Unauthorized, Unavailable } from "../Errors.ts"
import { CurrentPrincipal } from "../Principal.ts"
import { limitWrongCredentials } from "../wrongCredentials.ts"
import { clientAddressIn } from "../clientNetworks.ts"
import { apiKeyLengths, defaultCost, isWellFormed, type ValidatedKey } from "./ApiKey.ts"
import { ApiKeyRepository, KeyHash, type KeyGrant, type KeyLimits } from "./ApiKeyRepository.ts"
import { importedKeyLengths } from "./ImportKeys.ts"
import type { RateLimit } from "./KeySettings.ts"
import * as LeasedQuotas from "./LeasedQuotas.ts"
import * as KeyUsage from "./KeyUsage.ts"

/** The error of a key whose slow hash could not be computed in time. It counts as a failure of the caller. */
export const noRoom = new Unavailable({ error: "Too many keys with slow hashes are checked; try again." })

/**
 * Finds keys by their hash. The database of a key notifies of changes, and now and then proves that its notifications
 * arrive. Memory answers while that proof is recent (`maxProofAgeMillis`); a key that was revoked since may still pass.
 */
export class KeyLookup extends Context.Service<
  KeyLookup,
  {
    /** The key in memory; `undefined` when memory does not have it, or may have missed its deletion. */
    readonly cached: (hash: string) => KeyGrant | undefined
    /** Reads the key from the database, and calls `done` later. */
    readonly lookUp: (hash: string, done: (found: Exit.Exit<KeyGrant | undefined, Unavailable>) => void) => void
    /** Whether keys may have been imported. Else a text without the form of a key needs no query. */
    readonly mayBeImported: () => boolean
    /**
     * Reads a key that may be imported from the database, by all hashes that it may have, and calls `done` later. Slow
     * hashes are computed in turns: of the orgs that have them, and of the clients' addresses. Without room for
     * another, the error is `noRoom`.
     */
    readonly lookUpImported: (
      key: string,
      address: string,
      done: (found: Exit.Exit<KeyGrant | undefined, Unavailable>) => void,
    ) => void
  }
>()("gatehouse/domain/KeyLookup") {}

/**
 * The outcome of a validation. `forbidden`: a permission is missing, or the key may not be used from the address.
 * `limited`: too many requests, or no credits. `unavailable`: the database did not answer.
 */
export type ValidationOutcome = "valid" | "invalid" | "forbidden" | "limited" | "unavailable"

/** Where the answer of a validation comes from: this process alone, or the database. */
export type ValidationSource = "memory" | "database"

/** Counts every validation. A key that is not valid has no org. */
export const ValidationCounter = Context.Reference<
  (outcome: ValidationOutcome, source: ValidationSource, orgId?: string) => void
>("gatehouse/domain/ValidationCounter", { defaultValue: () => () => {} })

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
  readonly clientIp?: string | undefined
  readonly details?: boolean | undefined
}

/** What is left of a key's rate limit, as far as this process knows. */
interface RateLeft extends RateLimit {
  readonly remaining: number
}

/** The operations that check keys for anyone. The failures of each are limited by themselves. */
type KeyDoor = "validate" | "authorize" | "token"

/** A use that nothing refuses. `credits` and `rate` are `null` for a key without that limit. */
export interface AuthorizedUse {
  readonly grant: KeyGrant
  readonly credits: number | null
  readonly rate: RateLeft | null
}

const answerOf = (grant: KeyGrant, { details }: KeyUse, credits: number | null): ValidatedKey => {
  const { keyId, orgId, projectId } = grant
  if (details !== true) return { keyId, orgId, projectId }
  const { expiresAt, externalId, metadata, name, permissions } = grant
  return { keyId, orgId, projectId, name, externalId, metadata, permissions: permissions.list, expiresAt, credits }
}

/** Why a use is a 403: the address first, then the permissions. */
const forbidden = ({ allowedIps, permissions }: KeyGrant, { clientIp, permissions: needed }: KeyUse) => {
  if (allowedIps !== null && !allowedIps.has(clientIp)) {
    return new IpNotAllowed({
      error:
        clientIp === undefined || clientAddressIn(clientIp) === undefined
          ? "The key may only be used from some addresses: send the client's in clientIp."
          : "The key may not be used from this address.",
    })
  }
  const missing = needed === undefined ? undefined : permissions.missing(needed)
  return missing === undefined
    ? undefined
    : new Forbidden({ error: `The key does not have the permission ${missing}.` })
}

/** The error of a key that its holder made in a portal, where a credential of Gatehouse is needed. */
export const holdersKey = new Unauthorized({
  error:
    "This key was made in a portal: it is for the API of your platform, and no credential of Gatehouse. Use another key.",
})

/** The limits that a use takes from, or asks what is left of; else `null`. What it takes of each: keyLimits.ts. */
const limitsFor = ({ limits }: KeyGrant, { cost = defaultCost, details }: KeyUse): KeyLimits | null =>
  cost === 0 && details !== true ? null : limits

/** The part of `ApiKeys` that serves every request of a gateway: it finds and validates keys. */
export const make = Effect.gen(function* () {
  const repository = yield* ApiKeyRepository
  const hashOf = yield* KeyHash
  const clock = yield* Clock.Clock
  const count = yield* ValidationCounter
  const limitOf = () =>
    limitWrongCredentials(
      "Too many validations from this address failed. Try again after the seconds in Retry-After, or send an org key as the credential.",
    )
  /** Failures are limited after the key was compared: those of others never refuse a valid one. */
  const failures: Record<KeyDoor, ReturnType<typeof limitWrongCredentials>> = {
    validate: limitOf(),
    authorize: limitOf(),
    token: limitOf(),
  }
  const lookup = yield* KeyLookup
  const quotas = yield* LeasedQuotas.make(notValid)
  const usage = KeyUsage.make(repository, yield* KeyUsage.KeyUsageRepository)

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

  type Done = (found: Exit.Exit<KeyGrant | undefined, Unavailable>, source: ValidationSource) => void
  const unknown = Exit.succeed(undefined)

  const mayBeKey = ({ length }: string) => length >= importedKeyLengths.min && length <= importedKeyLengths.max

  /** Finds a key by its SHA-256. An imported key that is not in memory may have another hash. */
  const lookUpHash = (key: string, done: Done) => {
    if (!mayBeKey(key)) return done(unknown, "memory")
    const hash = hashOf(key)
    const cached = lookup.cached(hash)
    if (cached !== undefined) return done(Exit.succeed(cached), "memory")
    // Only on a miss: cached keys have passed the checksum, which costs as much as the hash.
    if (!isWellFormed(key)) return done(unknown, "memory")
    lookup.lookUp(hash, (found) => done(found, "database"))
  }

  /** Finds a key by any hash; computes slow ones in the turns of the client's address. */
  const lookUp = (address: string, key: string, done: Done) =>
    lookUpHash(key, (found, source) =>
      Exit.isSuccess(found) && found.value === undefined && mayBeKey(key) && lookup.mayBeImported()
        ? lookup.lookUpImported(key, address, (imported) => done(imported, "database"))
        : done(found, source),
    )

  /** Whether a key may be a credential of Gatehouse itself. Imported keys of another form could be guessed. */
  const mayBeCredential = (key: string) =>
    key.length >= apiKeyLengths.min && key.length <= apiKeyLengths.max && isWellFormed(key)

  /**
   * `authenticate` without a fiber, for the hot path. Calls `done` with the owner of a valid key, or with `undefined`;
   * then `authenticate` returns the reason. Calls it synchronously when memory has the answer.
   */
  const recognize = (key: string, done: (grant: KeyGrant | undefined) => void) =>
    lookUpHash(key, (found) => {
      const grant = Exit.isSuccess(found) ? found.value : undefined
      const isForeign = grant?.isImported === true && !mayBeCredential(key)
      done(grant?.isOfHolder === true || isForeign ? undefined : accept(grant))
    })

  /** Counts a use that nothing refuses. */
  const countValid = (grant: KeyGrant, { cost = defaultCost }: KeyUse, source: ValidationSource, now: number) => {
    count("valid", source, grant.orgId)
    usage.count(grant, "valid", cost, now)
  }

  /**
   * Takes a use without a fiber, of a key that is valid and whose limits are in memory. Calls `done` with what
   * `takeUse` would return; with `undefined` when that has to decide.
   */
  const tryUse = (
    key: string,
    use: KeyUse,
    done: (used: { readonly grant: KeyGrant; readonly credits: number | null } | undefined) => void,
  ) =>
    lookUpHash(key, (found, source) => {
      const now = clock.currentTimeMillisUnsafe()
      const grant = Exit.isSuccess(found) ? validAt(found.value, now) : undefined
      if (grant === undefined || forbidden(grant, use) !== undefined) return done(undefined)
      const limits = limitsFor(grant, use)
      const credits = limits === null ? null : quotas.takeFromMemory(grant.orgId, limits, use.cost ?? defaultCost)
      if (credits === undefined) return done(undefined)
      countValid(grant, use, source, now)
      done({ grant, credits })
    })

  /**
   * `validate` without a fiber, for the hot path and a caller that is known. Calls `done` with the answer to a use that
   * is valid and within the limits as far as memory knows; else with `undefined`, and takes and counts nothing.
   */
  const tryValidate = (key: string, use: KeyUse, done: (answer: ValidatedKey | undefined) => void) =>
    tryUse(key, use, (used) => done(used && answerOf(used.grant, use, used.credits)))

  const authorized = (grant: KeyGrant, credits: number | null): AuthorizedUse => {
    const limit = grant.limits?.rateLimit ?? null
    if (limit === null) return { grant, credits, rate: null }
    return { grant, credits, rate: { ...limit, remaining: quotas.rateLeft(grant.limits!, limit.limit) } }
  }

  /** `authorize` without a fiber, as `tryValidate`. */
  const tryAuthorize = (key: string, use: KeyUse, done: (authorization: AuthorizedUse | undefined) => void) =>
    tryUse(key, { ...use, details: true }, (used) => done(used && authorized(used.grant, used.credits)))

  const find = (key: string, address: string) =>
    Effect.callback<Lookup, Unavailable>((resume) =>
      lookUp(address, key, (found, source) => resume(Exit.map(found, (grant) => ({ grant, source })))),
    )

  const orInvalid = (found: KeyGrant | undefined) => {
    const grant = accept(found)
    if (grant === undefined) return Effect.fail(notValid)
    return grant.isOfHolder ? Effect.fail(holdersKey) : Effect.succeed(grant)
  }
  /** Returns the owner of a valid key. The error is the same for every invalid key. */
  const authenticate = (key: Redacted.Redacted<string>, address: string) =>
    mayBeCredential(Redacted.value(key))
      ? Effect.flatMap(find(Redacted.value(key), address), ({ grant }) => orInvalid(grant))
      : Effect.fail(notValid)

  /** `authenticate` by the SHA-256 of a key in hex, which a session has. */
  const authenticateHash = (hash: string) =>
    Effect.callback<KeyGrant | undefined, Unavailable>((resume) => {
      const cached = lookup.cached(hash)
      if (cached !== undefined) return resume(Effect.succeed(cached))
      lookup.lookUp(hash, resume)
    }).pipe(Effect.flatMap(orInvalid))

  /** Validates a use of a key that was found: address and permissions first, then the limits. */
  const useKey = Effect.fnUntraced(function* (grant: KeyGrant, use: KeyUse, source: ValidationSource) {
    const now = clock.currentTimeMillisUnsafe()
    const refused = forbidden(grant, use)
    if (refused !== undefined) {
      count("forbidden", source, grant.orgId)
      usage.count(grant, "forbidden", 0, now)
      return yield* refused
    }
    const { orgId } = grant
    const limits = limitsFor(grant, use)
    const taken = limits === null ? Effect.succeed(null) : quotas.take(orgId, limits, use.cost ?? defaultCost)
    const credits = yield* Effect.tapError(taken, ({ _tag }) =>
      Effect.sync(() => {
        const isLimited = _tag === "TooManyRequests" || _tag === "CostAboveLimit" || _tag === "CreditsExhausted"
        count(isLimited ? "limited" : _tag === "Unauthorized" ? "invalid" : "unavailable", source, orgId)
        if (isLimited) usage.count(grant, "limited", 0, now)
      }),
    )
    countValid(grant, use, source, now)
    return { grant, credits }
  })

  /**
   * Finds a key, and takes a use of it.
   *
   * @param address in whose turns slow hashes are computed, and whose failures `limit` counts: the caller's, or the
   *   client's that a caller with a credential names
   * @param limit limits failures by their address; `undefined` for a caller with a credential
   */
  const takeUse = Effect.fnUntraced(function* (
    key: Redacted.Redacted<string>,
    address: string,
    use: KeyUse,
    limit: ReturnType<typeof limitWrongCredentials> | undefined,
  ) {
    const counted = (outcome: ValidationOutcome, source: ValidationSource) => Effect.sync(() => count(outcome, source))
    // Also refuses, when the address has used up its failures.
    const takeFailure = limit === undefined ? Effect.void : limit.take(address)
    const { grant: found, source } = yield* find(Redacted.value(key), address).pipe(
      Effect.tapError(() => counted("unavailable", "database")),
      Effect.tapError((error) => (error === noRoom ? takeFailure : Effect.void)),
    )
    const grant = accept(found)
    if (grant !== undefined) return yield* useKey(grant, use, source)
    yield* Effect.tapError(takeFailure, () => counted("limited", source))
    count("invalid", source)
    return yield* notValid
  })

  /**
   * Validates a use of a key that is not the caller's credential. Fails with `IpNotAllowed` when the key may not be
   * used from the client's address; with `Forbidden` when the key lacks a permission that the use needs; with
   * `TooManyRequests` when the key has reached its rate limit, or is not valid and an anonymous caller has failed 600
   * times in a minute from its `address` (IPv6: from its /64 network); with `CostAboveLimit` when the use costs more
   * than the rate limit; with `CreditsExhausted` when it has too few credits.
   */
  const validate = Effect.fnUntraced(function* (key: Redacted.Redacted<string>, address: string, use: KeyUse = {}) {
    const { principal } = yield* CurrentPrincipal
    const isAnonymous = principal._tag === "Anonymous"
    // A gateway with a credential of its own says whose key it asks about.
    const client = isAnonymous ? address : (use.clientIp ?? address)
    const { credits, grant } = yield* takeUse(key, client, use, isAnonymous ? failures.validate : undefined)
    return answerOf(grant, use, credits)
  })

  /**
   * `validate` for a proxy that asks for the request of somebody else: the answer has what the upstream may know. The
   * failures of every `address` are limited, at each door by themselves: who asks sends no credential of its own.
   */
  const authorize = (key: Redacted.Redacted<string>, address: string, use: KeyUse, door: KeyDoor = "authorize") =>
    Effect.map(takeUse(key, address, { ...use, details: true }, failures[door]), ({ credits, grant }) =>
      authorized(grant, credits),
    )

  return {
    recognize,
    tryValidate,
    tryAuthorize,
    authenticate,
    authenticateHash,
    validate,
    authorize,
    /** Writes the uses since the last call. Uses that could not be written are written by the next call. */
    flushUsage: usage.flush,
    /** Returns the leased quotas that are idle or past their lifetime. */
    returnIdleQuotas: quotas.returnIdle,
    /** Returns all leased quotas, at shutdown. */
    returnQuotas: quotas.returnAll,
  }
})
