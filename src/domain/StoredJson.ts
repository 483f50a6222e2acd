import { parseJson } from "./exactJson.ts"

/**
 * A JSON value as its stored text. Code that only copies the value does not parse and encode it, which can take seconds
 * of CPU and a hundred times the memory for a text of a few MiB.
 */
export class StoredJson {
  readonly text: string

  constructor(text: string) {
    this.text = text
  }

  toJSON(): unknown {
    return parseJson(this.text)
  }
}

/** The stored text of a JSON value; `null` for `null` and `undefined`. */
export const toJsonText = (value: unknown) => (value === null || value === undefined ? null : JSON.stringify(value))

/** Whether a field of an object contains a stored value, directly or in an array of objects. */
const holdsStored = (value: object): boolean =>
  Object.values(value).some(
    (field: unknown) =>
      field instanceof StoredJson || (Array.isArray(field) && field.some((row: object) => holdsStored(row))),
  )

/**
 * Returns the same text as `JSON.stringify`, but copies stored values without parsing them. Finds them in the fields of
 * an object, and of the objects in its arrays.
 */
export const stringify = (value: object): string => {
  if (!holdsStored(value)) return JSON.stringify(value)
  const fields = Object.entries(value).filter(([, field]) => field !== undefined)
  return `{${fields.map(([name, field]) => `${JSON.stringify(name)}:${stringifyField(field)}`).join(",")}}`
}

const stringifyField = (field: unknown) => {
  if (field instanceof StoredJson) return field.text
  return Array.isArray(field) ? `[${field.map(stringify).join(",")}]` : JSON.stringify(field)
}
