import { Context, type Effect, Layer, type Stream } from "effect"
import type { AnswerPart, Turn } from "./Chat.ts"

/** A tool of the model, with one text as its argument and one as its result. */
export interface ModelTool {
  readonly name: string
  readonly description: string
  readonly parameter: { readonly name: string; readonly description: string }
  /** Never fails: the text of the result contains the error. */
  readonly run: (argument: string) => Effect.Effect<string>
}

export interface ModelRequest {
  readonly instructions: string
  readonly turns: ReadonlyArray<Turn>
  readonly tools: ReadonlyArray<ModelTool>
  /** The maximum of responses, including tool calls. */
  readonly steps: number
}

/**
 * Answers a conversation as a stream. A failure of the model is a part with the type `error`, whose `errorText` is a
 * sentence for the reader without internals. An interruption of the stream ends the request to the model.
 */
export type Answer = (request: ModelRequest) => Stream.Stream<AnswerPart>

/** The language model; `answer` is `undefined` when none is configured. */
export class LanguageModel extends Context.Service<LanguageModel, { readonly answer: Answer | undefined }>()(
  "gatehouse/domain/LanguageModel",
) {
  /** The layer without a model. */
  static readonly none = Layer.succeed(LanguageModel, { answer: undefined })
}
