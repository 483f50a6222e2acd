import type { Effect, Redacted } from "effect"
import { Context } from "effect"

/** Keeps secrets unreadable at rest. */
export class Cipher extends Context.Service<
  Cipher,
  {
    /** Encrypts a secret; what it belongs to (an id) is bound to it, so that it opens nowhere else. */
    readonly encrypt: (secret: Redacted.Redacted<string>, owner: string) => Effect.Effect<string>
    /** The secret of `encrypt` for the same owner. Anything else is a defect: the row was tampered with, or the key is lost. */
    readonly decrypt: (stored: string, owner: string) => Effect.Effect<Redacted.Redacted<string>>
  }
>()("gatehouse/domain/Cipher") {}
