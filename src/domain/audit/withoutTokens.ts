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
