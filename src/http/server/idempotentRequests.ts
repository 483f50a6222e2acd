import { Context, Effect, Layer } from "effect"
import { HttpServerRequest, HttpServerResponse } from "effect/http"
import type { HttpApiEndpoint, HttpApiGroup } from "effect/http-api"
import { actorOf, CurrentPrincipal, tenantOf } from "../../domain/Principal.ts"
import { type Conflict, type IdempotencyKeyReused, InvalidRequest, type Unavailable } from "../../domain/Errors.ts"
import { Idempotency, type StoredResponse, TenantIdempotency } from "../../domain/Idempotency.ts"
import { Idempotent, WebhookIdempotent } from "../api/access.ts"

const visibleAscii = /^[\x21-\x7e]{1,255}$/
const malformed = new InvalidRequest({ error: "Idempotency-Key must be 1 to 255 visible ASCII characters." })

/** The caller that an idempotency key belongs to: unlike `actorOf`, another one for each org that is acted for. */
const callerOf = CurrentPrincipal.use(({ principal }) => {
  const orgId = tenantOf(principal) ?? ""
  const caller = (id: string) => Effect.succeed({ orgId, caller: id })
  if ("keyId" in principal) return caller(principal.keyId)
  if (principal._tag === "Portal") return caller(principal.portalId)
  if ("person" in principal) return caller(actorOf(principal))
  return caller(orgId === "" ? principal._tag : `${principal._tag} ${orgId}`)
})

/** The response as it is stored. Fails with a response that is not a success: it is sent, but not stored. */
const toStored = (response: HttpServerResponse.HttpServerResponse) =>
  response.status === 200 && response.body._tag === "Uint8Array"
    ? Effect.succeed<StoredResponse>({ status: response.status, body: new TextDecoder().decode(response.body.body) })
    : Effect.fail(response)

/** An operation with the errors of its idempotency key. */
type Responded<E, R> = Effect.Effect<
  HttpServerResponse.HttpServerResponse,
  E | InvalidRequest | Conflict | IdempotencyKeyReused | Unavailable,
  R
>

/** Runs an operation once for each `Idempotency-Key` of its caller: draft-ietf-httpapi-idempotency-key-header-07. */
const make =
  (idempotency: Idempotency["Service"]) =>
  <E, R>(
    operation: Effect.Effect<HttpServerResponse.HttpServerResponse, E, R>,
    { endpoint, group }: { readonly endpoint: HttpApiEndpoint.Top; readonly group: HttpApiGroup.Top },
  ) =>
    Effect.flatMap(HttpServerRequest.HttpServerRequest, (request): Responded<E, R | CurrentPrincipal> => {
      const key = request.headers["idempotency-key"]
      if (key === undefined) return operation
      if (!visibleAscii.test(key)) return Effect.fail(malformed)
      return Effect.gen(function* () {
        // Before the transaction: a slow body would keep it open.
        const body = yield* Effect.orDie(request.text)
        const { replayed, ...stored } = yield* idempotency.once(
          { ...(yield* callerOf), operation: `${group.identifier}.${endpoint.identifier}`, key },
          `${request.method} ${request.url}\n${body}`,
          Effect.flatMap(operation, toStored),
        )
        return HttpServerResponse.text(stored.body, {
          status: stored.status,
          contentType: "application/json",
          headers: replayed ? { "idempotency-replayed": "true" } : {},
        })
      }).pipe(Effect.catchIf(HttpServerResponse.isHttpServerResponse, Effect.succeed))
    })

/** The middlewares of operations that create something, for both interfaces. */
export const layer = Layer.effectContext(
  Effect.gen(function* () {
    return Context.make(Idempotent, make(yield* Idempotency)).pipe(
      Context.add(WebhookIdempotent, make(yield* TenantIdempotency)),
    )
  }),
)
