import { Schema, SchemaIssue, SchemaTransformation, type SchemaAST } from "effect"
import { HttpApiSchema } from "effect/http-api"
import * as Errors from "../../domain/Errors.ts"
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

/** The response of an operation that deletes something. */
export const Deleted = Schema.Struct({
  deleted: Schema.Boolean.annotate({ description: "true: it is deleted." }),
}).annotate({ identifier: "Deleted" })

/**
 * `TooManyRequests`, `CostAboveLimit` or `CreditsExhausted` on the wire: the seconds to wait are in the `Retry-After`
 * header. It is absent when no wait helps. One schema, because a status has one definition of its headers.
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

/** The response of an operation that returns nothing else. */
export const Done = Schema.Struct({
  success: Schema.Literal(true).annotate({
    description: "true for every response with status 200, false for every error.",
  }),
  message: Schema.String.annotate({ description: "What was done, in a sentence.", examples: ["It is done."] }),
}).annotate({ identifier: "Done" })

export const done = (message: string) => ({ success: true as const, message })

type Code = { readonly error: string; readonly code: string }

/** An error of the domain with the body of the webhook interface: `{ "success": false, "message", "code" }`. */
const inWebhookShape = <E extends Code, C extends string>(
  error: Schema.Codec<E, unknown> & { new (fields: { readonly error: string }): E },
  code: C,
  httpApiStatus: number,
) =>
  Schema.Struct({
    success: Schema.Literal(false),
    message: Schema.String.annotate({ description: "A sentence for a person." }),
    code: Schema.Literal(code),
  }).pipe(
    Schema.decodeTo(
      Schema.toType(error),
      SchemaTransformation.transform({
        decode: ({ message }) => new error({ error: message }),
        encode: ({ error: message }) => ({ success: false as const, message, code }),
      }),
    ),
    Schema.annotate({ httpApiStatus }),
  )

/** `TooManyRequests` in the webhook interface, with the seconds to wait in the `Retry-After` header. */
export const TooManyWebhookRequests = TooManyRequests.pipe(
  HttpApiSchema.encodeToWithHeaders(
    {
      body: Schema.Struct({
        success: Schema.Literal(false),
        message: Schema.String.annotate({ description: "A sentence for a person." }),
        code: Schema.Literal("too_many_requests"),
      }).annotate({
        identifier: "TooManyWebhookRequests",
        httpApiStatus: 429,
        description: "Too many requests; the Retry-After header says how many seconds to wait.",
      }),
      headers: { "retry-after": Schema.Int.annotate({ description: "Seconds to wait." }) },
    },
    {
      decode: ({ body: { message }, headers }) =>
        new TooManyRequests({ error: message, retryAfterSeconds: headers["retry-after"] }),
      encode: ({ error, code, retryAfterSeconds }) => ({
        body: { success: false as const, message: error, code },
        headers: { "retry-after": retryAfterSeconds },
      }),
    },
  ),
)

export const InvalidRequest = inWebhookShape(Errors.InvalidRequest, "invalid_request", 400)
export const Unauthorized = inWebhookShape(Errors.Unauthorized, "unauthorized", 401)
export const Forbidden = inWebhookShape(Errors.Forbidden, "forbidden", 403)
export const NotFound = inWebhookShape(Errors.NotFound, "not_found", 404)
export const Conflict = inWebhookShape(Errors.Conflict, "conflict", 409)
export const LimitReached = inWebhookShape(Errors.LimitReached, "limit_reached", 409)
export const PayloadTooLarge = inWebhookShape(Errors.PayloadTooLarge, "payload_too_large", 413)
export const UnsupportedMediaType = inWebhookShape(Errors.UnsupportedMediaType, "unsupported_media_type", 415)
export const IdempotencyKeyReused = inWebhookShape(Errors.IdempotencyKeyReused, "idempotency_key_reused", 422)
export const InternalError = inWebhookShape(Errors.InternalError, "internal_error", 500)
export const Unavailable = inWebhookShape(Errors.Unavailable, "unavailable", 503)

/**
 * How bodies and queries are read: one response names all errors, and a field that the operation does not have is an
 * error.
 */
export const knownFieldsOnly: SchemaAST.ParseOptions = { errors: "all", onExcessProperty: "error" }

/** For operations whose callers send more than the service reads: further fields are ignored. */
export const furtherFieldsIgnored: SchemaAST.ParseOptions = { errors: "all" }

/** The body of an operation without fields. */
export const noFields = [
  Schema.Record(Schema.String, Schema.Unknown)
    .check(
      Schema.makeFilter(
        (body: object, ast) => {
          const [name] = Object.keys(body)
          return name === undefined ? undefined : { path: [name], issue: new SchemaIssue.UnexpectedKey(ast) }
        },
        { toJsonSchema: () => ({ additionalProperties: false }) },
      ),
    )
    .annotate({ identifier: "NoFields", examples: [{}] }),
  Schema.Undefined,
] as const
