import { Context, Effect } from "effect"
import { addressFault, type AddressRules } from "../addresses.ts"
import { InvalidRequest } from "../Errors.ts"
import { urlFault } from "./WebhookUrl.ts"

/** The rules for URLs that receive webhooks. */
export class ReceiverUrlRules extends Context.Reference<AddressRules & { readonly httpsOnly: boolean }>(
  "gatehouse/domain/ReceiverUrlRules",
  { defaultValue: () => ({ httpsOnly: true, allowPrivateNetworks: false }) },
) {}

/** Checks the URL of an endpoint or callback. Fails with a sentence that names the field. */
export const checkReceiverUrl = (
  field: string,
  url: string,
  rules: typeof ReceiverUrlRules.Service,
): Effect.Effect<void, InvalidRequest> => {
  const fault = urlFault(url, rules) ?? addressFault(url, rules)
  return fault === undefined ? Effect.void : Effect.fail(new InvalidRequest({ error: `${field} ${fault}.` }))
}
