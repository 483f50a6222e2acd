import { Schema } from "effect"

/**
 * The errors of the service. Each class is its own wire body: `{ "error": "<sentence>", "code": "<snake_case>" }` under
 * the status it names. One class per status, because a client cannot tell two classes of one status apart.
 */
const body = <const Tag extends string, const Code extends string>(tag: Tag, code: Code) => ({
  _tag: Schema.tagDefaultOmit(tag),
  error: Schema.String.annotate({ description: "A sentence for a person." }),
  code: Schema.tag(code),
})

/** 400: the request breaks a rule; the sentence names the field and the rule. */
export class InvalidRequest extends Schema.Error<InvalidRequest>("InvalidRequest")(
  body("InvalidRequest", "invalid_request"),
  { httpApiStatus: 400, description: "The request breaks a rule; the sentence names the field and the rule." },
) {}

/** 401: no credential, or one that is not valid. */
export class Unauthorized extends Schema.Error<Unauthorized>("Unauthorized")(body("Unauthorized", "unauthorized"), {
  httpApiStatus: 401,
  description: "No credential was sent, or it is not valid.",
}) {}

/** 403: a valid credential that may not do this. */
export class Forbidden extends Schema.Error<Forbidden>("Forbidden")(body("Forbidden", "forbidden"), {
  httpApiStatus: 403,
  description: "The credential is valid and may not do this.",
}) {}

/** 404: it does not exist, or it is another tenant's: the two are told apart by nothing. */
export class NotFound extends Schema.Error<NotFound>("NotFound")(body("NotFound", "not_found"), {
  httpApiStatus: 404,
  description: "It does not exist, or it belongs to another tenant.",
}) {}

/** 409: the request is in order and clashes with what is there. */
export class Conflict extends Schema.Error<Conflict>("Conflict")(body("Conflict", "conflict"), {
  httpApiStatus: 409,
  description: "The request clashes with what is there.",
}) {}

/** 409: the org has as much of something as it may have; the sentence names the limit and what to do. */
export class LimitReached extends Schema.Error<LimitReached>("LimitReached")(body("LimitReached", "limit_reached"), {
  httpApiStatus: 409,
  description: "The org has reached a limit; the sentence names the limit, its value and what to do.",
}) {}

/** 413: the body is larger than the operation reads. */
export class PayloadTooLarge extends Schema.Error<PayloadTooLarge>("PayloadTooLarge")(
  body("PayloadTooLarge", "payload_too_large"),
  {
    httpApiStatus: 413,
    description: "The request body is larger than the operation takes: 1 MiB, where nothing else is said.",
  },
) {}

/** 415: the body is not JSON. */
export class UnsupportedMediaType extends Schema.Error<UnsupportedMediaType>("UnsupportedMediaType")(
  body("UnsupportedMediaType", "unsupported_media_type"),
  { httpApiStatus: 415, description: "The request body is not declared as application/json." },
) {}

/** 422: the request is in order, and something that it refers to cannot be had; the sentence names it. */
export class UnprocessableContent extends Schema.Error<UnprocessableContent>("UnprocessableContent")(
  body("UnprocessableContent", "unprocessable"),
  { httpApiStatus: 422, description: "Something that the request refers to cannot be had; the sentence names it." },
) {}

/** 422: the idempotency key was used for another request. */
export class IdempotencyKeyReused extends Schema.Error<IdempotencyKeyReused>("IdempotencyKeyReused")(
  body("IdempotencyKeyReused", "idempotency_key_reused"),
  { httpApiStatus: 422, description: "The Idempotency-Key was used for another request." },
) {}

/** 429: too many requests; `retryAfterSeconds` goes out as the `Retry-After` header. */
export class TooManyRequests extends Schema.Error<TooManyRequests>("TooManyRequests")(
  {
    ...body("TooManyRequests", "too_many_requests"),
    retryAfterSeconds: Schema.Int,
  },
  { httpApiStatus: 429, description: "Too many requests; the Retry-After header says how many seconds to wait." },
) {}

/** 500: a fault of ours; the log has it under the answer's `x-request-id`. */
export class InternalError extends Schema.Error<InternalError>("InternalError")(
  body("InternalError", "internal_error"),
  { httpApiStatus: 500, description: "A fault of the service, logged under the answer's x-request-id." },
) {}

/** 503: something this needs (the database, a token provider) cannot be reached or is too slow; the same request may succeed later. */
export class Unavailable extends Schema.Error<Unavailable>("Unavailable")(body("Unavailable", "unavailable"), {
  httpApiStatus: 503,
  description: "Something this needs cannot be reached or does not answer in time; try again.",
}) {}
