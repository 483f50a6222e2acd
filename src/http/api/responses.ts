import { Schema } from "effect"
import { HttpApiSchema } from "effect/http-api"
import { CostAboveLimit, CreditsExhausted, TooManyRequests } from "../../domain/Errors.ts"

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

/**
 * `TooManyRequests`, `CostAboveLimit` or `CreditsExhausted` on the wire: the seconds to wait are in the `Retry-After` header.
 * It is absent when no wait helps. One schema, because a status has one definition of its headers.
 */
export const KeyLimitedWithRetryAfter = Schema.Union([TooManyRequests, CostAboveLimit, CreditsExhausted]).pipe(
  HttpApiSchema.encodeToWithHeaders(
    {
      body: Schema.Struct({
        error: Schema.String.annotate({ description: "A sentence for a person." }),
        code: Schema.Literals(["too_many_requests", "credits_exhausted"]),
      }).annotate({
        identifier: "KeyLimited",
        httpApiStatus: 429,
        description:
          "The rate limit is reached or the credits are used up; the Retry-After header says how many seconds to wait. " +
          "It is absent when no wait helps: the cost is larger than the rate limit or the refill, or there is no refill.",
      }),
      headers: { "retry-after": Schema.optionalKey(Schema.Int.annotate({ description: "Seconds to wait." })) },
    },
    {
      decode: ({ body: { code, error }, headers }) => {
        const retryAfterSeconds = headers["retry-after"]
        if (code === "too_many_requests") {
          return retryAfterSeconds === undefined
            ? new CostAboveLimit({ error })
            : new TooManyRequests({ error, retryAfterSeconds })
        }
        return new CreditsExhausted(retryAfterSeconds === undefined ? { error } : { error, retryAfterSeconds })
      },
      encode: (limited) => {
        const seconds = "retryAfterSeconds" in limited ? limited.retryAfterSeconds : undefined
        return {
          body: { error: limited.error, code: limited.code },
          headers: seconds === undefined ? {} : { "retry-after": seconds },
        }
      },
    },
  ),
)
