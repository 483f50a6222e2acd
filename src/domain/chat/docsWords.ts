const separators = /[^\p{L}\p{N}]+/u
const unspaced = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]/u
/** Words are cut to this many characters. */
const maxWordLength = 48

/** The words of a text. Scripts without spaces are split into overlapping pairs of characters. */
export const wordsOf = (text: string): Array<string> =>
  text
    // "apiKey" and "api_key" are found by "key".
    .replace(/([\p{Ll}\p{N}])(\p{Lu})/gu, "$1 $2")
    .replace(/(\p{Lu}{2})(\p{Lu}\p{Ll}{2})/gu, "$1 $2")
    .split(separators)
    .flatMap((word) => {
      if (!unspaced.test(word)) return word === "" ? [] : [word.slice(0, maxWordLength).toLowerCase()]
      const characters = [...word]
      return characters.length === 1 ? characters : characters.slice(1).map((next, at) => characters[at]! + next)
    })

/** Whether a word becomes another by at most `most` insertions, deletions, replacements or swaps of neighbours. */
export const isWithin = (one: string, other: string, most: number): boolean => {
  if (Math.abs(one.length - other.length) > most) return false
  let before: Array<number> = []
  let row = Array.from({ length: other.length + 1 }, (_, at) => at)
  for (let i = 1; i <= one.length; i++) {
    const next = [i]
    let least = i
    for (let j = 1; j <= other.length; j++) {
      const replaced = row[j - 1]! + (one[i - 1] === other[j - 1] ? 0 : 1)
      let cost = Math.min(replaced, row[j]! + 1, next[j - 1]! + 1)
      if (i > 1 && j > 1 && one[i - 1] === other[j - 2] && one[i - 2] === other[j - 1])
        cost = Math.min(cost, before[j - 2]! + 1)
      next.push(cost)
      least = Math.min(least, cost)
    }
    if (least > most) return false
    ;[before, row] = [row, next]
  }
  return row[other.length]! <= most
}
