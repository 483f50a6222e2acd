/** How many values the JSON of a request may have. */
export const maxValues = 100_000

const quote = 0x22
const backslash = 0x5c
const comma = 0x2c
const openBracket = 0x5b
const closeBracket = 0x5d
const openBrace = 0x7b
const closeBrace = 0x7d

/** The place of a string's closing quote. */
const endOfString = (bytes: Uint8Array, start: number): number => {
  let at = start + 1
  while (at < bytes.length && bytes[at] !== quote) at += bytes[at] === backslash ? 2 : 1
  return at
}

/**
 * Whether JSON has more values (objects, arrays and what is in them; names of fields do not count) than `maxValues`,
 * in one pass over its bytes: a parser spends a hundred times as long on a body that is nothing but small values. Of
 * bytes that are no JSON it says either.
 */
export const hasTooManyValues = (bytes: Uint8Array): boolean => {
  // Each value takes a byte, and another to part it from the next.
  if (bytes.length < 2 * maxValues) return false
  let values = 1
  // Whether the last byte but spaces has opened an object or an array: anything but its end is a value in it.
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
