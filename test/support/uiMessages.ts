import {
  parseJsonEventStream,
  readUIMessageStream,
  type UIMessage,
  type UIMessageChunk,
  uiMessageChunkSchema,
} from "ai"
import type { AnswerPart } from "#src/domain/docs/Chat.ts"

const streamOf = <A>(values: ReadonlyArray<A>) =>
  new ReadableStream<A>({
    start: (controller) => {
      for (const value of values) controller.enqueue(value)
      controller.close()
    },
  })

/** The parts of an answer's text, as the AI SDK parses them, each checked against its schema. */
export const chunksOf = async (text: string): Promise<ReadonlyArray<UIMessageChunk>> => {
  const chunks: Array<UIMessageChunk> = []
  const events = parseJsonEventStream({
    stream: streamOf([new TextEncoder().encode(text)]),
    schema: uiMessageChunkSchema,
  })
  for await (const event of events) {
    if (!event.success) throw event.error
    chunks.push(event.value)
  }
  return chunks
}

/** The message that the AI SDK builds from the parts, and the errors that it finds. */
export const messageOf = async (chunks: ReadonlyArray<UIMessageChunk | AnswerPart>) => {
  const errors: Array<string> = []
  let message: UIMessage | undefined
  const stream = streamOf(chunks as ReadonlyArray<UIMessageChunk>)
  const read = readUIMessageStream({ stream, onError: (error) => void errors.push(String((error as Error).message)) })
  for await (const state of read) message = state
  const parts = message?.parts ?? []
  const text = parts.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("")
  return { message, parts, text, errors }
}
