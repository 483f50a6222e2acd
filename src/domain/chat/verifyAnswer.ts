import { Context, Effect, Stream } from "effect"
import { sourcePart } from "./answerSources.ts"
import { type AnswerUnit, type Citation, takeUnit } from "./answerUnits.ts"
import type { AnswerPart } from "./Chat.ts"
import { pageUrl } from "./docsQuote.ts"

/** What happens to a sentence of a model that its quotations do not prove. */
export type Unverified = "mark" | "omit"

/** The setting of the service. */
export const UnverifiedSentences = Context.Reference<Unverified>("gatehouse/domain/chat/UnverifiedSentences", {
  defaultValue: () => "mark",
})

const notVerified = " *(not verified)*"
const notInDocs = "The documentation does not say."

export interface VerifyOptions {
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
