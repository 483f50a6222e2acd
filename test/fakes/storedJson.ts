import { StoredJson, toJsonText } from "#src/domain/StoredJson.ts"

/** A JSON value as `StoredJson`; `null` for `null` and `undefined`. */
export const toStoredJson = (value: unknown) => {
  const text = toJsonText(value)
  return text === null ? null : new StoredJson(text)
}
