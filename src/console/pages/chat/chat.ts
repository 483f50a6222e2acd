import { GatehouseError } from "../../client/call.ts"

/** A part of an answer: `data` of one server-sent event. */
interface Part {
  readonly type: string
  readonly delta?: string
  readonly errorText?: string
  readonly sourceId?: string
  readonly title?: string
  readonly url?: string
  readonly filename?: string
  readonly providerMetadata?: { readonly gatehouse?: { readonly quotation?: string } }
  readonly toolCallId?: string
  readonly toolName?: string
  readonly input?: unknown
  readonly output?: unknown
}

interface Source {
  readonly id: string
  readonly title: string
  /** The slug of the page, or its URL. */
  readonly place: string
  /** Words of the page that the answer has. */
  readonly quotation: string | undefined
}

interface ToolUse {
  readonly id: string
  readonly name: string
  readonly input: unknown
  readonly output: unknown
}

export interface ChatAnswer {
  readonly text: string
  readonly sources: ReadonlyArray<Source>
  readonly tools: ReadonlyArray<ToolUse>
  readonly error: string | undefined
}

const noAnswer: ChatAnswer = { text: "", sources: [], tools: [], error: undefined }

/** The answer with one more part. Parts that this page does not show change nothing. */
const withPart = (answer: ChatAnswer, part: Part): ChatAnswer => {
  if (part.type === "text-delta") return { ...answer, text: answer.text + (part.delta ?? "") }
  if (part.type === "text-end") return { ...answer, text: `${answer.text}\n\n` }
  if (part.type === "error") return { ...answer, error: part.errorText ?? "The answer failed." }
  if (part.type === "source-url" || part.type === "source-document") {
    const place = part.url ?? part.filename ?? ""
    const source = {
      id: part.sourceId ?? place,
      title: part.title ?? place,
      place,
      quotation: part.providerMetadata?.gatehouse?.quotation,
    }
    return { ...answer, sources: [...answer.sources, source] }
  }
  if (part.type === "tool-input-available") {
    const use = { id: part.toolCallId ?? "", name: part.toolName ?? "", input: part.input, output: undefined }
    return { ...answer, tools: [...answer.tools, use] }
  }
  if (part.type === "tool-output-available") {
    const tools = answer.tools.map((use) => (use.id === part.toolCallId ? { ...use, output: part.output } : use))
    return { ...answer, tools }
  }
  return answer
}

/** The longest line of a stream that is read, in characters. */
const maxLine = 1_000_000

/** The parts of a stream of server-sent events. */
async function* partsOf(body: ReadableStream<Uint8Array>): AsyncGenerator<Part> {
  const decoder = new TextDecoder()
  const reader = body.getReader()
  let rest = ""
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return
    const lines = (rest + decoder.decode(value, { stream: true })).split("\n")
    rest = lines.pop()!
    if (rest.length > maxLine) throw new Error("The answer has a line that is too long.")
    for (const line of lines) {
      if (line.startsWith("data: ") && line !== "data: [DONE]") yield JSON.parse(line.slice(6)) as Part
    }
  }
}

export interface Message {
  readonly role: "user" | "assistant"
  readonly content: string
}

export interface Question {
  readonly messages: ReadonlyArray<Message>
  /** Absent: the stored documentation of a project is asked. */
  readonly docsPages?: Readonly<Record<string, string>>
  readonly docsZipUrl?: string
  /** Whose stored documentation is asked, when the reader is not of one project. */
  readonly projectId?: string
  readonly csrfToken: string | null
  readonly signal: AbortSignal
}

/** Asks a question. Calls `onAnswer` with the answer so far, as it grows. */
export const ask = async (
  { csrfToken, docsPages, docsZipUrl, messages, projectId, signal }: Question,
  onAnswer: (answer: ChatAnswer) => void,
) => {
  const answer = await globalThis.fetch("/api/svc/chat", {
    method: "POST",
    credentials: "same-origin",
    headers: {
      "content-type": "application/json",
      ...(csrfToken === null ? {} : { "x-csrf-token": csrfToken }),
    },
    body: JSON.stringify({ messages, docsPages, docsZipUrl, projectId }),
    signal,
  })
  if (!answer.ok || answer.body === null) {
    throw new GatehouseError(answer, (await answer.json()) as { readonly error?: string; readonly code?: string })
  }
  let grown = noAnswer
  for await (const part of partsOf(answer.body)) {
    grown = withPart(grown, part)
    onAnswer(grown)
  }
}

/** Pages as they are typed: each begins with a line `--- slug`. */
export const pagesOf = (text: string): Readonly<Record<string, string>> =>
  Object.fromEntries(
    text
      .split(/^--- *(?=\S)/m)
      .filter((part) => part.trim() !== "")
      .map((part, i) => {
        const [first = "", ...lines] = part.split("\n")
        // A text without a heading is one page.
        return i === 0 && !text.startsWith("---") ? ["page", part] : [first.trim(), lines.join("\n")]
      }),
  )
