/**
 * A JSON value as the text in which it is stored. What only passes it on need not parse it and encode it again, which takes
 * seconds of CPU and a hundred times the memory for some texts of a few MiB.
 */
export class StoredJson {
  readonly text: string

  constructor(text: string) {
    this.text = text
  }

  toJSON(): unknown {
    return JSON.parse(this.text)
  }
}

/** The text in which a JSON value is stored; null for null and for a value that is absent. */
export const toJsonText = (value: unknown) => (value === null || value === undefined ? null : JSON.stringify(value))

/** A JSON value as a repository returns it. */
export const toStoredJson = (value: unknown) => {
  const text = toJsonText(value)
  return text === null ? null : new StoredJson(text)
}

/** Whether a stored value is in the fields of an object, or of those of an array. */
const holdsStored = (value: object): boolean =>
  Object.values(value).some(
    (field: unknown) =>
      field instanceof StoredJson || (Array.isArray(field) && field.some((row: object) => holdsStored(row))),
  )

/** JSON as `JSON.stringify` writes it, with stored values spliced in as they are: those of an object, and of arrays of objects. */
export const stringify = (value: object): string => {
  if (!holdsStored(value)) return JSON.stringify(value)
  const fields = Object.entries(value).filter(([, field]) => field !== undefined)
  return `{${fields.map(([name, field]) => `${JSON.stringify(name)}:${stringifyField(field)}`).join(",")}}`
}

const stringifyField = (field: unknown) => {
  if (field instanceof StoredJson) return field.text
  return Array.isArray(field) ? `[${field.map(stringify).join(",")}]` : JSON.stringify(field)
}
