import { HttpApiMiddleware } from "effect/http-api"
import type { CurrentPrincipal } from "../../domain/Principal.ts"
import * as WebhookErrors from "./webhookErrors.ts"
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

/** Every operation: a request that does not match its schema is a 400 that names the field. Lists the server's own faults. */
export class RequestErrors extends HttpApiMiddleware.Service<RequestErrors>()("gatehouse/http/RequestErrors", {
  error: [InvalidRequest, PayloadTooLarge, UnsupportedMediaType, InternalError, Unavailable],
}) {}

/** Decides who calls an operation, and lets in whom the operation's `Admits` names. */
export class Authorization extends HttpApiMiddleware.Service<Authorization, { provides: CurrentPrincipal }>()(
  "gatehouse/http/Authorization",
  { error: [Unauthorized, Unavailable] },
) {}

/** Chats: their bodies wait until there is memory for them. */
export class ChatBodies extends HttpApiMiddleware.Service<ChatBodies, { requires: CurrentPrincipal }>()(
  "gatehouse/http/ChatBodies",
  { error: [Unavailable] },
) {}

/** `RequestErrors` in the shape of the webhook interface. */
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

/** `Authorization` in the shape of the webhook interface. */
export class WebhookAuthorization extends HttpApiMiddleware.Service<
  WebhookAuthorization,
  { provides: CurrentPrincipal }
>()("gatehouse/http/WebhookAuthorization", { error: [WebhookErrors.Unauthorized, WebhookErrors.Unavailable] }) {}

/** Operations that create something: with an `Idempotency-Key` they do so once, for any number of requests. */
export class Idempotent extends HttpApiMiddleware.Service<Idempotent, { requires: CurrentPrincipal }>()(
  "gatehouse/http/Idempotent",
  { error: [InvalidRequest, Conflict, IdempotencyKeyReused, Unavailable] },
) {}

/** The same at the webhook interface. */
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
