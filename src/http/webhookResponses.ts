import { Schema } from "effect"

/** The answer to what was done. */
export const Done = Schema.Struct({
  success: Schema.Literal(true),
  message: Schema.String.annotate({ description: "What was done, in a sentence.", examples: ["It is done."] }),
}).annotate({ identifier: "Done" })

export const done = (message: string) => ({ success: true as const, message })

export const nextCursor = Schema.NullOr(Schema.String).annotate({
  description: "Send it as cursor for the next page; null at the end.",
  examples: ["01KAHBMKZ3D2X7S5QN8W4V6R9T"],
})
