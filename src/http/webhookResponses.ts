import { Schema } from "effect"

/** The answer to what was done. */
export const Done = Schema.Struct({
  success: Schema.Literal(true),
  message: Schema.String,
}).annotate({ identifier: "Done" })

export const done = (message: string) => ({ success: true as const, message })

export const nextCursor = Schema.NullOr(Schema.String).annotate({
  description: "Send it as cursor for the next page; null at the end.",
})
