import { Effect, Schema } from "effect"
import { HttpServerResponse } from "effect/http"
import { stringify } from "../../domain/StoredJson.ts"

/**
 * Answers by an operation's schema, with stored JSON spliced in as it is: the definition's own encoding would parse it and
 * write it again. A value that does not fit is a fault of ours. To be made once: it compiles.
 */
export const jsonAnswer = <S extends Schema.Codec<object, object>>(schema: S) => {
  const encode = Schema.encodeUnknownEffect(schema)
  return Effect.flatMap((value: S["Type"]) =>
    Effect.orDie(encode(value)).pipe(
      Effect.map((encoded) => HttpServerResponse.text(stringify(encoded), { contentType: "application/json" })),
    ),
  )
}
