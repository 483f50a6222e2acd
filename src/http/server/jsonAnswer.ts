import { Effect, Schema } from "effect"
import { HttpServerResponse } from "effect/http"
import { stringify } from "../../domain/StoredJson.ts"
import { holdAnswer, roomForAnswer } from "./unsentAnswers.ts"

/**
 * Answers by an operation's schema, with stored JSON spliced in as it is: the definition's own encoding would parse it and
 * write it again. A value that does not fit is a fault of ours. Is `Unavailable` where too many large answers wait to be
 * read. To be made once: it compiles.
 *
 * @param changes whether the operation changes something: then its answer is sent however much waits by then
 */
export const jsonAnswer = <S extends Schema.Codec<object, object>>(schema: S, changes = false) => {
  const encode = Schema.encodeUnknownEffect(schema)
  return <E, R>(operation: Effect.Effect<S["Type"], E, R>) =>
    roomForAnswer.pipe(
      Effect.andThen(operation),
      Effect.flatMap((value) => Effect.orDie(encode(value))),
      Effect.map(stringify),
      Effect.tap((text) => holdAnswer(text.length, changes)),
      Effect.map((text) => HttpServerResponse.text(text, { contentType: "application/json" })),
    )
}
