import { Context, Data, DateTime, Effect, Layer, Redacted, Schema } from "effect"
import { Digest } from "effect/crypto"
import { Cipher } from "./Cipher.ts"
import { Conflict, IdempotencyKeyReused, type Unavailable } from "./Errors.ts"
import { adaptiveLimit } from "./roundRobin.ts"

/** The scope of an idempotency key: each caller has its own keys for each operation. */
export interface KeyedOperation {
  /** The caller's org; empty for a caller that has none. */
  readonly orgId: string
  /** The id of the caller's credential. */
  readonly caller: string
  readonly operation: string
  readonly key: string
}

/** The outcome of an operation with an idempotency key. */
export type KeyedOutcome<A> = Data.TaggedEnum<{
  /** The operation ran, and its record is stored. */
  Ran: { readonly response: A }
  /** The operation ran before; this is its record. */
  Found: { readonly record: string }
  /** The operation is running in another request. */
  InFlight: {}
}>
interface KeyedOutcomeDefinition extends Data.TaggedEnum.WithGenerics<1> {
  readonly taggedEnum: KeyedOutcome<this["A"]>
}
export const KeyedOutcome = Data.taggedEnum<KeyedOutcomeDefinition>()

/** The owner that a response is encrypted for. */
export const responseOwner = ({ caller, key, operation }: Omit<KeyedOperation, "orgId">) =>
  `idempotency ${caller} ${operation} ${key}`

/** The records of operations with an idempotency key. */
export class IdempotencyRepository extends Context.Service<
  IdempotencyRepository,
  {
    /**
     * Runs an operation unless it has an unexpired record. The operation and the write of its record are one
     * transaction. Of several requests at the same time, in any replica, only one runs.
     */
    readonly once: <A, E, R>(
      keyed: KeyedOperation,
      times: { readonly now: DateTime.Utc; readonly expiresAt: DateTime.Utc },
      operation: Effect.Effect<{ readonly response: A; readonly record: string }, E, R>,
    ) => Effect.Effect<KeyedOutcome<A>, E | Unavailable, R>
    /** Deletes up to `limit` expired records. Returns their number. */
    readonly deleteExpired: (now: DateTime.Utc, limit: number) => Effect.Effect<number, Unavailable>
  }
>()("gatehouse/domain/Idempotency/IdempotencyRepository") {}

/** How long a response is stored. */
const recordHours = 24
/** Expired records that one statement deletes. */
const maxDeleteBatch = 1_000

/** A stored response, with the digest of its request. */
const ResponseRecord = Schema.fromJsonString(
  Schema.Struct({ fingerprint: Schema.String, status: Schema.Int, body: Schema.String }),
)
const encode = Schema.encodeEffect(ResponseRecord)
const decode = Schema.decodeEffect(ResponseRecord)

/** The HTTP status and body of a response. */
export interface StoredResponse {
  readonly status: number
  readonly body: string
}

const inFlight = new Conflict({ error: "A request with this Idempotency-Key is in flight; try again." })
const reused = new IdempotencyKeyReused({ error: "The Idempotency-Key was used for another request: use a new key." })

/** Runs operations once for each idempotency key. */
export class Idempotency extends Context.Service<Idempotency>()("gatehouse/domain/Idempotency", {
  make: Effect.gen(function* () {
    const repository = yield* IdempotencyRepository
    const cipher = yield* Cipher
    const digest = yield* Digest.Digest

    const limited = adaptiveLimit(maxDeleteBatch)

    return {
      /**
       * Runs an operation, or returns its response of the last 24 hours. An operation that fails leaves no record, so
       * the same key can run it again.
       *
       * @param request the method, path and body; another request with the same key fails with `IdempotencyKeyReused`
       */
      once: Effect.fn("Idempotency.once")(function* <E, R>(
        keyed: KeyedOperation,
        request: string,
        operation: Effect.Effect<StoredResponse, E, R>,
      ) {
        const now = yield* DateTime.now
        const fingerprint = yield* digest.digestHex(Digest.sha256, new TextEncoder().encode(request))
        // The whole record is encrypted: the response can contain a key, and the digest would help to guess secrets.
        const owner = responseOwner(keyed)
        const outcome = yield* repository.once(
          keyed,
          { now, expiresAt: DateTime.add(now, { hours: recordHours }) },
          Effect.gen(function* () {
            const response = yield* operation
            const record = yield* Effect.orDie(encode({ fingerprint, ...response }))
            return { response, record: yield* cipher.encrypt(Redacted.make(record), owner) }
          }),
        )
        if (outcome._tag === "Ran") return { ...outcome.response, replayed: false }
        if (outcome._tag === "InFlight") return yield* inFlight
        const record = yield* Effect.orDie(decode(Redacted.value(yield* cipher.decrypt(outcome.record, owner))))
        if (record.fingerprint !== fingerprint) return yield* reused
        return { status: record.status, body: record.body, replayed: true }
      }),

      /** Deletes the expired records. */
      deleteExpired: DateTime.now.pipe(
        Effect.flatMap((now) =>
          limited((limit) => Effect.map(repository.deleteExpired(now, limit), (deleted) => deleted === limit)),
        ),
        Effect.repeat({ while: (mayBeMore) => mayBeMore }),
        Effect.asVoid,
      ),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}

/** `Idempotency` whose records are beside the rows of the principal's org. */
export class TenantIdempotency extends Context.Service<TenantIdempotency, Idempotency["Service"]>()(
  "gatehouse/domain/TenantIdempotency",
) {}
