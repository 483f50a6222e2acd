import type { Effect, Redacted } from "effect"
import { Context } from "effect"

/** Encrypts the secrets that the service stores. */
export class Cipher extends Context.Service<
  Cipher,
  {
    /** The ids of the keys, which reveal nothing about them. The first one encrypts. */
    readonly keyIds: readonly [string, ...ReadonlyArray<string>]
    /** Encrypts a secret for its owner, an id. Only the same owner decrypts it. */
    readonly encrypt: (secret: Redacted.Redacted<string>, owner: string) => Effect.Effect<string>
    /** Decrypts a secret of the same owner. Failure is a defect: the row was changed, or the encryption key is lost. */
    readonly decrypt: (stored: string, owner: string) => Effect.Effect<Redacted.Redacted<string>>
  }
>()("gatehouse/domain/Cipher") {}
