import { Schema, SchemaTransformation } from "effect"
import * as Errors from "../../domain/Errors.ts"

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
