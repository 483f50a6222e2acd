/** Names are cut from text at these characters. */
const around = /[\s"'`,;|<>(){}[\]*=!?…“”‘’«»¿¡]+/u
const maxNameLength = 80

const trimmed = (text: string) => text.replace(/^[.:\\]+|[.:/\\-]+$/gu, "")

/**
 * Whether a text is certainly a name, and not a word: `TRUST_PROXY`, `--flag`, `/api/keys`, `7.7.4`, `a.b`, `a:b`, `E1234`.
 */
export const isCertainName = (text: string) =>
  /\p{L}_|_\p{L}/u.test(text) ||
  /^--?\p{L}/u.test(text) ||
  /^\/[\p{L}\p{N}{]/u.test(text) ||
  /^v?\d+(?:\.\d+)+/u.test(text) ||
  /^\p{L}[\p{L}\p{N}]*(?:[.:][\p{L}][\p{L}\p{N}]*)+$/u.test(text) ||
  /^\p{Lu}+-?\d{2,}$/u.test(text)

/** Whether a text can be a name: `useChat`, `HOST`, `close-all`, `guides/keys`. */
const isPossibleName = (text: string) =>
  /\p{Ll}\p{Lu}/u.test(text) || /^\p{Lu}{3,}s?$/u.test(text) || /^[\p{L}\p{N}]+(?:[-/][\p{L}\p{N}]+)+$/u.test(text)

/** How a name is compared: names of capitals only with their case ("HOST" is not "host"), others without. */
export const nameKey = (name: string) => (/^\p{Lu}+$/u.test(name) ? name : name.toLowerCase())

/** The names in a text, each once. */
export const namesIn = (text: string): ReadonlySet<string> => {
  const names = new Set<string>()
  for (const piece of text.split(around)) {
    if (piece.length < 2 || piece.length > maxNameLength) continue
    const name = trimmed(piece)
    if (name.length > 1 && (isCertainName(name) || isPossibleName(name))) names.add(name)
  }
  return names
}

/** The first cell of a table's row, or the beginning of a list's item. */
const lineStart = /^ {0,3}(?:\|([^|\n]*)\||[-*+] +(?:\*\*|`)([^*`\n]+)(?:\*\*|`))/gmu

/** The names that a text explains: a row of a table or an item of a list begins with them, and with nothing else. */
export const definedIn = (text: string): ReadonlySet<string> => {
  const defined = new Set<string>()
  for (const [, cell, item] of text.matchAll(lineStart)) {
    const start = (cell ?? item)!.trim()
    const pieces = start.split(around).filter((piece) => piece !== "")
    const names = namesIn(start)
    if (pieces.length <= 3 && names.size === pieces.length) for (const name of names) defined.add(nameKey(name))
  }
  return defined
}

/** The name that a heading consists of, also of a call: `useChat()`. */
export const wholeName = (heading: string): ReadonlyArray<string> => {
  const pieces = heading
    .replace(/\([^)]*\)$/, "")
    .split(around)
    .filter((piece) => piece !== "")
  return pieces.length === 1 ? [...namesIn(heading)].slice(0, 1) : []
}
