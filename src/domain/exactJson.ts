// JSON whose numbers keep their text: JavaScript would print 9007199254740993, 1.0 or 1e-400 as other numbers. Such a
// number is a raw number, `JSON.rawJSON` of its text, which `JSON.stringify` writes as it is (ADR 54).

/** A number as its text. */
export interface RawNumber {
  readonly rawJSON: string
}

const { isRawJSON, rawJSON } = JSON as unknown as {
  readonly isRawJSON: (value: unknown) => value is RawNumber
  readonly rawJSON: (text: string) => RawNumber
}
export { isRawJSON as isRawNumber }

const quote = 0x22
const comma = 0x2c
const minus = 0x2d
const zero = 0x30
const nine = 0x39
const colon = 0x3a
const openBracket = 0x5b
const backslash = 0x5c
const closeBracket = 0x5d
const openBrace = 0x7b
const closeBrace = 0x7d

/** The index of the closing quote of the string that begins at `start`; the length of the text if there is none. */
const endOfString = (text: string, start: number): number => {
  for (let end = text.indexOf('"', start + 1); end !== -1; end = text.indexOf('"', end + 1)) {
    let escapes = 0
    while (text.charCodeAt(end - escapes - 1) === backslash) escapes++
    if (escapes % 2 === 0) return end
  }
  return text.length
}

/** Digits that a number has exactly in JavaScript. */
const maxPlainLength = 15

/** Whether JavaScript prints another number than the text. */
const isChanged = (text: string) => String(Number(text)) !== text

/** What the text of JSON has; of text that is not JSON, something. */
interface JsonScan {
  /** Objects, arrays and their members, without the names of fields. */
  readonly values: number
  readonly names: number
  readonly hasRawNumbers: boolean
}

/** Reads the text of JSON once. Stops after `maxValues`. */
export const scanJson = (text: string, maxValues = Infinity): JsonScan => {
  let [values, names, hasRawNumbers] = [1, 0, false]
  // Whether the last token opened an object or array: unless it closes now, a first member follows.
  let isOpen = false
  for (let at = 0; at < text.length && values <= maxValues; at++) {
    const code = text.charCodeAt(at)
    if (code <= 0x20) continue
    const isEnd = code === closeBracket || code === closeBrace
    if (code === comma || (isOpen && !isEnd)) values++
    isOpen = code === openBracket || code === openBrace
    if (code === quote) at = endOfString(text, at)
    else if (code === colon) names++
    else if (code === minus || (code >= zero && code <= nine)) {
      const start = at
      let isWhole = code !== minus
      for (let next; (next = text.charCodeAt(at + 1)), isOfNumber(next); at++) isWhole &&= next >= zero && next <= nine
      const isPlain = isWhole && at - start < maxPlainLength
      hasRawNumbers ||= !isPlain && isChanged(text.slice(start, at + 1))
    }
  }
  return { values, names, hasRawNumbers }
}

/** Digits, signs, the point, e and E. */
const isOfNumber = (code: number) =>
  (code >= zero && code <= nine) || code === 0x2b || code === minus || code === 0x2e || code === 0x45 || code === 0x65

/** A reviver of `JSON.parse` that makes numbers that JavaScript would change raw numbers; an old browser cannot. */
export const keepNumbers = (_name: string, value: unknown, context?: { readonly source?: string }): unknown =>
  typeof value === "number" &&
  Number.isFinite(value) &&
  context?.source !== undefined &&
  String(value) !== context.source
    ? rawJSON(context.source)
    : value

/** Parses JSON; numbers that JavaScript would change are raw numbers. Throws for what is not JSON. */
export const parseJson = (text: string, { hasRawNumbers }: Pick<JsonScan, "hasRawNumbers"> = scanJson(text)): unknown =>
  hasRawNumbers ? JSON.parse(text, keepNumbers) : JSON.parse(text)

/** The number of members of all objects in a value. */
export const countNames = (value: unknown): number => {
  let names = 0
  const open = [value]
  while (open.length > 0) {
    const next = open.pop()
    if (typeof next !== "object" || next === null || isRawJSON(next)) continue
    const inner = Array.isArray(next) ? (next as ReadonlyArray<unknown>) : Object.values(next)
    if (!Array.isArray(next)) names += inner.length
    for (const one of inner) if (typeof one === "object" && one !== null) open.push(one)
  }
  return names
}

/** The first name that an object in JSON has twice. */
export const repeatedName = (text: string): string | undefined => {
  /** The names so far in each open object; `null` for an array. */
  const open: Array<Set<string> | null> = []
  let isName = false
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if (code === quote) {
      const end = endOfString(text, at)
      const names = isName ? open.at(-1) : undefined
      if (names) {
        const name = JSON.parse(text.slice(at, end + 1)) as string
        if (names.has(name)) return name
        names.add(name)
      }
      isName = false
      at = end
    } else if (code === comma) isName = true
    else if (code === openBrace || code === openBracket) {
      isName = code === openBrace
      open.push(isName ? new Set() : null)
    } else if (code === closeBrace || code === closeBracket) open.pop()
  }
  return undefined
}

/** Whether an object in parsed JSON has a member twice. */
export const hasRepeatedName = (text: string, value: unknown): boolean =>
  // Without a comma no object has two members.
  text.includes(",") && scanJson(text).names !== countNames(value)

/** Whether parsed JSON has at most so many levels, and no number that is too large for JavaScript. */
export const isBoundedJson = (value: unknown, levels: number): boolean => {
  if (typeof value === "number") return Number.isFinite(value)
  if (typeof value !== "object" || value === null || isRawJSON(value)) return true
  if (levels === 0) return false
  if (Array.isArray(value)) return value.every((item) => isBoundedJson(item, levels - 1))
  for (const name in value) if (!isBoundedJson((value as Record<string, unknown>)[name], levels - 1)) return false
  return true
}

/** The text of a number, the same for equal numbers: sign, digits without zeros at both ends, and exponent. */
export const numberText = (value: number | RawNumber): string => {
  if (typeof value === "number") return String(value === 0 ? 0 : value)
  const { digits, exponent, sign } = partsOf(value)
  if (digits === "") return "0"
  const plain = Number(value.rawJSON)
  // A number that JavaScript has exactly is written as it is there, whatever its text was.
  const { digits: plainDigits, exponent: plainExponent } = partsOf(plain)
  return digits === plainDigits && exponent === plainExponent ? String(plain) : `${sign}0.${digits}e${exponent}`
}

/** A number as 0.digits × 10 ^ exponent. */
const partsOf = (value: number | RawNumber) => {
  const text = typeof value === "number" ? String(value) : value.rawJSON
  const [, sign, whole, decimals = "", power = "0"] = /^(-?)(\d+)(?:\.(\d+))?(?:e([+-]?\d+))?$/i.exec(text)!
  const all = whole! + decimals
  const digits = all.replace(/^0+/, "")
  let end = digits.length
  while (digits[end - 1] === "0") end--
  const exponent = Number(power) + whole!.length - (all.length - digits.length)
  return { sign: sign!, digits: digits.slice(0, end), exponent: end === 0 ? 0 : exponent }
}

/** Whether a number has no decimals, whatever its text. */
export const isWholeNumber = (value: number | RawNumber): boolean => {
  if (typeof value === "number") return Number.isInteger(value)
  const { digits, exponent } = partsOf(value)
  return exponent >= digits.length
}

/** Compares two numbers exactly: negative, 0 or positive. */
export const compareNumbers = (one: number | RawNumber, other: number | RawNumber): number => {
  if (typeof one === "number" && typeof other === "number") return one - other
  const [a, b] = [partsOf(one), partsOf(other)]
  const [signOfA, signOfB] = [a, b].map(({ digits, sign }) => (digits === "" ? 0 : sign === "-" ? -1 : 1)) as [
    number,
    number,
  ]
  if (signOfA !== signOfB || signOfA === 0) return signOfA - signOfB
  const larger = a.exponent - b.exponent || (a.digits === b.digits ? 0 : a.digits > b.digits ? 1 : -1)
  return signOfA * larger
}
