import { Context, type Effect, type Exit } from "effect"
import type { KeyGrant } from "./ApiKeyRepository.ts"
import type { Unavailable } from "../Errors.ts"

/** Finds keys by their hash. What is in memory is as good as the database: no deletion is missed. */
export class KeyLookup extends Context.Service<
  KeyLookup,
  {
    /** The key from memory. */
    readonly held: (hash: string) => KeyGrant | undefined
    /** The key from the database; `done` is called later. */
    readonly lookUp: (hash: string, done: (found: Exit.Exit<KeyGrant | undefined, Unavailable>) => void) => void
    /** Forgets a key that this replica changed, once the change is certain. */
    readonly forget: (keyId: string) => Effect.Effect<void>
  }
>()("gatehouse/domain/KeyLookup") {}

/** What a validation came to: `limited` was asked too often, `unavailable` could not be answered. */
export type ValidationOutcome = "valid" | "invalid" | "limited" | "unavailable"

/** What answered a validation: this process by itself, or the database. */
export type ValidationSource = "memory" | "database"

/** Is told of every validation. */
export const ValidationCounter = Context.Reference<(outcome: ValidationOutcome, source: ValidationSource) => void>(
  "gatehouse/domain/ValidationCounter",
  { defaultValue: () => () => {} },
)
