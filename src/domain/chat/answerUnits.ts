/** A reference of the model: the page, and words of it. */
export interface Citation {
  readonly slug: string
  readonly quotation: string
}

/** A sentence, a line or an example of an answer, with its citations. */
export interface AnswerUnit {
  /** The text without citations, with the white space after it. */
  readonly text: string
  readonly citations: ReadonlyArray<Citation>
  /** The characters of the answer that it takes. */
  readonly length: number
}

/** The characters of a citation. Longer text in brackets is text. */
const maxCitationLength = 2_000
const citationStart = "[["
const citationEnd = "]]"
/** `[[guides/keys "Create a second key"]]` */
const citation = /^\[\[\s*([^\s"]+)\s+["“]([\s\S]*?)["”]\s*\]\]$/
/** What ends with a full stop and is not the end of a sentence: abbreviations, and the numbers of a list. */
const notAnEnd = /(?:^|[\s(])(?:e\.g|i\.e|etc|vs|cf|no|approx|z\.B|d\.h|bzw|ca|p\.ex|ej|\p{Lu}|\d{1,3})\.$/u
const fence = /^ {0,3}(`{3,}|~{3,})/

/** The end of the citation that begins at an index; `undefined` when it is not there yet. */
const citationEndAt = (text: string, from: number): number | undefined => {
  const end = text.indexOf(citationEnd, from)
  return end < 0 || end - from > maxCitationLength ? undefined : end + citationEnd.length
}

/** The end of an example that begins at the start of a text. */
const exampleEnd = (text: string): number | undefined => {
  const [, mark] = fence.exec(text)!
  const closing = new RegExp(`\\n {0,3}${mark![0]}{${mark!.length},}[ \\t]*(?:\\n|$)`).exec(text)
  return closing === null ? undefined : closing.index + closing[0].length
}

/**
 * Takes the first unit from the text of an answer. Returns `undefined` while more text can belong to it.
 *
 * @param isEnd whether the text is complete
 */
export const takeUnit = (text: string, isEnd: boolean): AnswerUnit | undefined => {
  if (text === "") return undefined
  const citations: Array<Citation> = []
  let words = ""
  let at = 0
  const finish = (): AnswerUnit => ({ text: words, citations, length: at })
  /** Reads the citation at the current place. Returns `false` when its end is missing. */
  const cite = () => {
    const end = citationEndAt(text, at)
    if (end === undefined) {
      if (!isEnd && text.length - at <= maxCitationLength) return false
      words += citationStart
      at += citationStart.length
      return true
    }
    const [, slug, quotation] = citation.exec(text.slice(at, end)) ?? []
    if (slug !== undefined) citations.push({ slug, quotation: quotation! })
    words = words.replace(/[ \t]+$/, "")
    at = end
    return true
  }
  /** Reads the citations after a sentence. Returns `false` while another one can come. */
  const citeAfter = () => {
    for (;;) {
      const [space] = /^[ \t]*/.exec(text.slice(at))!
      const rest = text.slice(at + space.length)
      if (rest.startsWith(citationStart)) {
        at += space.length
        if (!cite()) return false
      } else return isEnd || !(rest === "" || rest === "[")
    }
  }
  const space = () => {
    const [found] = /^[ \t]*\n*/.exec(text.slice(at))!
    words += found
    at += found.length
  }
  if (fence.test(text)) {
    const end = exampleEnd(text) ?? (isEnd ? text.length : undefined)
    if (end === undefined) return undefined
    words = text.slice(0, end)
    at = end
    return citeAfter() ? finish() : undefined
  }
  while (at < text.length) {
    if (text.startsWith(citationStart, at)) {
      if (!cite()) return undefined
      continue
    }
    const next = text[at]!
    if (next === "`") {
      const [inline] = /^`+[^`\n]*`+/.exec(text.slice(at)) ?? ["`"]
      if (inline === "`" && !isEnd && !text.slice(at).includes("\n")) return undefined
      words += inline
      at += inline.length
      continue
    }
    words += next
    at++
    const after = text[at]
    const isSentence =
      /[.!?。！？]/.test(next) && (after === undefined || /[\s[)"'”*_]/.test(after)) && !notAnEnd.test(words)
    if (!isSentence && next !== "\n") continue
    if (next !== "\n") {
      const [closing] = /^[)"'”*_]*/.exec(text.slice(at))!
      words += closing
      at += closing.length
      if (!citeAfter()) return undefined
    }
    space()
    return finish()
  }
  return isEnd ? finish() : undefined
}
