import { Context, Effect } from "effect"
import { addressFault, type AddressRules } from "../addresses.ts"
import { InvalidRequest } from "../Errors.ts"
import { urlFault } from "./WebhookUrl.ts"

/** The rules for URLs that receive webhooks. */
export class ReceiverRules extends Context.Reference<AddressRules & { readonly httpsOnly: boolean }>(
  "gatehouse/domain/ReceiverRules",
  { defaultValue: () => ({ httpsOnly: true, allowPrivateNetworks: false }) },
) {}

/** Checks the URL of an endpoint or callback. Fails with a sentence that names the field. */
export const checkUrl = (
  field: string,
  url: string,
  rules: typeof ReceiverRules.Service,
): Effect.Effect<void, InvalidRequest> => {
  const fault = urlFault(url, rules) ?? addressFault(url, rules)
  return fault === undefined ? Effect.void : Effect.fail(new InvalidRequest({ error: `${field} ${fault}.` }))
}
