import { Schema } from "effect"
import { HttpApiSchema } from "effect/http-api"
import { TooManyRequests } from "../../domain/Errors.ts"

/** `TooManyRequests` on the wire: the seconds to wait are in the `Retry-After` header. */
export const TooManyRequestsWithRetryAfter = TooManyRequests.pipe(
  HttpApiSchema.encodeToWithHeaders(
    {
      body: Schema.Struct({
        error: Schema.String.annotate({ description: "A sentence for a person." }),
        code: Schema.Literal("too_many_requests"),
      }).annotate({
        identifier: "TooManyRequestsEncoded",
        httpApiStatus: 429,
        description: "Too many requests; the Retry-After header says how many seconds to wait.",
      }),
      headers: { "retry-after": Schema.Int.annotate({ description: "Seconds to wait." }) },
    },
    {
      decode: ({ body, headers }) =>
        new TooManyRequests({ error: body.error, retryAfterSeconds: headers["retry-after"] }),
      encode: ({ error, code, retryAfterSeconds }) => ({
        body: { error, code },
        headers: { "retry-after": retryAfterSeconds },
      }),
    },
  ),
)

/** The answer of an operation that deletes something. */
export const Deleted = Schema.Struct({ deleted: Schema.Boolean }).annotate({ identifier: "Deleted" })
