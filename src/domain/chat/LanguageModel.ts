import { Context, type Effect, Layer, type Stream } from "effect"
import type { AnswerPart, Turn } from "./Chat.ts"

/** A tool of the model's: it gives one text, and gets one. */
export interface ModelTool {
  readonly name: string
  readonly description: string
  readonly parameter: { readonly name: string; readonly description: string }
  /** Never fails; what cannot be done is said in the text. */
  readonly run: (argument: string) => Effect.Effect<string>
}

/** What a model is asked. */
export interface ModelRequest {
  readonly instructions: string
  readonly turns: ReadonlyArray<Turn>
  readonly tools: ReadonlyArray<ModelTool>
  /** How many times the model may answer, calls of tools included. */
  readonly steps: number
}

/**
 * Answers a conversation, from the first token on. A model that fails is a part of the type `error`, whose `errorText`
 * is a sentence for the reader, without internals. Interrupting the stream ends the call of the model.
 */
export type Answer = (request: ModelRequest) => Stream.Stream<AnswerPart>

/** The language model, where one is configured. */
export class LanguageModel extends Context.Service<LanguageModel, { readonly answer: Answer | undefined }>()(
  "gatehouse/domain/LanguageModel",
) {
  /** No model is configured. */
  static readonly none = Layer.succeed(LanguageModel, { answer: undefined })
}
