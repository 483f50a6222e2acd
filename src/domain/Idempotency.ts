import { Context, Data, DateTime, Effect, Layer, Redacted, Schema } from "effect"
import { Digest } from "effect/crypto"
import { Cipher } from "./Cipher.ts"
import type { Unavailable } from "./Errors.ts"
import { Conflict, IdempotencyKeyReused } from "./Errors.ts"
import { adaptiveLimit } from "./orgs/Turns.ts"

/** What an idempotency key is one's own by: who calls what. */
export interface KeyedOperation {
  /** The credential that calls. */
  readonly caller: string
  readonly operation: string
  readonly key: string
}

/** What came of a keyed operation. */
export type KeyedOutcome<A> = Data.TaggedEnum<{
  /** It was run, and its record kept. */
  Made: { readonly answer: A }
  /** It was run before; this record was kept of it. */
  Found: { readonly record: string }
  /** It is being run just now. */
  UnderWay: {}
}>
interface KeyedOutcomeDefinition extends Data.TaggedEnum.WithGenerics<1> {
  readonly taggedEnum: KeyedOutcome<this["A"]>
}
export const KeyedOutcome = Data.taggedEnum<KeyedOutcomeDefinition>()

/** Whose a kept answer is: what its encryption is bound to. */
export const answerOwner = ({ caller, key, operation }: KeyedOperation) => `idempotency ${caller} ${operation} ${key}`

/** Where it is kept what came of keyed operations. */
export class IdempotencyRepository extends Context.Service<
  IdempotencyRepository,
  {
    /**
     * Runs an operation unless a record of it is kept that has not expired: the operation and the keeping of its record
     * are one, both happen or neither. Of several at once, on whichever replica, one runs.
     */
    readonly once: <A, E, R>(
      keyed: KeyedOperation,
      times: { readonly now: DateTime.Utc; readonly expiresAt: DateTime.Utc },
      operation: Effect.Effect<{ readonly answer: A; readonly record: string }, E, R>,
    ) => Effect.Effect<KeyedOutcome<A>, E | Unavailable, R>
    /** Deletes up to `limit` records that have expired; gives how many. */
    readonly forgetExpired: (now: DateTime.Utc, limit: number) => Effect.Effect<number, Unavailable>
  }
>()("gatehouse/domain/Idempotency/IdempotencyRepository") {}

/** For how long the answer of a keyed operation is kept. */
const keptHours = 24
/** How many expired records one statement deletes. */
const batchSize = 1_000

/** An answer as it went out, and of what request it was the answer. */
const Kept = Schema.fromJsonString(
  Schema.Struct({ fingerprint: Schema.String, status: Schema.Int, body: Schema.String }),
)
const encode = Schema.encodeEffect(Kept)
const decode = Schema.decodeEffect(Kept)

/** An answer as it goes out. */
export interface Answer {
  readonly status: number
  readonly body: string
}

const underWay = new Conflict({ error: "A request with this Idempotency-Key is under way; try again." })
const reused = new IdempotencyKeyReused({ error: "The Idempotency-Key was used for another request." })

/** Operations that are run once for each key that their caller gives them. */
export class Idempotency extends Context.Service<
  Idempotency,
  {
    /**
     * Runs an operation, or gives the answer that it had within the last 24 hours. An operation that fails leaves
     * nothing behind, and may be tried again under the same key.
     *
     * @param request what must be the same again: method, path and body
     */
    readonly once: <E, R>(
      keyed: KeyedOperation,
      request: string,
      operation: Effect.Effect<Answer, E, R>,
    ) => Effect.Effect<Answer & { readonly replayed: boolean }, E | Conflict | IdempotencyKeyReused | Unavailable, R>
    /** Deletes the records that have expired. */
    readonly forgetExpired: Effect.Effect<void, Unavailable>
  }
>()("gatehouse/domain/Idempotency") {
  static readonly layer = Layer.effect(
    Idempotency,
    Effect.gen(function* () {
      const repository = yield* IdempotencyRepository
      const cipher = yield* Cipher
      const digest = yield* Digest.Digest

      const once = Effect.fn("Idempotency.once")(function* <E, R>(
        keyed: KeyedOperation,
        request: string,
        operation: Effect.Effect<Answer, E, R>,
      ) {
        const now = yield* DateTime.now
        const fingerprint = yield* digest.digestHex(Digest.sha256, new TextEncoder().encode(request))
        // Encrypted as a whole: the answer can hold a key, and a hash of the request would let its secrets be guessed.
        const owner = answerOwner(keyed)
        const outcome = yield* repository.once(
          keyed,
          { now, expiresAt: DateTime.add(now, { hours: keptHours }) },
          Effect.gen(function* () {
            const answer = yield* operation
            const kept = yield* Effect.orDie(encode({ fingerprint, ...answer }))
            return { answer, record: yield* cipher.encrypt(Redacted.make(kept), owner) }
          }),
        )
        if (outcome._tag === "Made") return { ...outcome.answer, replayed: false }
        if (outcome._tag === "UnderWay") return yield* underWay
        const kept = yield* Effect.orDie(decode(Redacted.value(yield* cipher.decrypt(outcome.record, owner))))
        if (kept.fingerprint !== fingerprint) return yield* reused
        return { status: kept.status, body: kept.body, replayed: true }
      })

      const limited = adaptiveLimit(batchSize)
      const forgetExpired = DateTime.now.pipe(
        Effect.flatMap((now) =>
          limited((limit) => Effect.map(repository.forgetExpired(now, limit), (deleted) => deleted === limit)),
        ),
        Effect.repeat({ while: (mayBeMore) => mayBeMore }),
        Effect.asVoid,
      )

      return Idempotency.of({ once, forgetExpired })
    }),
  )
}
