/** Longer names are compared by their first characters. */
const maxComparedLength = 64

/** Without case and separators: `expires_at` and `expiresAt` are the same. */
const letters = (name: string) => name.slice(0, maxComparedLength).replace(/[_-]/g, "").toLowerCase()

/** The number of characters to insert, delete or replace to turn one text into the other (Levenshtein). */
const distance = (from: string, to: string): number => {
  let row = Array.from({ length: to.length + 1 }, (_, column) => column)
  for (let i = 1; i <= from.length; i++) {
    const next = [i]
    for (let j = 1; j <= to.length; j++) {
      const replaced = row[j - 1]! + (from[i - 1] === to[j - 1] ? 0 : 1)
      next.push(Math.min(replaced, row[j]! + 1, next[j - 1]! + 1))
    }
    row = next
  }
  return row.at(-1)!
}

/** The field whose name is most like `name`; `undefined` if there are no fields. */
export const nearestField = (name: string, fields: ReadonlyArray<string>): string | undefined => {
  const wanted = letters(name)
  let nearest: { readonly field: string; readonly edits: number } | undefined
  for (const field of fields) {
    const edits = distance(wanted, letters(field))
    if (nearest === undefined || edits < nearest.edits) nearest = { field, edits }
  }
  return nearest?.field
}
