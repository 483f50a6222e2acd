import type { AnswerPart } from "./Chat.ts"
import { pageUrl } from "./docsQuote.ts"

/** Where an answer comes from. */
export interface AnswerSource {
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
