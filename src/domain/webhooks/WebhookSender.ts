import type { DateTime, Duration, Effect, Redacted } from "effect"
import { Context } from "effect"
import type { ClientIdentity, EndpointAuth } from "./EndpointAuth.ts"

/** One signed request to a receiver. */
export interface WebhookRequest {
  readonly url: string
  /** Whose request it is: the id of an org, or "" for the administrator. Owners share no connection and no token. */
  readonly owner: string
  readonly headers: Readonly<Record<string, string>>
  /** The exact bytes that were signed. */
  readonly body: string
  /** Adds a token to the headers, or a certificate to the connection. */
  readonly auth?: Redacted.Redacted<EndpointAuth> | undefined
}

/** Why an attempt got no complete response. */
export const failureKinds = [
  /** The connection and the complete response took longer than the deadline of an attempt. */
  "timeout",
  /** The host name does not resolve. */
  "dns",
  /** The host has an address that the service does not call (private, loopback, reserved …), or the URL is invalid. */
  "refused_address",
  /** The certificate is invalid, or TLS failed in another way. */
  "tls",
  /** The connection was refused, reset or closed. */
  "connection",
  /** The response is too long, or is not HTTP. */
  "bad_response",
  /** A secret of the receiver cannot be decrypted with the keys that the server has. Nothing was sent. */
  "secret",
  /** The token that authorizes the request could not be fetched. Nothing was sent. */
  "token",
] as const
export type FailureKind = (typeof failureKinds)[number]

export interface AttemptOutcome {
  /** The status of the response; `null` when there was none. */
  readonly status: number | null
  readonly failure: { readonly kind: FailureKind; readonly message: string } | null
  /** The first 4 KiB of the response body as text. NULs and bytes that are not UTF-8 are replaced. */
  readonly body: string | null
  /** The response's `Retry-After` header, unparsed. */
  readonly retryAfter: string | null
  readonly duration: Duration.Duration
}

export class WebhookSender extends Context.Service<
  WebhookSender,
  {
    /** Sends a request once. Never fails: every failure is an outcome. */
    readonly send: (request: WebhookRequest) => Effect.Effect<AttemptOutcome>
    /**
     * Why nothing can be sent to the host of a URL, as a sentence: it resolves to an address that is not called. `null`
     * when that is not so, its name does not resolve now, or an egress proxy decides.
     */
    readonly hostFault: (url: string) => Effect.Effect<string | null>
    /** When a certificate ends. Fails with a sentence that begins with the field if the two cannot be used. */
    readonly checkIdentity: (identity: ClientIdentity) => Effect.Effect<DateTime.Utc, string>
  }
>()("gatehouse/domain/WebhookSender") {}
