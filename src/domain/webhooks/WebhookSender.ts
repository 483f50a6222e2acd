import type { Duration, Effect } from "effect"
import { Context } from "effect"

/** One signed request to a receiver. */
export interface WebhookRequest {
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  /** The exact bytes that were signed. */
  readonly body: string
}

/** Why an attempt got no answer, or none that counts. */
export type FailureKind =
  /** The endpoint's secret cannot be read: the server has lost the key that it was encrypted with. Nothing was sent. */
  | "secret"
  /** Nothing within the time that an attempt has, connection and body included. */
  | "timeout"
  /** The host's name does not resolve. */
  | "dns"
  /** An address that the service does not call (contract: private, loopback, reserved …), or a url that it cannot. */
  | "refused_address"
  /** The certificate is not valid, or TLS failed in another way. */
  | "tls"
  /** The connection was refused, reset or closed. */
  | "connection"
  /** The answer is longer than is read, or no HTTP. */
  | "bad_response"

/** What an attempt came to. */
export interface AttemptOutcome {
  /** The answer's status; `null` when there was none. */
  readonly status: number | null
  readonly failure: { readonly kind: FailureKind; readonly message: string } | null
  /** The first 4 KiB of the answer's body, as text; bytes that are no UTF-8 and NULs are replaced. */
  readonly body: string | null
  /** The answer's `Retry-After`, as it came. */
  readonly retryAfter: string | null
  readonly duration: Duration.Duration
}

/** Sends webhooks. */
export class WebhookSender extends Context.Service<
  WebhookSender,
  {
    /** Sends a request once. Never fails: whatever happens is an outcome. */
    readonly send: (request: WebhookRequest) => Effect.Effect<AttemptOutcome>
  }
>()("gatehouse/domain/WebhookSender") {}
