// The packages share no code: src/sdk/numberTexts.ts and packages/client/src/numberTexts.ts are the same file.

const { rawJSON } = JSON as unknown as { readonly rawJSON?: (text: string) => unknown }

/** Text with a number that JavaScript may print differently: `-0`, decimals, an exponent, or more than 15 digits. */
const unusual = /(?:^|[[:,])\s*(?:-0|-?\d+[.eE][\d.eE+-]*|-?\d{16,})\s*(?:[,\]}]|$)/

/** The numbers of an object or a list that JavaScript prints differently: their texts, by their names. */
const texts = new WeakMap<object, Map<string, string>>()

/** What JSON.stringify writes for such an object: numbers that have not changed since have their texts. */
function toJson(this: object) {
  const copy = (Array.isArray(this) ? [...(this as ReadonlyArray<unknown>)] : { ...this }) as Record<string, unknown>
  for (const [name, text] of texts.get(this) ?? []) {
    if (Object.is(copy[name], Number(text))) copy[name] = rawJSON!(text)
  }
  return copy
}

function keepText(this: object, name: string, value: unknown, context?: { readonly source?: string }) {
  const text = context?.source
  if (typeof value === "number" && text !== undefined && String(value) !== text) {
    const known = texts.get(this)
    if (known === undefined) {
      texts.set(this, new Map([[name, text]]))
      if (!Object.hasOwn(this, "toJSON")) {
        Object.defineProperty(this, "toJSON", { value: toJson, configurable: true, writable: true })
      }
    } else known.set(name, text)
  }
  return value
}

/**
 * Parses JSON. Numbers are JavaScript's; `JSON.stringify` of an object or a list in it writes them as they came, where
 * the runtime can (Node 22). A copy of the object is not known any more.
 */
export const parseJson = (text: string): unknown =>
  rawJSON !== undefined && unusual.test(text) ? JSON.parse(text, keepText) : JSON.parse(text)
