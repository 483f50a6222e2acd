import { Context, type DateTime, type Effect } from "effect"
import type { AuditEntry } from "../audit/AuditEntry.ts"
import { Conflict, InvalidRequest, type LimitReached, NotFound, type Unavailable } from "../Errors.ts"
import type { Found, Page } from "../Page.ts"
import type { Metadata } from "../Schemas.ts"
import type { ShownAuth } from "./EndpointAuth.ts"
import type { EventFilter } from "./EventFilter.ts"
import {
  type EndpointBatch,
  endpointDefaults,
  type HeaderNames,
  type PayloadKind,
  type SignatureKind,
  type WebhookEndpoint,
  type WebhookEndpointDetail,
} from "./WebhookEndpoint.ts"

/** The optional settings of an endpoint. */
export interface EndpointSettings {
  /** `null`: every event except the service's own. */
  readonly eventTypes: ReadonlyArray<string> | null
  /** The extra headers as JSON, encrypted for the endpoint's id, and their names. */
  readonly headers: { readonly stored: string; readonly names: ReadonlyArray<string> } | null
  /** How requests are authorized: as JSON, encrypted for the endpoint's id, and what may be shown of it. */
  readonly auth: { readonly stored: string; readonly shown: ShownAuth } | null
  /** The most attempts in any second; `null` for no limit. */
  readonly maxPerSecond: number | null
  readonly ordered: boolean
  /** The waits before the retries, in seconds; `null` for the schedule of the service. */
  readonly retryDelays: ReadonlyArray<number> | null
  readonly signature: typeof SignatureKind.Type
  /** The id of the endpoint in the caller's system; unique in the org. */
  readonly externalId: string | null
  readonly metadata: Metadata | null
  /** `null`: every event, whatever its channels. */
  readonly channels: ReadonlyArray<string> | null
  /** `null`: a request for each event. */
  readonly batch: EndpointBatch | null
  /** `null`: every event, whatever its content. */
  readonly filter: EventFilter | null
  readonly payload: typeof PayloadKind.Type
  readonly headerNames: typeof HeaderNames.Type
}

/** The settings of an endpoint that has none. */
export const defaultSettings: EndpointSettings = {
  externalId: null,
  metadata: null,
  channels: null,
  filter: null,
  batch: null,
  eventTypes: null,
  headers: null,
  auth: null,
  maxPerSecond: null,
  retryDelays: null,
  ...endpointDefaults,
}

/** A new endpoint. Its secret is encrypted for its id. */
interface NewWebhookEndpoint extends EndpointSettings {
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
  /** With `secret`: the stored one that it replaces. It stays the replaced one if another request has replaced it. */
  readonly replacedSecret?: string | undefined
  /** When `secret` replaces a secret: until when the replaced one also signs. */
  readonly previousSecretUntil: DateTime.Utc
  readonly description: string | null | undefined
  readonly active: boolean | undefined
  readonly now: DateTime.Utc
}

/** The URL of an endpoint, and what its requests are signed with now. */
interface SigningEndpoint {
  readonly url: string
  /** The encrypted secrets, the current one first. */
  readonly secrets: ReadonlyArray<string>
  /** The encrypted extra headers. */
  readonly headers: string | null
  /** The encrypted `EndpointAuth`, as JSON. */
  readonly auth: string | null
  readonly batch: EndpointBatch | null
  readonly payload: typeof PayloadKind.Type
  readonly headerNames: typeof HeaderNames.Type
  /** The patterns of the events that it receives; `null`: the default ones. */
  readonly eventTypes: ReadonlyArray<string> | null
  /** The encrypted private keys of the org, the newest first; empty without `ed25519`. */
  readonly signingKeys: ReadonlyArray<string>
}

/** An endpoint by its id, or by the caller's own. */
export type EndpointRef = { readonly id: string } | { readonly externalId: string }

/** The endpoints of orgs. */
export class WebhookEndpointRepository extends Context.Service<
  WebhookEndpointRepository,
  {
    /** Inserts an endpoint. Fails when the org has reached its limit, or another one has its `externalId`. */
    readonly insert: (
      endpoint: NewWebhookEndpoint,
      entry: AuditEntry,
    ) => Effect.Effect<void, Conflict | LimitReached | Unavailable>
    /** Endpoints of the org, oldest first: all, or those with the ids. */
    readonly list: (
      orgId: string,
      page: Page,
      ids?: ReadonlyArray<string>,
    ) => Effect.Effect<Found<WebhookEndpoint>, Unavailable>
    /** An endpoint with the states of its newest deliveries. */
    readonly get: (
      orgId: string,
      by: EndpointRef,
    ) => Effect.Effect<Omit<WebhookEndpointDetail, "health">, NotFound | Unavailable>
    /**
     * Changes an endpoint. Deactivating it cancels its pending deliveries. All of them count as canceled at once; when
     * there are many, a sweep changes their rows. Fails with an `InvalidRequest` when its headers or its authorization
     * would go to another origin, and with a `Conflict` when another endpoint has its `externalId`.
     */
    readonly update: (
      orgId: string,
      id: string,
      changes: WebhookEndpointChanges,
      entry: AuditEntry,
    ) => Effect.Effect<void, Conflict | InvalidRequest | LimitReached | NotFound | Unavailable>
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
    readonly findForSending: (
      orgId: string,
      id: string,
      now: DateTime.Utc,
    ) => Effect.Effect<SigningEndpoint, NotFound | Unavailable>
  }
>()("gatehouse/domain/WebhookEndpoints/WebhookEndpointRepository") {}

/**
 * Whether a change of the URL would send the extra headers, which answers never show, to another origin. Whoever may
 * change the URL, such as a portal session, would read them there.
 */
export const sendsHeadersElsewhere = (from: string, to: string) => new URL(from).origin !== new URL(to).origin

export const headersOfOtherOrigin = () =>
  new InvalidRequest({
    error:
      "url has another origin, and the headers and the auth of the endpoint are for the old one. Send headers too, or " +
      "headers: null. The same holds for auth.",
  })

export const externalIdTaken = () =>
  new Conflict({ error: "external_id: another endpoint of the org has it. Change that endpoint, or send another one." })

export const endpointNotFound = () => new NotFound({ error: "There is no such webhook endpoint." })
