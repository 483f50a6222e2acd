import { Effect, Schema } from "effect"
import { HttpServerResponse } from "effect/http"
import { stringify } from "../../domain/StoredJson.ts"
import { holdAnswer, roomForAnswer } from "./unsentAnswers.ts"

/**
 * Makes an encoder of responses that copies stored JSON as it is; the definition's encoder would parse and print it. A value
 * that does not match the schema is a defect. Fails with `Unavailable` when too many large answers are unread. Call it
 * once per operation: it compiles the schema.
 *
 * @param changes whether the operation changes something; then its answer is sent above the limit as well
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
