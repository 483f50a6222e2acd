import { OpenApi } from "effect/http-api"
import type { JsonSchema } from "./OpenApiSchema.ts"
import { schemaRef } from "./OpenApiSchema.ts"

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

/** Replaces the schema of a stream: it describes one server-sent event, whose data is text that contains JSON. */
const describeEvents = (schema: JsonSchema, example: object) =>
  OpenApi.annotations({
    transform: (operation) => {
      const { "200": stream, ...responses } = operation["responses"]
      return {
        ...operation,
        responses: { "200": { ...stream, content: { "text/event-stream": { schema, example } } }, ...responses },
      }
    },
  })

const json = (schema: JsonSchema): JsonSchema => ({ contentMediaType: "application/json", contentSchema: schema })

/** Types the stream of the chat as its parts. */
export const chatParts = describeEvents(
  {
    type: "object",
    description: "One server-sent event. It has no name.",
    required: ["data"],
    properties: {
      data: {
        ...text("A part of the answer, as JSON. The data of the last event is [DONE], which is no JSON."),
        if: { const: "[DONE]" },
        else: json(schemaRef("ChatPart")),
      },
    },
  },
  { data: '{"type":"text-delta","id":"answer","delta":"A key is rotated by"}' },
)

const topics = ["delivery", "job", "deployment", "endpoint", "reset", "ping"]

/** Types the stream of what changes as its events. */
export const liveEvents = describeEvents(
  {
    type: "object",
    description: "One server-sent event.",
    required: ["event", "data"],
    properties: {
      id: text("The id of the event, for Last-Event-ID. reset and ping have none."),
      event: {
        ...text(`What changed. Known values: ${topics.join(", ")}. Later versions may have more.`),
        "x-extensible-enum": topics,
      },
      data: {
        ...text("What names the change, as JSON: the org, and the ids and states of what changed."),
        ...json({
          type: "object",
          description: "The org, and the ids and states of what changed.",
          additionalProperties: true,
        }),
      },
    },
  },
  {
    id: "42",
    event: "job",
    data: '{"orgId":"01KAHBMKZ3D2X7S5QN8W4V6R9T","jobId":"01KAHBMKZ3D2X7S5QN8W4V6R9T","status":"completed"}',
  },
)
