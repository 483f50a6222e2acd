/** Longer names are compared by their first characters. */
const maxComparedLength = 64

/** Without case and separators: `expires_at` and `expiresAt` are the same. */
const letters = (name: string) => name.slice(0, maxComparedLength).replace(/[_/-]/g, "").toLowerCase()

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

/** A name with more slips is another name. */
const maxSlips = 2

interface Nearest {
  readonly name: string
  /** How many characters differ, without case and separators. */
  readonly slips: number
  /** Whether it has so few other characters that it is probably meant. */
  readonly isMeant: boolean
}

/** The name that is most like `wanted`; `undefined` if there are no names. */
export const nearestName = (wanted: string, names: ReadonlyArray<string>): Nearest | undefined => {
  let nearest: Omit<Nearest, "isMeant"> | undefined
  for (const name of names) {
    const slips = distance(letters(wanted), letters(name))
    if (nearest === undefined || slips < nearest.slips) nearest = { name, slips }
  }
  return nearest && { ...nearest, isMeant: nearest.slips <= maxSlips }
}

/** The names that can be meant by their length alone. Quick, where there are many names. */
export const likelyNames = (wanted: string, names: ReadonlyArray<string>) =>
  names.filter((name) => Math.abs(letters(wanted).length - letters(name).length) <= maxSlips)
