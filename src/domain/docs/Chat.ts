import { Schema } from "effect"
import { atMost, Id, Text } from "../Schemas.ts"
import { urlFault } from "../callableUrls.ts"
import { zipInWords, zipLimits } from "./Documents.ts"

/** The limits of one chat. */
export const limits = {
  /** Pages in `docsPages` or in a zip. */
  pages: zipLimits.pages,
  /** Skills. */
  skills: 20,
  /** Messages in a request. The model gets fewer. */
  messages: 1_000,
  /** Characters of the conversation that the model gets. The oldest turns are dropped first. */
  conversation: 48_000,
  /** Characters of the last message. */
  question: 32_000,
  /** Characters of a question that the search reads. */
  searched: 4_000,
  /** Passages of one search of the model. */
  foundPassages: 6,
  /** Passages that an answer without a model quotes. */
  quotedPassages: 3,
} as const

const Part = Schema.Struct({
  type: Schema.String.annotate({ description: "What the part is. The service reads text.", examples: ["text"] }),
  text: Schema.optionalKey(Schema.Unknown).annotateKey({ description: "The text of a part with the type text." }),
}).check(
  Schema.makeFilter(
    ({ type, text }: { readonly type: string; readonly text?: unknown }) =>
      type !== "text" || typeof text === "string" ? undefined : "must have a string as its text",
    {
      toJsonSchema: () => ({
        anyOf: [
          { properties: { type: { pattern: "^(?!text$)", description: "Another type, which is ignored." } } },
          { required: ["text"], properties: { text: { type: "string", description: "The text of the part." } } },
        ],
      }),
    },
  ),
)

/** One message, in the form of the AI SDK with `parts`, or in the plain form with `content`. */
const ChatMessage = Schema.Struct({
  role: Schema.Literals(["user", "assistant", "system"]).annotate({
    description: "Who wrote the message. The service ignores messages with the role system.",
  }),
  parts: Schema.optionalKey(
    Schema.Array(Part).annotate({
      description:
        "The parts of a UI message of the AI SDK. The service reads parts with the type text and ignores others.",
    }),
  ),
  content: Schema.optionalKey(Schema.String.annotate({ description: "The text of the message, instead of parts." })),
})
  .check(
    Schema.makeFilter(({ parts, content }: { readonly parts?: unknown; readonly content?: unknown }) =>
      parts !== undefined || content !== undefined ? undefined : "must have parts or content",
    ),
  )
  .annotate({ identifier: "ChatMessage", examples: [{ role: "user", content: "How do I rotate a key?" }] })
type ChatMessage = typeof ChatMessage.Type

/** The URL of a document, or of a site. */
export const DocumentUrl = Schema.String.check(
  Schema.makeFilter((url: string) => urlFault(url, { httpsOnly: false }), {
    toJsonSchema: () => ({ maxLength: 2048 }),
  }),
).annotate({ format: "uri" })

/** A chat: the conversation so far, and the documentation for the answer. */
export const ChatRequest = Schema.Struct({
  messages: Schema.Array(ChatMessage)
    .check(Schema.isMinLength(1, { expected: "at least 1 message" }))
    .check(Schema.isMaxLength(limits.messages, { expected: "at most 1,000 messages" }))
    .annotate({ description: "The conversation so far. The last message must have the role user." }),
  docsZipUrl: Schema.optionalKey(
    DocumentUrl.annotate({
      description: `The URL of ${zipInWords}.`,
      examples: ["https://docs.example.com/docs.zip"],
    }),
  ),
  docsPages: Schema.optionalKey(
    Schema.Record(Schema.String, Schema.String)
      .check(Schema.isMaxProperties(limits.pages, { expected: "at most 2,000 pages" }))
      .annotate({
        description: "Pages in markdown, by slug. A page replaces the page of the zip with the same slug.",
        examples: [{ "guides/keys": "# Keys\n\nA key is rotated by making a new one and deleting the old." }],
      }),
  ),
  docsUrl: Schema.optionalKey(
    DocumentUrl.annotate({
      description:
        "The address of the documentation's site, to which slugs are added. With it, sources and links are absolute URLs.",
      examples: ["https://docs.example.com/"],
    }),
  ),
  skillUrls: Schema.optionalKey(
    Schema.Array(DocumentUrl)
      .check(Schema.isMaxLength(limits.skills, { expected: "at most 20 URLs" }))
      .annotate({
        description:
          "The URLs of skills for the model: markdown files with name and description in their front matter.",
        examples: [["https://docs.example.com/skills/deploy.md"]],
      }),
  ),
  projectId: Schema.optionalKey(
    Id.annotate({
      description:
        "The project whose stored documentation is asked, for a session of the console. A project key has its own, and this " +
        "field changes nothing.",
    }),
  ),
  pageSlug: Schema.optionalKey(
    Text.check(atMost(512)).annotate({
      description: "The slug of the reader's current page. The search ranks this page higher.",
      examples: ["guides/keys"],
    }),
  ),
}).annotate({
  identifier: "ChatRequest",
  examples: [
    {
      messages: [{ role: "user", content: "How do I rotate a key?" }],
      docsPages: { "guides/keys": "# Keys\n\nA key is rotated by making a new one and deleting the old." },
      pageSlug: "guides/keys",
    },
  ],
})
export type ChatRequest = typeof ChatRequest.Type

/** One part of an answer: a chunk of the AI SDK's UI message stream. `type` says which. */
export interface AnswerPart {
  readonly type: string
  readonly [field: string]: unknown
}

/** The text of one message. */
export interface Turn {
  readonly role: "user" | "assistant"
  readonly text: string
}

/** The text of a message. Ignores parts that are not text. */
export const textOf = ({ parts, content }: ChatMessage): string =>
  parts === undefined
    ? (content ?? "")
    : parts.flatMap(({ type, text }) => (type === "text" && typeof text === "string" ? [text] : [])).join("\n")

/**
 * Returns the newest turns that fit into `characters`. Drops the oldest turns first, and begins with a turn of the
 * user. Always keeps the last turn.
 */
export const recentTurns = (messages: ReadonlyArray<ChatMessage>, characters: number): ReadonlyArray<Turn> => {
  const turns = messages.flatMap((message): ReadonlyArray<Turn> => {
    const text = textOf(message)
    return message.role === "system" || text.trim() === "" ? [] : [{ role: message.role, text }]
  })
  let left = characters
  let first = turns.length
  while (first > 0 && (first === turns.length || turns[first - 1]!.text.length <= left))
    left -= turns[--first]!.text.length
  while (first < turns.length - 1 && turns[first]!.role === "assistant") first++
  return turns.slice(first)
}
