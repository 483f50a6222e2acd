import { Effect, Redacted } from "effect"
import type { StoredSecret } from "./DeliveryQueue.ts"
import type { Sign, Signer } from "./Signature.ts"

/** What the requests to a receiver are made with, encrypted. */
export interface StoredSigning {
  readonly secrets: ReadonlyArray<StoredSecret>
  readonly signingKeys: ReadonlyArray<StoredSecret>
  readonly headers: StoredSecret | null
}

/** Decrypts the secrets, keys and extra headers of a receiver. Returns what makes the headers of an attempt. */
export const prepareSign = Effect.fnUntraced(function* <E>(
  signer: Signer["Service"],
  decrypt: (stored: ReadonlyArray<StoredSecret>) => Effect.Effect<ReadonlyArray<Redacted.Redacted<string>>, E>,
  { headers, secrets, signingKeys }: StoredSigning,
) {
  const sign = yield* signer.prepare(yield* decrypt(secrets), yield* decrypt(signingKeys))
  if (headers === null) return sign
  const [text] = yield* decrypt([headers])
  const extra = JSON.parse(Redacted.value(text!)) as Readonly<Record<string, string>>
  // The service's own headers last: an extra header never replaces one of them.
  const signWithExtra: Sign = (attempt) => ({ ...extra, ...sign(attempt) })
  return signWithExtra
})
