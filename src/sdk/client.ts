import { Context, Effect, Redacted } from "effect"
import { HttpClient, HttpClientRequest } from "effect/http"
import { HttpApiClient } from "effect/http-api"
import { isMeantAsKey } from "../domain/keys/ApiKey.ts"
import { Api } from "../http/api/Api.ts"
import { withoutRedirects } from "./withoutRedirects.ts"

/** The address of the service and the credential of the requests. */
export interface ClientOptions {
  /** The address of the service: `https://gatehouse.example.com`. */
  readonly baseUrl: string | URL
  /**
   * A token of ADMIN_TOKEN, an API key (`svc_…`) or, to register a deployment, the OIDC token of the CI run. Default:
   * none, which is enough in open mode.
   */
  readonly credential?: string | Redacted.Redacted<string> | undefined
  /** The org that the administrator acts for under `/v1`. An API key has its org. */
  readonly orgId?: string | undefined
}

/** One method for each operation, by group: `client.projects.create({ payload: { name: "docs" } })`. */
export type Client = HttpApiClient.ForApi<typeof Api>

const IdempotencyKey = Context.Reference<string | undefined>("gatehouse/client/IdempotencyKey", {
  defaultValue: () => undefined,
})

/**
 * Sends an `Idempotency-Key` with a call that creates something, which makes the call safe to repeat. A call with the
 * same key within 24 hours gets the same response and creates nothing. Fails with `IdempotencyKeyReused` if the key was
 * used for another request, and with `Conflict` while the first call is in flight.
 *
 * @param key 1 to 255 visible ASCII characters; use a new key for each thing to create
 * @example
 * ```ts
 * gatehouse.jobs.create({ payload: { workflow: "nightly-report" } }).pipe(
 *   Gatehouse.withIdempotencyKey(crypto.randomUUID()),
 *   Effect.retry({ times: 3 }),
 * )
 * ```
 */
export const withIdempotencyKey =
  (key: string) =>
  <A, E, R>(call: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.provideService(call, IdempotencyKey, key)

/**
 * Makes the typed client. It requires only an `HttpClient`.
 *
 * A method fails with the errors of its operation (`NotFound`, `Forbidden`, …; `_tag` distinguishes them, and each has
 * the `error` sentence and the `code` of the response), with `HttpClientError` if there is no response or it is a
 * redirect, and with `SchemaError` if the request or the response does not match the definition.
 *
 * Numbers in responses are JavaScript's. The text of the response, with `responseMode: "response-only"`, has all their
 * digits, and `JSON.rawJSON` sends them.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { FetchHttpClient } from "effect/http"
 * import * as Gatehouse from "gatehouse-server/client"
 *
 * const firstKey = Effect.gen(function* () {
 *   const gatehouse = yield* Gatehouse.make({ baseUrl: "http://127.0.0.1:3000" })
 *   const { projectId } = yield* gatehouse.projects.create({ payload: { name: "docs" } })
 *   const { key } = yield* gatehouse.keys.createForProject({ payload: { name: "ci", projectId } })
 *   return yield* gatehouse.keys.validate({ payload: { key } })
 * })
 *
 * Effect.runPromise(firstKey.pipe(Effect.provide(FetchHttpClient.layer)))
 * ```
 *
 * @example With promises
 * ```ts
 * import { Effect } from "effect"
 * import { FetchHttpClient } from "effect/http"
 * import * as Gatehouse from "gatehouse-server/client"
 *
 * const gatehouse = await Effect.runPromise(
 *   Gatehouse.make({ baseUrl: "https://gatehouse.example.com", credential: process.env.ADMIN_TOKEN }).pipe(
 *     Effect.provide(FetchHttpClient.layer),
 *   ),
 * )
 * const project = await Effect.runPromise(gatehouse.projects.create({ payload: { name: "docs" } }))
 * ```
 */
export const make = ({
  baseUrl,
  credential,
  orgId,
}: ClientOptions): Effect.Effect<Client, never, HttpClient.HttpClient> =>
  HttpApiClient.make(Api, {
    baseUrl,
    transformClient: (client) =>
      HttpClient.mapRequestEffect(withoutRedirects(client), (request) =>
        Effect.map(IdempotencyKey, (key) => {
          const keyed = HttpClientRequest.setHeaders(request, {
            ...(key === undefined ? {} : { "idempotency-key": key }),
            ...(orgId === undefined ? {} : { "x-org-id": orgId }),
          })
          // An operation with a credential of its own (register) keeps it.
          return credential === undefined || "authorization" in request.headers
            ? keyed
            : withCredential(keyed, credential)
        }),
      ),
  })

/** Sends an API key in `x-api-key`, which both interfaces read, and any other credential as a bearer token. */
const withCredential = (
  request: HttpClientRequest.HttpClientRequest,
  credential: string | Redacted.Redacted<string>,
) => {
  const secret = Redacted.isRedacted(credential) ? Redacted.value(credential) : credential
  return isMeantAsKey(secret)
    ? HttpClientRequest.setHeader(request, "x-api-key", secret)
    : HttpClientRequest.bearerToken(request, secret)
}
