/** How many values the JSON of a request may have. */
export const maxValues = 100_000

const quote = 0x22
const backslash = 0x5c
const comma = 0x2c
const openBracket = 0x5b
const closeBracket = 0x5d
const openBrace = 0x7b
const closeBrace = 0x7d

/** The index of the closing quote of the string that begins at `start`. */
const endOfString = (bytes: Uint8Array, start: number): number => {
  let at = start + 1
  while (at < bytes.length && bytes[at] !== quote) at += bytes[at] === backslash ? 2 : 1
  return at
}

/**
 * Whether JSON has more than `maxValues` values: objects, arrays and their members, without the names of fields. One pass
 * over the bytes; parsing a body of many small values takes a hundred times as long. The result for bytes that are not
 * JSON is undefined.
 */
export const hasTooManyValues = (bytes: Uint8Array): boolean => {
  // Each value takes a byte and a separator.
  if (bytes.length < 2 * maxValues) return false
  let values = 1
  // Whether the last token opened an object or array: unless it closes now, a first member follows.
  let isOpen = false
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at]!
    if (byte <= 0x20) continue
    const isEnd = byte === closeBracket || byte === closeBrace
    if (byte === comma || (isOpen && !isEnd)) values++
    if (values > maxValues) return true
    isOpen = byte === openBracket || byte === openBrace
    if (byte === quote) at = endOfString(bytes, at)
  }
  return false
}
