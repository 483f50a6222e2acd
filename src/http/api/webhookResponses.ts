import { Schema } from "effect"

/** The answer of an operation that returns nothing else. */
export const Done = Schema.Struct({
  success: Schema.Literal(true),
  message: Schema.String.annotate({ description: "What was done, in a sentence.", examples: ["It is done."] }),
}).annotate({ identifier: "Done" })

export const done = (message: string) => ({ success: true as const, message })
