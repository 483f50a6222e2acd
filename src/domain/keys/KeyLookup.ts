import { Context, type Exit } from "effect"
import { Unavailable } from "../Errors.ts"
import type { KeyGrant } from "./ApiKeyRepository.ts"

/** The error of a key whose slow hash could not be computed in time. It counts as a failure of the caller. */
export const noRoom = new Unavailable({ error: "Too many keys with slow hashes are checked; try again." })

/**
 * Finds keys by their hash. Memory answers while the last proof that notifications arrive is recent
 * (`maxProofAgeMillis`); a key that was revoked since that proof may still pass.
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
 * The outcome of a validation. `forbidden`: a permission is missing. `limited`: too many requests, or no credits.
 * `unavailable`: the database did not answer.
 */
export type ValidationOutcome = "valid" | "invalid" | "forbidden" | "limited" | "unavailable"

/** Where the answer of a validation comes from: this process alone, or the database. */
export type ValidationSource = "memory" | "database"

/** Counts every validation. A key that is not valid has no org. */
export const ValidationCounter = Context.Reference<
  (outcome: ValidationOutcome, source: ValidationSource, orgId?: string) => void
>("gatehouse/domain/ValidationCounter", { defaultValue: () => () => {} })

/** Returns the SHA-256 of a key in lower-case hex. The service stores and finds keys by it. */
export class KeyHash extends Context.Service<KeyHash, (key: string) => string>()("gatehouse/domain/KeyHash") {}
