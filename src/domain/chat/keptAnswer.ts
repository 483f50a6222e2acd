import { Effect, Exit, Stream } from "effect"
import type { AnswerPart } from "./Chat.ts"

/**
 * Passes an answer on with the id of its message, and calls `keep` at its end with whether it has a source. Does not call it
 * for an answer without a source that failed, or that the reader did not wait for.
 */
export const keptAnswer = (
  parts: Stream.Stream<AnswerPart>,
  messageId: string,
  keep: (found: boolean) => void,
): Stream.Stream<AnswerPart> =>
  Stream.suspend(() => {
    let hasSource = false
    let hasError = false
    return parts.pipe(
      Stream.map((part) => {
        hasSource ||= part.type.startsWith("source-")
        hasError ||= part.type === "error"
        return part.type === "start" ? { ...part, messageId } : part
      }),
      Stream.onExit((exit) =>
        Effect.sync(() => {
          if (hasSource || (Exit.isSuccess(exit) && !hasError)) keep(hasSource)
        }),
      ),
    )
  })
