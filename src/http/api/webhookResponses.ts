import { Schema } from "effect"

/** The answer to what was done. */
export const Done = Schema.Struct({
  success: Schema.Literal(true),
  message: Schema.String.annotate({ description: "What was done, in a sentence.", examples: ["It is done."] }),
}).annotate({ identifier: "Done" })

export const done = (message: string) => ({ success: true as const, message })
