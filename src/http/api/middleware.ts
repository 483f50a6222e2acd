import { HttpApiMiddleware } from "effect/http-api"
import type { CurrentCaller } from "../../domain/Caller.ts"
import type { CurrentRun } from "../../domain/deployments/Deployment.ts"
import type { CurrentTenant } from "../../domain/Tenant.ts"
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

/** Operations that need the caller: guarded mode requires a credential, and a credential that is sent is checked. */
export class Authorization extends HttpApiMiddleware.Service<Authorization, { provides: CurrentCaller }>()(
  "gatehouse/http/Authorization",
  { error: [Unauthorized, Unavailable] },
) {}

/** Operations that anyone may call: a credential that is sent is checked, and none is required in either mode. */
export class OptionalAuthorization extends HttpApiMiddleware.Service<
  OptionalAuthorization,
  { provides: CurrentCaller }
>()("gatehouse/http/OptionalAuthorization", { error: [Unauthorized, Unavailable] }) {}

/** Chats: their bodies wait until there is memory for them. */
export class ChatBodies extends HttpApiMiddleware.Service<ChatBodies, { requires: CurrentCaller }>()(
  "gatehouse/http/ChatBodies",
  { error: [Unavailable] },
) {}

/** Operations of CI runs: a valid OIDC token of a run that may register, in both modes. */
export class CiAuthorization extends HttpApiMiddleware.Service<CiAuthorization, { provides: CurrentRun }>()(
  "gatehouse/http/CiAuthorization",
  { error: [Unauthorized, Unavailable] },
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

/** Operations of the webhook interface: a valid key in `x-api-key`, in both modes; its org is the tenant. */
export class KeyAuthorization extends HttpApiMiddleware.Service<KeyAuthorization, { provides: CurrentTenant }>()(
  "gatehouse/http/KeyAuthorization",
  { error: [WebhookErrors.Unauthorized, WebhookErrors.Unavailable] },
) {}

/** Operations that create something: with an `Idempotency-Key` they do so once, for any number of requests. */
export class Idempotent extends HttpApiMiddleware.Service<Idempotent, { requires: CurrentCaller }>()(
  "gatehouse/http/Idempotent",
  { error: [InvalidRequest, Conflict, IdempotencyKeyReused, Unavailable] },
) {}

/** The same at the webhook interface. */
export class WebhookIdempotent extends HttpApiMiddleware.Service<WebhookIdempotent, { requires: CurrentTenant }>()(
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
