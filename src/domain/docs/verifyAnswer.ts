import { Context, Effect, Stream } from "effect"
import type { AnswerPart } from "./Chat.ts"
import { pageUrl } from "./DocsPassages.ts"
import { unspaced } from "./docsWords.ts"

/** What happens to a sentence of a model that its quotations do not prove. */
export type Unverified = "mark" | "omit"

/** The setting of the service. */
export const UnverifiedSentences = Context.Reference<Unverified>("gatehouse/domain/docs/UnverifiedSentences", {
  defaultValue: () => "mark",
})

const notVerified = " *(not verified)*"
const notInDocs = "The documentation does not say."

interface VerifyOptions {
  readonly unverified: Unverified
  readonly docsUrl: string | undefined
  /** The title and the text of a page or skill. */
  readonly textOf: (slug: string) => Effect.Effect<{ readonly title: string; readonly text: string } | undefined>
  /** The answer when the model has written none: text and sources. */
  readonly fallback: Effect.Effect<ReadonlyArray<AnswerPart>>
}

/** A shorter quotation proves nothing. */
const minQuotation = 8
/** Longer text is not looked up: whose page and words it is can make that a thousand times dearer. */
const maxLookedUp = 250
/** The characters of pages that are searched for one answer. Claims after that count as not proved. */
const maxSearched = 100_000_000
/** A model asks for this text with it. */
const nothing = "[[nothing]]"

/**
 * Whether a text states something: it has words, and is no question, heading or introduction. In scripts without
 * spaces, each letter counts as a word.
 */
const isClaim = (text: string) => {
  const bare = text.trim()
  const parts = bare.split(unspaced)
  const words = parts.flatMap((part) => part.match(/[\p{L}\p{N}]+/gu) ?? [])
  const letters = parts.length - 1
  return words.length + letters > 2 && !/[?:？：؟]$/.test(bare) && !/^#{1,6} /.test(bare)
}

/** Numbers and inline code of a sentence. They must be in the page, too. `v2` has no number, and `在90天` has one. */
const detailsOf = (text: string) => {
  const prose = text.replace(/^ {0,3}(?:\d+[.)]|[-*+]) /, "")
  return [...prose.matchAll(/`([^`\n]+)`|(?<![\p{Lu}\p{Ll}\p{N}])\d+(?:[.,]\d+)*/gu)].map(
    ([whole, code]) => code ?? whole,
  )
}

/** The lines of an example. They must be in the page, too. */
const linesOf = (text: string) => {
  const lines = text.trim().split("\n").slice(1, -1)
  return lines.map((line) => line.trim()).filter((line) => line !== "")
}

/** Makes the function that says whether a page has all of some texts. Other requests continue between two of them. */
const makeLookUp = () => {
  let left = maxSearched
  return Effect.fnUntraced(function* (page: string, texts: Iterable<string>) {
    for (const text of texts) {
      left -= page.length
      if (left < 0 || text.length > maxLookedUp || !page.includes(text)) return false
      yield* Effect.yieldNow
    }
    return true
  })
}

interface Proof extends Citation {
  readonly title: string
}

/**
 * The citations of a unit that prove it: the page has the quotation byte for byte, and the numbers and names of the
 * unit.
 */
const proofsOf = Effect.fnUntraced(function* (
  { citations, isExample, text }: AnswerUnit,
  textOf: VerifyOptions["textOf"],
  hasAll: ReturnType<typeof makeLookUp>,
) {
  const proofs: Array<Proof> = []
  if (citations.length === 0) return proofs
  const details = isExample ? linesOf(text) : detailsOf(text)
  for (const { slug, quotation } of citations) {
    const page = yield* textOf(slug)
    if (page === undefined || quotation.trim().length < minQuotation) continue
    if (yield* hasAll(page.text, new Set([quotation, ...details]))) proofs.push({ slug, quotation, title: page.title })
  }
  return proofs
})

/**
 * Checks the answer of a model sentence by sentence. A proved sentence gets the number of its source, and a part for
 * the source. Another one is marked or left out. With `mark` the words go on as they come, and the mark follows the
 * sentence; with `omit` a sentence waits for its end. An answer without text is replaced by the fallback.
 */
export const verifyAnswer =
  (options: VerifyOptions) =>
  (answer: Stream.Stream<AnswerPart>): Stream.Stream<AnswerPart> => {
    const { unverified, docsUrl, textOf, fallback } = options
    const numbers = new Map<string, number>()
    const hasAll = makeLookUp()
    const reader = makeAnswerReader()
    /** The words of the unfinished sentence that wait for its end. */
    let waiting = ""
    let isOmitted = false
    let hasText = false
    let isWithheld = false
    let textId: unknown

    /** The number of a source, and its part if it is new. */
    const sourceOf = (proof: Proof) => {
      const key = JSON.stringify([proof.slug, proof.quotation])
      const known = numbers.get(key)
      if (known !== undefined) return { number: known, parts: [] }
      const number = numbers.size + 1
      numbers.set(key, number)
      return { number, parts: [sourcePart(number, proof, docsUrl)] }
    }
    /** What follows a sentence: the numbers and the parts of its sources, or the mark. */
    const endOf = Effect.fnUntraced(function* (unit: AnswerUnit) {
      if (unit.text.trim() === notInDocs) return { marks: "", parts: [] }
      const proofs = yield* proofsOf(unit, textOf, hasAll)
      if (proofs.length === 0) return isClaim(unit.text) ? undefined : { marks: "", parts: [] }
      const sources = proofs.map((proof) => ({ ...sourceOf(proof), url: pageUrl(proof.slug, docsUrl) }))
      const marks = sources.map(({ number, url }) => ` [${number}](${url})`).join("")
      return { marks, parts: sources.flatMap(({ parts }) => parts) }
    })
    /** The parts of what the reader has read. */
    const take = Effect.fnUntraced(function* (id: unknown, read: ReadonlyArray<string | AnswerUnit>) {
      const parts: Array<AnswerPart> = []
      let delta = ""
      const say = () => {
        if (delta.trim() !== "") hasText = true
        if (delta !== "") parts.push({ type: "text-delta", id, delta })
        delta = ""
      }
      for (const one of read) {
        if (typeof one === "string") {
          // White space between sentences goes with the one before it.
          const isBetween = waiting === "" && one.trim() === ""
          if (unverified === "mark" || (isBetween && !isOmitted)) delta += one
          else if (!isBetween) waiting += one
          continue
        }
        const words = waiting
        waiting = ""
        const end = yield* endOf(one)
        isOmitted = end === undefined && unverified === "omit"
        if (isOmitted) isWithheld = true
        else delta += words + inPlace(one, end?.marks ?? notVerified)
        if (end === undefined || end.parts.length === 0) continue
        say()
        parts.push(...end.parts)
      }
      say()
      return parts
    })
    const ending = Effect.suspend(() =>
      hasText
        ? Effect.succeed<ReadonlyArray<AnswerPart>>([])
        : isWithheld
          ? Effect.succeed([
              { type: "text-start", id: "nothing" },
              { type: "text-delta", id: "nothing", delta: notInDocs },
              { type: "text-end", id: "nothing" },
            ])
          : fallback,
    )

    return Stream.flatMap(answer, (part) => {
      if (part.type === "text-delta") {
        textId = part["id"]
        return Stream.fromIterableEffect(take(textId, reader.read(String(part["delta"]))))
      }
      if (part.type === "text-end")
        return Stream.fromIterableEffect(Effect.map(take(part["id"], reader.end()), (parts) => [...parts, part]))
      // The error says why there is no answer. What was said before stays.
      if (part.type === "error")
        return Stream.fromIterableEffect(
          Effect.map(take(textId, reader.end()), (parts) => ((hasText = true), [...parts, part])),
        )
      if (part.type === "finish") return Stream.fromIterableEffect(Effect.map(ending, (parts) => [...parts, part]))
      return Stream.succeed(part)
    })
  }

/** Marks where a reader sees them: after an example on a line of their own, because its last line ends the example. */
const inPlace = ({ isExample, text }: AnswerUnit, marks: string) =>
  isExample && marks !== "" ? `${text.endsWith("\n") ? "" : "\n"}${marks}\n` : marks

/** A reference of the model: the page, and words of it. */
interface Citation {
  readonly slug: string
  readonly quotation: string
}

/** A sentence, a line or an example of an answer, with its citations. */
interface AnswerUnit {
  /** The text without citations and without the white space after it. */
  readonly text: string
  readonly citations: ReadonlyArray<Citation>
  readonly isExample: boolean
}

/** The characters of a citation. Longer text in brackets is text. */
const maxCitationLength = 2_000
/** The citations of a sentence that count. Each is looked up in a page. */
const maxCitations = 8
/** `[[guides/keys "Create a second key"]]` */
const citation = /^\[\[\s*([^\s"]+)\s+["“]([\s\S]*?)["”]\s*\]\]$/
/** What ends with a full stop and is not the end of a sentence: abbreviations, and the numbers of a list. */
const notAnEnd = /(?:^|[\s(])(?:e\.g|i\.e|etc|vs|cf|no|approx|z\.B|d\.h|bzw|ca|p\.ex|ej|\p{Lu}|\d{1,3})\.$/u
/** They end a sentence without white space after it. */
const fullStop = /[。！？｡]/
/** More characters than `notAnEnd` can match. */
const tailLength = 12
const isFence = /^ {0,3}(?:```|~~~)$/
const mayBeFence = /^ {0,3}(?:`{0,2}|~{0,2})$/

/**
 * Reads an answer in pieces, each character once. Returns what is certain: words to say, and a unit after the words of
 * each sentence, line and example. Holds back only what may be a citation, and the white space before it.
 */
export const makeAnswerReader = () => {
  let read: Array<string | AnswerUnit> = []
  /**
   * Where the next character is: at the `start` of a unit; in its `text`, in inline `code` (`opening`: in the backticks
   * before it, `closing`: in those after it) or in an `example`; after the full stop (`stop`) or after the quotation
   * marks behind it (`after`) of a sentence; or in the white space between units (`space`).
   */
  let place: "start" | "text" | "opening" | "code" | "closing" | "example" | "stop" | "quotes" | "after" | "space" =
    "start"
  let words = ""
  /** The last characters of the unit. */
  let tail = ""
  let citations: Array<Citation> = []
  let isExample = false
  /** White space that is not said yet. */
  let held = ""
  /** What may be a citation, from its first bracket. */
  let bracket = ""
  /** What may be the beginning of an example. */
  let prefix = ""
  let isLineStart = true
  /** The example: the character of its fence, how many begin it, and what the current line has of a fence. */
  let fence = { mark: "", count: 0, isOpening: true, spaces: 0, marks: 0, line: "indent" as "indent" | "marks" | "no" }

  const say = (text: string) => {
    words += held + text
    tail = (tail + held.slice(-tailLength) + text.slice(-tailLength)).slice(-tailLength)
    read.push(held + text)
    held = ""
  }
  /** Ends the unit. The white space after it is said after its marks. */
  const finish = () => {
    const text = words.trimEnd()
    if (text !== "") read.push({ text: isExample ? words : text, citations, isExample })
    if (held !== "") read.push(held)
    words = tail = held = ""
    citations = []
    isExample = false
    place = "space"
  }
  /** Reads what is in brackets when they are closed. */
  const cite = () => {
    const text = bracket
    bracket = ""
    if (text === nothing) {
      if (place === "after") finish()
      for (const char of notInDocs) step(char)
      return
    }
    const [, slug, quotation] = citation.exec(text) ?? []
    if (slug === undefined && place === "code") return say(text)
    held = ""
    if (slug !== undefined && citations.length < maxCitations) citations.push({ slug, quotation: quotation! })
  }
  /** Says what was in brackets and is no citation. */
  const flushBracket = () => {
    const text = bracket
    bracket = ""
    if (place === "after") {
      finish()
      place = "text"
    }
    say(text)
  }
  const inBracket = (char: string) => {
    const isCitation = bracket.length > 1 || char === "["
    if (!isCitation || (place === "code" && (char === "`" || char === "\n"))) {
      flushBracket()
      return step(char)
    }
    bracket += char
    if (bracket.length > 3 && char === "[" && bracket.endsWith("[[")) {
      bracket = bracket.slice(0, -2)
      flushBracket()
      bracket = "[["
    } else if (bracket.length > 3 && char === "]" && bracket.endsWith("]]")) cite()
    else if (bracket.length > maxCitationLength) flushBracket()
  }
  const isFenceLine = () => fence.line !== "no" && fence.marks >= fence.count
  const inExample = (char: string) => {
    say(char)
    if (fence.isOpening && char === fence.mark) return void fence.count++
    fence.isOpening = false
    if (char === "\n") {
      if (isFenceLine()) place = "after"
      else fence = { ...fence, spaces: 0, marks: 0, line: "indent" }
    } else if (fence.line === "indent" && char === " " && fence.spaces < 3) fence.spaces++
    else if (fence.line !== "no" && char === fence.mark && fence.spaces >= 0) {
      fence.marks++
      fence.line = "marks"
    } else if (fence.line === "marks" && (char === " " || char === "\t")) fence.spaces = -1
    else fence.line = "no"
  }
  const inStart = (char: string) => {
    if (isLineStart && isFence.test(prefix + char)) {
      say(prefix + char)
      prefix = ""
      isExample = true
      fence = { mark: char, count: 3, isOpening: true, spaces: 0, marks: 0, line: "no" }
      place = "example"
    } else if (isLineStart && mayBeFence.test(prefix + char)) prefix += char
    else {
      const before = prefix
      prefix = ""
      place = "text"
      for (const one of before) step(one)
      step(char)
    }
  }
  const inText = (char: string) => {
    if (char === "[") bracket = char
    else if (char === " " || char === "\t") held += char
    else if (char === "\n") {
      held += char
      finish()
      isLineStart = true
    } else {
      say(char)
      if (char === "`") place = "opening"
      else if (/\p{Sentence_Terminal}/u.test(char)) place = "stop"
    }
  }
  const go = (next: typeof place, char: string) => {
    place = next
    step(char)
  }

  const step = (char: string): void => {
    if (bracket !== "") return inBracket(char)
    switch (place) {
      case "start":
        return inStart(char)
      case "text":
        return inText(char)
      case "opening":
        return char === "`" ? say(char) : go("code", char)
      case "code":
        if (char === "\n") return go("text", char)
        if (char === "[") return void (bracket = char)
        say(char)
        if (char === "`") place = "closing"
        return
      case "closing":
        return char === "`" ? say(char) : go("text", char)
      case "example":
        return inExample(char)
      case "stop":
        if (fullStop.test(tail.slice(-1))) return go("quotes", char)
        return go(/[\s[)"'”*_]/.test(char) && !notAnEnd.test(tail) ? "quotes" : "text", char)
      case "quotes":
        return /[)"'”*_）」』。！？｡]/.test(char) ? say(char) : go("after", char)
      case "after":
        if (char === "[") return void (bracket = char)
        if (char === " " || char === "\t") return void (held += char)
        isLineStart = isExample
        finish()
        return step(char)
      case "space":
        if (char !== " " && char !== "\t" && char !== "\n") return go("start", char)
        if (char !== "\n" && isLineStart) return go("start", char)
        isLineStart ||= char === "\n"
        return void read.push(char)
    }
  }
  const taken = () => {
    const all = read
    read = []
    return all
  }
  return {
    /** Reads the next piece. */
    read: (text: string): ReadonlyArray<string | AnswerUnit> => {
      for (const char of text) step(char)
      return taken()
    },
    /** Reads the end of the text. */
    end: (): ReadonlyArray<string | AnswerUnit> => {
      if (bracket !== "") flushBracket()
      if (prefix !== "") say(prefix)
      prefix = ""
      finish()
      place = "start"
      isLineStart = true
      return taken()
    },
  }
}

/** Where an answer comes from. */
interface AnswerSource {
  readonly slug: string
  readonly title: string
  /** Words of the page, byte for byte. */
  readonly quotation: string
}

/**
 * The part of an answer that `useChat` shows as a source: a URL if the site of the documentation is known, else a
 * document.
 */
export const sourcePart = (id: number, { slug, title, quotation }: AnswerSource, docsUrl?: string): AnswerPart => ({
  ...(docsUrl === undefined
    ? { type: "source-document", mediaType: "text/markdown", filename: slug }
    : { type: "source-url", url: pageUrl(slug, docsUrl) }),
  sourceId: String(id),
  title,
  providerMetadata: { gatehouse: { slug, quotation } },
})
