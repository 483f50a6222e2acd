import { Context, Effect, Stream } from "effect"
import type { AnswerPart } from "./Chat.ts"
import { pageUrl } from "./DocsPassages.ts"

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
/** A model asks for this text with it. */
const nothing = "[[nothing]]"

/** Whether a text states something: it has words, and is no question, heading or introduction. */
const isClaim = (text: string) => {
  const bare = text.trim()
  return (bare.match(/[\p{L}\p{N}]+/gu) ?? []).length > 2 && !/[?:]$/.test(bare) && !/^#{1,6} /.test(bare)
}

/** Numbers and inline code of a sentence. They must be in the page, too. */
const detailsOf = (text: string) => {
  const prose = text.replace(/^ {0,3}(?:\d+[.)]|[-*+]) /, "")
  return [...prose.matchAll(/`([^`\n]+)`|(?<![\p{L}\p{N}])\d+(?:[.,]\d+)*/gu)].map(([whole, code]) => code ?? whole)
}

/** Whether the page has every line of an example. */
const hasExample = (page: string, text: string) => {
  const lines = text.trim().split("\n").slice(1, -1)
  return lines.every((line) => line.trim() === "" || page.includes(line.trim()))
}

const isExample = (text: string) => /^ {0,3}(?:```|~~~)/.test(text)

interface Proof extends Citation {
  readonly title: string
}

/** The citations of a unit that prove it: the page has the quotation byte for byte, and the numbers and names of the unit. */
const proofsOf = Effect.fnUntraced(function* ({ text, citations }: AnswerUnit, textOf: VerifyOptions["textOf"]) {
  const proofs: Array<Proof> = []
  for (const { slug, quotation } of citations) {
    const page = yield* textOf(slug)
    if (page === undefined || quotation.trim().length < minQuotation || !page.text.includes(quotation)) continue
    const isProved = isExample(text)
      ? hasExample(page.text, text)
      : detailsOf(text).every((detail) => page.text.includes(detail))
    if (isProved) proofs.push({ slug, quotation, title: page.title })
  }
  return proofs
})

const split = (text: string) => {
  const bare = text.trimEnd()
  return [bare, text.slice(bare.length)] as const
}

/**
 * Checks the answer of a model sentence by sentence. A proved sentence gets the number of its source, and a part for the source.
 * Another one is marked or left out. An answer without text is replaced by the fallback.
 */
export const verifyAnswer =
  (options: VerifyOptions) =>
  (answer: Stream.Stream<AnswerPart>): Stream.Stream<AnswerPart> => {
    const { unverified, docsUrl, textOf, fallback } = options
    const numbers = new Map<string, number>()
    let buffer = ""
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
    const say = (id: unknown, delta: string): ReadonlyArray<AnswerPart> => {
      if (delta.trim() !== "") hasText = true
      return delta === "" ? [] : [{ type: "text-delta", id, delta }]
    }
    const checked = Effect.fnUntraced(function* (id: unknown, unit: AnswerUnit) {
      const [bare, space] = split(unit.text)
      const proofs = yield* proofsOf(unit, textOf)
      if (proofs.length > 0) {
        const sources = proofs.map((proof) => ({ ...sourceOf(proof), url: pageUrl(proof.slug, docsUrl) }))
        const marks = sources.map(({ number, url }) => ` [${number}](${url})`).join("")
        return [...say(id, `${bare}${marks}${space}`), ...sources.flatMap(({ parts }) => parts)]
      }
      if (!isClaim(bare)) return say(id, unit.text)
      isWithheld ||= unverified === "omit"
      return say(id, unverified === "omit" ? "" : `${bare}${notVerified}${space}`)
    })
    /** The parts of the finished units in the buffer. */
    const take = Effect.fnUntraced(function* (id: unknown, isEnd: boolean) {
      const parts: Array<AnswerPart> = []
      buffer = buffer.replaceAll(nothing, notInDocs)
      for (let unit = takeUnit(buffer, isEnd); unit !== undefined; unit = takeUnit(buffer, isEnd)) {
        buffer = buffer.slice(unit.length)
        parts.push(...(unit.text.trim() === notInDocs ? say(id, unit.text) : yield* checked(id, unit)))
      }
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
        buffer += String(part["delta"])
        textId = part["id"]
        return Stream.fromIterableEffect(take(textId, false))
      }
      if (part.type === "text-end")
        return Stream.fromIterableEffect(Effect.map(take(part["id"], true), (parts) => [...parts, part]))
      // The error says why there is no answer. What was said before stays.
      if (part.type === "error")
        return Stream.fromIterableEffect(
          Effect.map(take(textId, true), (parts) => ((hasText = true), [...parts, part])),
        )
      if (part.type === "finish") return Stream.fromIterableEffect(Effect.map(ending, (parts) => [...parts, part]))
      return Stream.succeed(part)
    })
  }

/** A reference of the model: the page, and words of it. */
interface Citation {
  readonly slug: string
  readonly quotation: string
}

/** A sentence, a line or an example of an answer, with its citations. */
interface AnswerUnit {
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
    words = words.replace(/(?<![ \t])[ \t]+$/, "")
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

/** Where an answer comes from. */
interface AnswerSource {
  readonly slug: string
  readonly title: string
  /** Words of the page, byte for byte. */
  readonly quotation: string
}

/** The part of an answer that `useChat` shows as a source: a URL if the site of the documentation is known, else a document. */
export const sourcePart = (id: number, { slug, title, quotation }: AnswerSource, docsUrl?: string): AnswerPart => ({
  ...(docsUrl === undefined
    ? { type: "source-document", mediaType: "text/markdown", filename: slug }
    : { type: "source-url", url: pageUrl(slug, docsUrl) }),
  sourceId: String(id),
  title,
  providerMetadata: { gatehouse: { slug, quotation } },
})
