import { OpenApi } from "effect/http-api"
import type { JsonSchema } from "./JsonSchema.ts"
import { schemaRef } from "./JsonSchema.ts"

const text = (description: string) => ({ type: "string", description }) as const

const types = [
  "start",
  "start-step",
  "text-start",
  "text-delta",
  "text-end",
  "tool-input-start",
  "tool-input-delta",
  "tool-input-available",
  "tool-output-available",
  "tool-output-error",
  "finish-step",
  "finish",
  "error",
  "abort",
]

/** One part of an answer of the chat: the `data` of one server-sent event, as JSON. */
export const chatPart: JsonSchema = {
  type: "object",
  description:
    "One part of the answer: the data of one server-sent event. The text is the deltas in their order. The last event is " +
    "[DONE], which is no JSON.",
  required: ["type"],
  properties: {
    type: {
      ...text(`What the part is. Known values: ${types.join(", ")}. Ignore parts that you do not know.`),
      "x-extensible-enum": types,
    },
    id: text("The id of the text that the part belongs to."),
    delta: text("The next piece of the text."),
    errorText: text("What went wrong, in a sentence."),
    finishReason: text("Why the answer ends."),
    toolCallId: text("The id of the use of a tool."),
    toolName: text("The name of the tool."),
    input: { description: "What the tool was asked: any JSON value." },
    output: { description: "What the tool found: any JSON value." },
  },
}

/** Types the stream of the chat as its parts. */
export const chatParts = OpenApi.annotations({
  transform: (operation) => {
    const { "200": stream, ...responses } = operation["responses"]
    const content = {
      "text/event-stream": {
        schema: schemaRef("ChatPart"),
        example: { type: "text-delta", id: "answer", delta: "A key is rotated by" },
      },
    }
    return { ...operation, responses: { "200": { ...stream, content }, ...responses } }
  },
})
