import { Context, Effect, Layer, Redacted } from "effect"
import { addressFault, type AddressRules } from "../addresses.ts"
import { Cipher } from "../Cipher.ts"
import { InvalidRequest } from "../Errors.ts"
import { urlFault } from "./WebhookUrl.ts"

/** The callback fields of a job or schedule as they are kept. */
export interface StoredCallback {
  readonly callbackUrl: string | null
  readonly callbackSecret: string | null
  readonly skipCallbacks: boolean
}

/** What is asked of urls that receive webhooks. */
export class ReceiverRules extends Context.Reference<AddressRules & { readonly httpsOnly: boolean }>(
  "gatehouse/domain/Callbacks/ReceiverRules",
  { defaultValue: () => ({ httpsOnly: true, allowPrivateNetworks: false }) },
) {}

/** Checks a url that is to receive webhooks; the sentence names the field. */
export const checkUrl = (
  field: string,
  url: string,
  rules: typeof ReceiverRules.Service,
): Effect.Effect<void, InvalidRequest> => {
  const fault = urlFault(url, rules) ?? addressFault(url, rules)
  return fault === undefined ? Effect.void : Effect.fail(new InvalidRequest({ error: `${field} ${fault}.` }))
}

/** Prepares callback fields for keeping. */
export class Callbacks extends Context.Service<
  Callbacks,
  {
    /** Checks the url, and encrypts the secret for its owner: the job's or the schedule's id. */
    readonly prepare: (
      input: {
        readonly callback_url?: string | null
        readonly callback_secret?: string | null
        readonly skip_callbacks?: boolean
      },
      owner: string,
    ) => Effect.Effect<StoredCallback, InvalidRequest>
  }
>()("gatehouse/domain/Callbacks") {
  static readonly layer = Layer.effect(
    Callbacks,
    Effect.gen(function* () {
      const cipher = yield* Cipher
      const rules = yield* ReceiverRules
      return Callbacks.of({
        prepare: Effect.fnUntraced(function* ({ callback_url = null, callback_secret = null, skip_callbacks }, owner) {
          if (callback_url !== null) yield* checkUrl("callback_url", callback_url, rules)
          const callbackSecret =
            callback_secret === null ? null : yield* cipher.encrypt(Redacted.make(callback_secret), owner)
          return { callbackUrl: callback_url, callbackSecret, skipCallbacks: skip_callbacks ?? false }
        }),
      })
    }),
  )
}
