import { Context, DateTime, Effect, Layer, Option, Redacted } from "effect"
import { SecureRandom } from "effect/crypto"
import * as Hex from "effect/encoding/Hex"
import type { AuditEntry } from "../audit/AuditEntry.ts"
import { AuditLog } from "../audit/AuditLog.ts"
import { checkUrl, ReceiverRules } from "./ReceiverRules.ts"
import { Cipher } from "../Cipher.ts"
import { eventBody, eventType, isDelivered } from "./Deliveries.ts"
import * as EndpointTests from "./EndpointTests.ts"
import type { Conflict, InvalidRequest, LimitReached, Unauthorized, Unavailable } from "../Errors.ts"
import { NotFound } from "../Errors.ts"
import { type Found, nextCursorIfMore, type Page, type WholeList, wholeListPage } from "../Page.ts"
import { Signer } from "./Signature.ts"
import { type CurrentPrincipal, currentTenant } from "../Principal.ts"
import type {
  CreateWebhookEndpoint,
  UpdateWebhookEndpoint,
  WebhookEndpoint,
  WebhookEndpointDetail,
} from "./WebhookEndpoint.ts"
import { Wakeups } from "./Wakeups.ts"
import { WebhookSender } from "./WebhookSender.ts"

/** An endpoint to be kept; its secret is encrypted for its id. */
export interface NewWebhookEndpoint {
  readonly id: string
  readonly orgId: string
  readonly url: string
  readonly secret: string
  readonly description: string | null
  readonly active: boolean
  readonly now: DateTime.Utc
}

/** What changes of an endpoint; `undefined` stays. */
export interface WebhookEndpointChanges {
  readonly url: string | undefined
  readonly secret: string | undefined
  /** Until when the secret so far signs, too, when `secret` replaces it. */
  readonly previousSecretUntil: DateTime.Utc
  readonly description: string | null | undefined
  readonly active: boolean | undefined
  readonly now: DateTime.Utc
}

/** Where to send, and the secrets that sign now, as stored; the current one first. */
export interface SigningEndpoint {
  readonly url: string
  readonly secrets: ReadonlyArray<string>
}

/** Where endpoints are kept. */
export class WebhookEndpointRepository extends Context.Service<
  WebhookEndpointRepository,
  {
    /** Inserts an endpoint. Fails when the org has as many as it may have. */
    readonly insert: (
      endpoint: NewWebhookEndpoint,
      entry: AuditEntry,
    ) => Effect.Effect<void, LimitReached | Unavailable>
    /** Endpoints of the org, oldest first. */
    readonly list: (orgId: string, page: Page) => Effect.Effect<Found<WebhookEndpoint>, Unavailable>
    /** An endpoint with its health, and the states of its newest deliveries. */
    readonly get: (orgId: string, id: string) => Effect.Effect<WebhookEndpointDetail, NotFound | Unavailable>
    /**
     * Changes an endpoint; one that becomes inactive has its pending deliveries canceled. They count as canceled at once,
     * however many they are; the rows of many follow in a sweep.
     */
    readonly update: (
      orgId: string,
      id: string,
      changes: WebhookEndpointChanges,
      entry: AuditEntry,
    ) => Effect.Effect<void, NotFound | Unavailable>
    /**
     * Deactivates an endpoint that cannot keep up, as `failing`, and cancels its pending deliveries as `update` does.
     * Returns whether it was active.
     */
    readonly deactivate: (
      orgId: string,
      id: string,
      now: DateTime.Utc,
      entry: AuditEntry,
    ) => Effect.Effect<boolean, Unavailable>
    /** Deletes an endpoint and cancels its pending deliveries, as `update` does. */
    readonly remove: (
      orgId: string,
      id: string,
      now: DateTime.Utc,
      entry: AuditEntry,
    ) => Effect.Effect<void, NotFound | Unavailable>
    readonly findSigning: (
      orgId: string,
      id: string,
      now: DateTime.Utc,
    ) => Effect.Effect<SigningEndpoint, NotFound | Unavailable>
  }
>()("gatehouse/domain/WebhookEndpoints/WebhookEndpointRepository") {}

export const endpointNotFound = () => new NotFound({ error: "There is no such webhook endpoint." })

/** What an endpoint said to a test. */
export interface TestResult {
  readonly delivered: boolean
  readonly status: number | null
  readonly body: string | null
  readonly error: string | null
}

/** How long a replaced secret goes on signing beside the new one. */
const secretOverlapHours = 24

/** A tenant's webhook endpoints. */
export class WebhookEndpoints extends Context.Service<
  WebhookEndpoints,
  {
    readonly create: (
      input: typeof CreateWebhookEndpoint.Type,
    ) => Effect.Effect<string, InvalidRequest | LimitReached | Unauthorized | Unavailable, CurrentPrincipal>
    readonly list: (
      asked?: WholeList,
    ) => Effect.Effect<
      { readonly webhook_endpoints: ReadonlyArray<WebhookEndpoint>; readonly next_cursor?: string },
      Unauthorized | Unavailable,
      CurrentPrincipal
    >
    /** An endpoint with its health. */
    readonly get: (
      id: string,
    ) => Effect.Effect<WebhookEndpointDetail, NotFound | Unauthorized | Unavailable, CurrentPrincipal>
    readonly update: (
      input: typeof UpdateWebhookEndpoint.Type,
    ) => Effect.Effect<void, InvalidRequest | NotFound | Unauthorized | Unavailable, CurrentPrincipal>
    readonly remove: (id: string) => Effect.Effect<void, NotFound | Unauthorized | Unavailable, CurrentPrincipal>
    /**
     * Sends the endpoint a signed `job.completed` with made-up ids, now, and says what it said. A second test of the
     * endpoint, or one too many of the org, in flight in this process is a `Conflict`.
     */
    readonly test: (
      id: string,
    ) => Effect.Effect<TestResult, NotFound | Conflict | Unauthorized | Unavailable, CurrentPrincipal>
  }
>()("gatehouse/domain/WebhookEndpoints") {
  static readonly layer = Layer.effect(
    WebhookEndpoints,
    Effect.gen(function* () {
      const repository = yield* WebhookEndpointRepository
      const cipher = yield* Cipher
      const signer = yield* Signer
      const sender = yield* WebhookSender
      const random = yield* SecureRandom.SecureRandom
      const rules = yield* ReceiverRules
      const audit = yield* AuditLog
      const wakeups = yield* Wakeups
      const bounded = EndpointTests.make()

      const create = Effect.fn("WebhookEndpoints.create")(function* (input: typeof CreateWebhookEndpoint.Type) {
        const orgId = yield* currentTenant
        yield* checkUrl("url", input.url, rules)
        const id = yield* random.ulid
        const { url, active = true } = input
        const endpoint = {
          id,
          orgId,
          url,
          secret: yield* cipher.encrypt(Redacted.make(input.signing_secret), id),
          description: input.description ?? null,
          active,
          now: yield* DateTime.now,
        }
        const details = { host: new URL(url).host, active }
        const entry = yield* audit.entry({ action: "webhook_endpoint.create", target: id, details })
        yield* repository.insert(endpoint, entry)
        return id
      })

      const list = Effect.fn("WebhookEndpoints.list")(function* (asked?: WholeList) {
        const orgId = yield* currentTenant
        const found = yield* repository.list(orgId, wholeListPage(asked))
        return { webhook_endpoints: found.items, ...nextCursorIfMore(found, (one) => one.webhook_endpoint_id) }
      })

      const get = Effect.fn("WebhookEndpoints.get")(function* (id: string) {
        const orgId = yield* currentTenant
        return yield* repository.get(orgId, id)
      })

      /** The secret to keep, when there is one: the same one again, as in a repeated request, replaces nothing. */
      const newSecret = Effect.fnUntraced(function* (
        orgId: string,
        { id, signing_secret: wanted }: typeof UpdateWebhookEndpoint.Type,
        now: DateTime.Utc,
      ) {
        if (wanted === undefined) return undefined
        const { secrets } = yield* repository.findSigning(orgId, id, now)
        // One that cannot be read any more is no reason against a new one.
        const current = yield* Effect.option(
          Effect.catchDefect(cipher.decrypt(secrets[0]!, id), () => Effect.fail("lost")),
        )
        if (Option.isSome(current) && Redacted.value(current.value) === wanted) return undefined
        return yield* cipher.encrypt(Redacted.make(wanted), id)
      })

      const update = Effect.fn("WebhookEndpoints.update")(function* (input: typeof UpdateWebhookEndpoint.Type) {
        const orgId = yield* currentTenant
        if (input.url !== undefined) yield* checkUrl("url", input.url, rules)
        const now = yield* DateTime.now
        const secret = yield* newSecret(orgId, input, now)
        const { id, url, description, active } = input
        const previousSecretUntil = DateTime.add(now, { hours: secretOverlapHours })
        const details = {
          ...(url === undefined ? {} : { host: new URL(url).host }),
          ...(active === undefined ? {} : { active }),
          ...(description === undefined ? {} : { description }),
          secretChanged: secret !== undefined,
        }
        const entry = yield* audit.entry({ action: "webhook_endpoint.update", target: id, details })
        yield* repository.update(orgId, id, { url, secret, previousSecretUntil, description, active, now }, entry)
        if (active === false) yield* wakeups.sweeps
      })

      const remove = Effect.fn("WebhookEndpoints.remove")(function* (id: string) {
        const orgId = yield* currentTenant
        const entry = yield* audit.entry({ action: "webhook_endpoint.delete", target: id, details: {} })
        yield* repository.remove(orgId, id, yield* DateTime.now, entry)
        yield* wakeups.sweeps
      })

      const sendTest = Effect.fnUntraced(function* (orgId: string, id: string) {
        const now = yield* DateTime.now
        const { url, secrets } = yield* repository.findSigning(orgId, id, now)
        const status = "completed"
        const ids = { job_id: yield* random.ulid, workflow: "test", deployment_id: null }
        const result = { result: { test: true }, error: null, mapped_stack: null }
        const body = eventBody({ ...ids, status, ...result }, Hex.encode(yield* random.randomBytes(16)))
        const sign = yield* signer.prepare(yield* Effect.forEach(secrets, (stored) => cipher.decrypt(stored, id)))
        const timestamp = Math.floor(DateTime.toEpochMillis(now) / 1000)
        const headers = sign({ deliveryId: yield* random.ulid, event: eventType(status), body, timestamp })
        const outcome = yield* sender.send({ url, headers, body })
        const delivered = isDelivered(outcome)
        return { delivered, status: outcome.status, body: outcome.body, error: outcome.failure?.message ?? null }
      })

      const test = Effect.fn("WebhookEndpoints.test")(function* (id: string) {
        const orgId = yield* currentTenant
        return yield* bounded(orgId, id, sendTest(orgId, id))
      })

      return WebhookEndpoints.of({ create, list, get, update, remove, test })
    }),
  )
}
