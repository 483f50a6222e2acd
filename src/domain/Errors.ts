import { Schema } from "effect"
import { cut } from "./Schemas.ts"

/**
 * The errors of the service. Each class is its own wire body: `{ "error": "<sentence>", "code": "<snake_case>" }` under
 * the status that it names.
 */
const body = <const Tag extends string, const Code extends string>(tag: Tag, code: Code) => ({
  _tag: Schema.tagDefaultOmit(tag),
  error: Schema.String.annotate({ description: "What is wrong and what to do, in a sentence for people." }),
  code: Schema.tag(code),
})

/** 400: the request breaks a rule. `error` names the field and the rule. */
export class InvalidRequest extends Schema.Error<InvalidRequest>("InvalidRequest")(
  body("InvalidRequest", "invalid_request"),
  { httpApiStatus: 400, description: "The request breaks a rule. error names the field and the rule." },
) {}

/** 401: the credential is missing or invalid. */
export class Unauthorized extends Schema.Error<Unauthorized>("Unauthorized")(body("Unauthorized", "unauthorized"), {
  httpApiStatus: 401,
  description: "The credential is missing or invalid.",
}) {}

/** 403: the credential is valid but does not permit the operation. */
export class Forbidden extends Schema.Error<Forbidden>("Forbidden")(body("Forbidden", "forbidden"), {
  httpApiStatus: 403,
  description: "The credential is valid but does not permit this operation.",
}) {}

/** 403: the key may not be used from the client's address. */
export class IpNotAllowed extends Schema.Error<IpNotAllowed>("IpNotAllowed")(body("IpNotAllowed", "ip_not_allowed"), {
  httpApiStatus: 403,
  description: "The key may not be used from this address.",
}) {}

/** 404: the resource does not exist, or belongs to another tenant. Both have the same answer. */
export class NotFound extends Schema.Error<NotFound>("NotFound")(body("NotFound", "not_found"), {
  httpApiStatus: 404,
  description: "The resource does not exist, or it belongs to another tenant.",
}) {}

/** 409: the request is valid but conflicts with the current state. */
export class Conflict extends Schema.Error<Conflict>("Conflict")(body("Conflict", "conflict"), {
  httpApiStatus: 409,
  description: "The request conflicts with the current state of the resource.",
}) {}

/** 409: the org has reached a limit. `error` names the limit, its value and what to do. */
export class LimitReached extends Schema.Error<LimitReached>("LimitReached")(body("LimitReached", "limit_reached"), {
  httpApiStatus: 409,
  description: "The org has reached a limit. error names the limit, its value and what to do.",
}) {}

/** 413: the request body is too large. */
export class PayloadTooLarge extends Schema.Error<PayloadTooLarge>("PayloadTooLarge")(
  body("PayloadTooLarge", "payload_too_large"),
  {
    httpApiStatus: 413,
    description: "The request body is too large. The limit is 1 MiB unless the operation states another one.",
  },
) {}

/** 415: the request body is not declared as JSON. */
export class UnsupportedMediaType extends Schema.Error<UnsupportedMediaType>("UnsupportedMediaType")(
  body("UnsupportedMediaType", "unsupported_media_type"),
  { httpApiStatus: 415, description: "The request body is not declared as application/json." },
) {}

/** 422: the request is valid, but something that it refers to cannot be used. `error` names it. */
export class UnprocessableContent extends Schema.Error<UnprocessableContent>("UnprocessableContent")(
  body("UnprocessableContent", "unprocessable"),
  { httpApiStatus: 422, description: "Something that the request refers to cannot be used. error names it." },
) {}

/** 422: the idempotency key was used for another request. */
export class IdempotencyKeyReused extends Schema.Error<IdempotencyKeyReused>("IdempotencyKeyReused")(
  body("IdempotencyKeyReused", "idempotency_key_reused"),
  { httpApiStatus: 422, description: "The Idempotency-Key was used for another request: use a new key." },
) {}

/** 429: too many requests. `retryAfterSeconds` becomes the `Retry-After` header. */
export class TooManyRequests extends Schema.Error<TooManyRequests>("TooManyRequests")(
  {
    ...body("TooManyRequests", "too_many_requests"),
    retryAfterSeconds: Schema.Int,
  },
  { httpApiStatus: 429, description: "Too many requests. The Retry-After header contains the seconds to wait." },
) {}

/** 429: a use costs more than the rate limit of the key ever allows. It has no `Retry-After`: waiting does not help. */
export class CostAboveLimit extends Schema.Error<CostAboveLimit>("CostAboveLimit")(
  body("CostAboveLimit", "too_many_requests"),
  { httpApiStatus: 429, description: "The cost is larger than the rate limit of the key." },
) {}

/** 429: the credits of a key are used up. `retryAfterSeconds` until a refill becomes the `Retry-After` header. */
export class CreditsExhausted extends Schema.Error<CreditsExhausted>("CreditsExhausted")(
  {
    ...body("CreditsExhausted", "credits_exhausted"),
    retryAfterSeconds: Schema.optionalKey(Schema.Int),
  },
  { httpApiStatus: 429, description: "The key has too few credits left for this use." },
) {}

/** 500: an error of the service, which is logged with the `x-request-id` of the response. */
export class InternalError extends Schema.Error<InternalError>("InternalError")(
  body("InternalError", "internal_error"),
  { httpApiStatus: 500, description: "An error of the service. Its log has the x-request-id of the response." },
) {}

/**
 * 503: a dependency, such as the database or a token provider, is unreachable or too slow. A later request can succeed.
 */
export class Unavailable extends Schema.Error<Unavailable>("Unavailable")(body("Unavailable", "unavailable"), {
  httpApiStatus: 503,
  description: "A service that this operation needs is unreachable or too slow. Try again later.",
}) {}

/**
 * Where a fault was thrown, for the log. Its message can contain words of a reader, a model or documentation, which no
 * log may have: a database shows the row that a constraint refuses.
 */
export const faultPlace = (fault: unknown): string => {
  const { name = "Error", stack = "" } = (fault ?? {}) as { readonly name?: string; readonly stack?: string }
  const frames = stack.split("\n").filter((line) => /^ {4}at /.test(line))
  return cut([name, ...frames.slice(0, 10)].join("\n"), 2_000)
}
