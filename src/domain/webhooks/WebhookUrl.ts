/** The longest url that is taken, in characters (contract 7). */
export const maxUrlLength = 2048

/**
 * What is wrong with a url that a caller gave, to be put behind the field's name: `must be …`; `undefined` when nothing
 * is. Looks at the text alone, not at where its host leads: `addressFault` does for a literal address, and a name is
 * looked up and checked when it is called (contract 8).
 *
 * @param options httpsOnly: http is refused too, as in guarded mode
 */
export const urlFault = (url: string, options: { readonly httpsOnly: boolean }): string | undefined => {
  if (url.length > maxUrlLength) return "must be at most 2,048 characters"
  // The parser would drop some of these and escape others, and what is stored would not be what is called.
  if (/[\s\p{Cc}]/u.test(url) || !url.isWellFormed()) return "must be a URL without white space or control characters"
  // The parser also takes "http:example.com" and "https:\\example.com", which other readers of the url do not.
  const authority = /^https?:\/\/([^/?#\\]+)/i.exec(url)?.[1]
  if (authority === undefined || !URL.canParse(url)) {
    return `must be an absolute ${options.httpsOnly ? "https" : "http or https"} URL`
  }
  // Also the empty ones of "https://@example.com", of which the parser leaves no trace.
  if (authority.includes("@")) return "must have no user name or password in it"
  return options.httpsOnly && new URL(url).protocol !== "https:" ? "must be an https URL" : undefined
}
