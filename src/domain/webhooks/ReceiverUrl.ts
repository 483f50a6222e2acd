import { Context, Effect } from "effect"
import { InvalidRequest } from "../Errors.ts"
import { addressFault, type AddressRules } from "../addresses.ts"

/** The maximum length of a URL, in characters. */
const maxUrlLength = 2048

export const portFault = "must have a port from 1 to 65,535, or none"

/**
 * Checks the text of a URL. Returns the broken rule as the end of a sentence (`must be …`), or `undefined` for a valid
 * URL. Does not check the host: `addressFault` checks a literal address, and a name is resolved and checked before each
 * request.
 *
 * @param options httpsOnly: refuse http, as in guarded mode
 */
export const urlFault = (url: string, options: { readonly httpsOnly: boolean }): string | undefined => {
  if (url.length > maxUrlLength) return "must be at most 2,048 characters"
  // The parser drops some of these and escapes others: the stored URL and the called one would differ.
  if (/[\s\p{Cc}]/u.test(url) || !url.isWellFormed()) return "must be a URL without white space or control characters"
  // The parser also accepts "http:example.com" and "https:\\example.com", which other parsers refuse.
  const authority = /^https?:\/\/([^/?#\\]+)/i.exec(url)?.[1]
  if (authority === undefined || !URL.canParse(url)) {
    return `must be an absolute ${options.httpsOnly ? "https" : "http or https"} URL`
  }
  // The text and not the parsed URL, which has no trace of the empty ones in "https://@example.com".
  if (authority.includes("@")) return "must have no user name or password in it"
  const { port, protocol } = new URL(url)
  if (port === "0") return portFault
  return options.httpsOnly && protocol !== "https:" ? "must be an https URL" : undefined
}

/**
 * A URL without what may be a secret, for the audit log: its query is left out, and so are parts of its path that look
 * like tokens.
 */
export const withoutTokens = (url: string) => {
  const { origin, pathname, search } = new URL(url)
  const isToken = (part: string) => part.length >= 16 || (part.length >= 6 && /\d/.test(part) && /[a-z]/i.test(part))
  const path = pathname.split("/").map((part) => (isToken(part) ? "…" : part))
  return `${origin}${path.join("/")}${search === "" ? "" : "?…"}`
}

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
