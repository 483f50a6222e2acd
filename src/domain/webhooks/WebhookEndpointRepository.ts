import { Context, type DateTime, type Effect } from "effect"
import type { AuditEntry } from "../audit/AuditEntry.ts"
import { type LimitReached, NotFound, type Unavailable } from "../Errors.ts"
import type { Found, Page } from "../Page.ts"
import type { WebhookEndpoint, WebhookEndpointDetail } from "./WebhookEndpoint.ts"

/** The optional settings of an endpoint. */
export interface EndpointSettings {
  /** `null`: every event except the service's own. */
  readonly eventTypes: ReadonlyArray<string> | null
}

/** The settings of an endpoint that has none. */
export const defaultSettings: EndpointSettings = { eventTypes: null }

/** A new endpoint. Its secret is encrypted for its id. */
export interface NewWebhookEndpoint extends EndpointSettings {
  readonly id: string
  readonly orgId: string
  readonly url: string
  readonly secret: string
  readonly description: string | null
  readonly active: boolean
  readonly now: DateTime.Utc
}

/** The changes of an endpoint. A field that is `undefined` does not change. */
export interface WebhookEndpointChanges extends Partial<EndpointSettings> {
  readonly url: string | undefined
  readonly secret: string | undefined
  /** When `secret` replaces a secret: until when the replaced one also signs. */
  readonly previousSecretUntil: DateTime.Utc
  readonly description: string | null | undefined
  readonly active: boolean | undefined
  readonly now: DateTime.Utc
}

/** The URL of an endpoint, and the encrypted secrets that sign now, the current one first. */
export interface SigningEndpoint {
  readonly url: string
  readonly secrets: ReadonlyArray<string>
}

/** The endpoints of orgs. */
export class WebhookEndpointRepository extends Context.Service<
  WebhookEndpointRepository,
  {
    /** Inserts an endpoint. Fails when the org has reached its limit. */
    readonly insert: (
      endpoint: NewWebhookEndpoint,
      entry: AuditEntry,
    ) => Effect.Effect<void, LimitReached | Unavailable>
    /** Endpoints of the org, oldest first. */
    readonly list: (orgId: string, page: Page) => Effect.Effect<Found<WebhookEndpoint>, Unavailable>
    /** An endpoint with its health, and the states of its newest deliveries. */
    readonly get: (orgId: string, id: string) => Effect.Effect<WebhookEndpointDetail, NotFound | Unavailable>
    /**
     * Changes an endpoint. Deactivating it cancels its pending deliveries. All of them count as canceled at once; when
     * there are many, a sweep changes their rows.
     */
    readonly update: (
      orgId: string,
      id: string,
      changes: WebhookEndpointChanges,
      entry: AuditEntry,
    ) => Effect.Effect<void, NotFound | Unavailable>
    /**
     * Deactivates an endpoint with a too large backlog as `failing`, and cancels its pending deliveries like `update`.
     * Returns whether it was active.
     */
    readonly deactivate: (
      orgId: string,
      id: string,
      now: DateTime.Utc,
      entry: AuditEntry,
    ) => Effect.Effect<boolean, Unavailable>
    /** Deletes an endpoint, and cancels its pending deliveries like `update`. */
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
