import { Context, Schema } from "effect"
import { Text } from "../Schemas.ts"
import { urlFault } from "../webhooks/WebhookUrl.ts"

/** The bounds of one chat. */
export const limits = {
  /** How many pages `docsPages` or a zip may have (contract 6). */
  pages: 2_000,
  /** How many skills may be offered. */
  skills: 20,
  /** How many messages may be sent; older turns are cut long before this. */
  messages: 1_000,
  /** How many characters of conversation the model is given: the oldest turns are cut first. */
  conversation: 48_000,
  /** How many characters the last message may have. */
  question: 32_000,
} as const

/** How often a chat may be had, in chats a minute. */
export const ChatRates = Context.Reference<{
  /** For each project key. */
  readonly projectKey: number
  /** For each client address without a key. */
  readonly address: number
}>("gatehouse/domain/Chat/ChatRates", { defaultValue: () => ({ projectKey: 120, address: 60 }) })

const Part = Schema.Struct({ type: Schema.String, text: Schema.optionalKey(Schema.Unknown) }).check(
  Schema.makeFilter(({ type, text }: { readonly type: string; readonly text?: unknown }) =>
    type !== "text" || typeof text === "string" ? undefined : "must have a string as its text",
  ),
)

/** One message, in either form: the AI SDK's with `parts`, or the plain one with `content`. */
export const ChatMessage = Schema.Struct({
  role: Schema.Literals(["user", "assistant", "system"]).annotate({
    description: "Messages of the role system are passed over: the instructions are the service's.",
  }),
  parts: Schema.optionalKey(
    Schema.Array(Part).annotate({
      description: "A UI message of the AI SDK. Parts of the type text are read; others are passed over.",
    }),
  ),
  content: Schema.optionalKey(Schema.String.annotate({ description: "The plain form, in the place of parts." })),
})
  .check(
    Schema.makeFilter(({ parts, content }: { readonly parts?: unknown; readonly content?: unknown }) =>
      parts !== undefined || content !== undefined ? undefined : "must have parts or content",
    ),
  )
  .annotate({ identifier: "ChatMessage", examples: [{ role: "user", content: "How do I rotate a key?" }] })
export type ChatMessage = typeof ChatMessage.Type

const urlExpectation = "an absolute http or https URL without credentials, of at most 2,048 characters"
const Url = Schema.String.check(
  Schema.makeFilter((url: string) => urlFault(url, { httpsOnly: false }) === undefined, { expected: urlExpectation }),
).annotate({ format: "uri" })

/** A chat: what was said so far, and the documentation to answer from. */
export const ChatRequest = Schema.Struct({
  messages: Schema.Array(ChatMessage)
    .check(Schema.isMinLength(1, { expected: "at least 1 message" }))
    .check(Schema.isMaxLength(limits.messages, { expected: "at most 1,000 messages" }))
    .annotate({ description: "The conversation so far; the last message is the user's." }),
  docsZipUrl: Schema.optionalKey(
    Url.annotate({
      description: "A zip of .md and .mdx files: 20 MiB at most, 50 MiB unpacked, 2,000 files.",
      examples: ["https://docs.example.com/docs.zip"],
    }),
  ),
  docsPages: Schema.optionalKey(
    Schema.Record(Schema.String, Schema.String)
      .check(Schema.isMaxProperties(limits.pages, { expected: "at most 2,000 pages" }))
      .annotate({
        description: "Pages by their slugs, as markdown. One of a slug that the zip has too takes its place.",
        examples: [{ "guides/keys": "# Keys\n\nA key is rotated by making a new one and deleting the old." }],
      }),
  ),
  skillUrls: Schema.optionalKey(
    Schema.Array(Url)
      .check(Schema.isMaxLength(limits.skills, { expected: "at most 20 URLs" }))
      .annotate({
        description: "Markdown files with name and description in their front matter, offered to the model as skills.",
        examples: [["https://docs.example.com/skills/deploy.md"]],
      }),
  ),
  pageSlug: Schema.optionalKey(
    Text.check(Schema.isMaxLength(512, { expected: "at most 512 characters" })).annotate({
      description: "The page that the reader is on: it is given more weight.",
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

/** One part of an answer: a chunk of the AI SDK's UI message stream, told apart by its `type`. */
export interface AnswerPart {
  readonly type: string
  readonly [field: string]: unknown
}

/** One turn of the conversation, as far as it is read. */
export interface Turn {
  readonly role: "user" | "assistant"
  readonly text: string
}

/** What is said in a message; parts that are no text say nothing here. */
export const textOf = ({ parts, content }: ChatMessage): string =>
  parts === undefined
    ? (content ?? "")
    : parts.flatMap(({ type, text }) => (type === "text" && typeof text === "string" ? [text] : [])).join("\n")

/**
 * The newest turns that fit into so many characters together: the oldest are cut first, and the first that is left is
 * the user's. The last turn is always there.
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
