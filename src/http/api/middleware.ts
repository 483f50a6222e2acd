import { HttpApiMiddleware } from "effect/http-api"
import type { CurrentPrincipal } from "../../domain/Principal.ts"
import * as WebhookErrors from "./webhookErrorShape.ts"
import {
  Conflict,
  IdempotencyKeyReused,
  InternalError,
  InvalidRequest,
  PayloadTooLarge,
  Unauthorized,
  Unavailable,
  UnsupportedMediaType,
} from "../../domain/Errors.ts"

/** Every operation: an invalid request is a 400 that names the field. Declares the errors that every operation can have. */
export class RequestErrors extends HttpApiMiddleware.Service<RequestErrors>()("gatehouse/http/RequestErrors", {
  error: [InvalidRequest, PayloadTooLarge, UnsupportedMediaType, InternalError, Unavailable],
}) {}

/** Finds the principal of a request, and refuses one that the operation's `Admits` excludes. Then refuses an unknown query. */
export class Authorization extends HttpApiMiddleware.Service<Authorization, { provides: CurrentPrincipal }>()(
  "gatehouse/http/Authorization",
  { error: [Unauthorized, InvalidRequest, Unavailable] },
) {}

/** Chats: the body is read when there is memory for it. */
export class ChatBodies extends HttpApiMiddleware.Service<ChatBodies, { requires: CurrentPrincipal }>()(
  "gatehouse/http/ChatBodies",
  { error: [Unavailable] },
) {}

/** Reports of leaked keys: the body must have GitHub's signature. */
export class GithubSignature extends HttpApiMiddleware.Service<GithubSignature>()("gatehouse/http/GithubSignature", {
  error: [Unauthorized, PayloadTooLarge, InvalidRequest, Unavailable],
}) {}

/** `RequestErrors` for the webhook interface. */
export class WebhookRequestErrors extends HttpApiMiddleware.Service<WebhookRequestErrors>()(
  "gatehouse/http/WebhookRequestErrors",
  {
    error: [
      WebhookErrors.InvalidRequest,
      WebhookErrors.PayloadTooLarge,
      WebhookErrors.UnsupportedMediaType,
      WebhookErrors.InternalError,
      WebhookErrors.Unavailable,
    ],
  },
) {}

/** `Authorization` for the webhook interface. */
export class WebhookAuthorization extends HttpApiMiddleware.Service<
  WebhookAuthorization,
  { provides: CurrentPrincipal }
>()("gatehouse/http/WebhookAuthorization", {
  error: [
    WebhookErrors.Unauthorized,
    WebhookErrors.InvalidRequest,
    WebhookErrors.Forbidden,
    WebhookErrors.NotFound,
    WebhookErrors.Unavailable,
  ],
}) {}

/** Operations that create something: requests with the same `Idempotency-Key` create it once. */
export class Idempotent extends HttpApiMiddleware.Service<Idempotent, { requires: CurrentPrincipal }>()(
  "gatehouse/http/Idempotent",
  { error: [InvalidRequest, Conflict, IdempotencyKeyReused, Unavailable] },
) {}

/** `Idempotent` for the webhook interface. */
export class WebhookIdempotent extends HttpApiMiddleware.Service<WebhookIdempotent, { requires: CurrentPrincipal }>()(
  "gatehouse/http/WebhookIdempotent",
  {
    error: [
      WebhookErrors.InvalidRequest,
      WebhookErrors.Conflict,
      WebhookErrors.IdempotencyKeyReused,
      WebhookErrors.Unavailable,
    ],
  },
) {}
