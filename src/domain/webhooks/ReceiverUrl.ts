import { Context, Effect } from "effect"
import { InvalidRequest } from "../Errors.ts"
import { addressFault, type AddressRules } from "../refusedAddresses.ts"

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

const shortWordOrNumber = /^(?:[a-z]{1,3}|[A-Z]{1,3}|v?\d{1,4})$/
const wordInOneCase = /^(?:[A-Z]?[a-z]{1,15}|[A-Z]{1,16})$/
/** Letters by chance mostly have no vowel, or many consonants in a row. */
const soundsLikeWord = /^(?!.*[^aeiouy]{5}).*[aeiouy]/i
const maxDigits = 8
const isReadable = (piece: string) =>
  shortWordOrNumber.test(piece) || (wordInOneCase.test(piece) && soundsLikeWord.test(piece))

/** The characters of a token that are shown: its first ones, which tell it from others. A short token shows none. */
const kept = 4

/** A part of a path; of one that may be a token, the first characters. */
const shownPart = (part: string) => {
  const isShort = part.length < 64 && part.replace(/\D/g, "").length <= maxDigits
  if (part.length < 6 || (isShort && part.split(/[-._~]/).every(isReadable))) return part
  return `${part.length < 2 * kept ? "" : part.slice(0, kept)}…`
}

/**
 * A URL without what may be a secret, for the audit log: its query is left out, and parts of its path that are no words
 * are cut.
 */
export const withoutTokens = (url: string) => {
  const { origin, pathname, search } = new URL(url)
  const path = pathname.split("/").map(shownPart)
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
