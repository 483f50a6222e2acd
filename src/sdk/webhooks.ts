import { createHmac, timingSafeEqual } from "node:crypto"

interface WebhookEventFields {
  readonly job_id: string
  /** 32 hex characters, the same in every attempt and for every receiver of the event. */
  readonly nonce: string
  readonly workflow: string
  readonly deployment_id: string | null
}

/** The body of a job's webhook: always these nine fields. `event` distinguishes its two kinds. */
export type WebhookEvent =
  | (WebhookEventFields & {
      readonly event: "job.completed"
      readonly status: "completed"
      /** Any JSON. */
      readonly result: unknown
      readonly error: null
      readonly mapped_stack: null
    })
  | (WebhookEventFields & {
      readonly event: "job.failed"
      readonly status: "failed"
      readonly result: null
      readonly error: string
      /** The mapped stack of the failed job: any JSON, or null if there is none. */
      readonly mapped_stack: unknown
    })

/** The body of the webhook of an event that you publish, or of one of the service's own. */
export interface PublishedEvent<Type extends string = string, Data = unknown> {
  readonly event: Type
  readonly event_id: string
  /** 32 hex characters, the same in every attempt and for every receiver of the event. */
  readonly nonce: string
  /** ISO 8601, UTC. */
  readonly created_at: string
  readonly data: Data
}

/** What is wrong with a webhook, or with the options of the call (`invalid_secret`, `invalid_tolerance`). */
export type WebhookVerificationErrorCode =
  | "missing_header"
  | "invalid_header"
  | "timestamp_too_old"
  | "timestamp_too_new"
  | "signature_mismatch"
  | "invalid_body"
  | "invalid_secret"
  | "invalid_tolerance"

/** The webhook is not authentic: answer 400 and ignore it. The message contains no secret. */
export class WebhookVerificationError extends Error {
  override readonly name = "WebhookVerificationError"
  readonly code: WebhookVerificationErrorCode

  constructor(code: WebhookVerificationErrorCode, message: string) {
    super(message)
    this.code = code
  }
}

/** A plain object with names in any case (such as Node's `IncomingHttpHeaders`), or a `Headers`. */
export type WebhookHeaders =
  | Readonly<Record<string, string | ReadonlyArray<string> | undefined>>
  | { readonly get: (name: string) => string | null | undefined }

export interface VerifyWebhookOptions {
  readonly headers: WebhookHeaders
  /**
   * The raw body, exactly as received; text stands for its UTF-8 bytes. A body that was parsed and serialized differs.
   */
  readonly body: string | Uint8Array | ArrayBuffer
  /** The endpoint's `signing_secret`. While you change it: both the new and the old secret. */
  readonly secret: string | ReadonlyArray<string>
  /** The maximum difference in seconds between `webhook-timestamp` and this machine's clock. Default: 300. */
  readonly toleranceSeconds?: number
  /**
   * Refuses a webhook that has only `x-webhook-signature`. That signature covers no timestamp, so a recorded delivery
   * without the other headers could be replayed forever. Every delivery of Gatehouse has the other headers. Default: false.
   */
  readonly requireTimestamp?: boolean
}

export interface VerifiedWebhook<Event = WebhookEvent> {
  readonly event: Event
  /**
   * `webhook-id`: the same in every attempt of a delivery. Ignore a delivery that you have processed. null if the webhook has
   * only `x-webhook-signature`, which covers no id: use `event.nonce` instead.
   */
  readonly deliveryId: string | null
  /** The time of the attempt; null if the webhook has only `x-webhook-signature`. */
  readonly timestamp: Date | null
}

/** Limit of the signatures in `webhook-signature`. Gatehouse sends two while a secret changes. */
const maxSignatures = 16
const standardHeaders = ["webhook-id", "webhook-timestamp", "webhook-signature"]

/**
 * Verifies a webhook, comparing signatures in constant time, and parses its body. Throws a `WebhookVerificationError` if
 * anything is wrong.
 *
 * If the webhook has any header of Standard Webhooks 1.0 (`webhook-id`, `webhook-timestamp`, `webhook-signature`), it needs
 * all three. Otherwise `x-webhook-signature` is verified, the HMAC of the body alone: see `requireTimestamp`.
 *
 * It needs the raw bytes of the body. In Express:
 *
 * ```ts
 * app.post("/webhooks", express.raw({ type: "application/json" }), (request, response) => {
 *   const { headers, body } = request
 *   const { event, deliveryId } = verifyWebhook({ headers, body, secret: process.env.WEBHOOK_SECRET ?? "" })
 *   response.sendStatus(204)
 * })
 * ```
 *
 * The type of `event` is that of job events. For events that you publish, name their type:
 * `verifyWebhook<PublishedEvent<"invoice.paid", { invoice: string }>>(…)`. It is not checked.
 *
 * It is synchronous, because a promise that is not awaited would accept every forgery. It uses `node:crypto`, which Node,
 * Bun, Deno and Workers (`nodejs_compat`) provide.
 */
export const verifyWebhook = <Event = WebhookEvent>(options: VerifyWebhookOptions): VerifiedWebhook<Event> => {
  const secrets = readSecrets(options.secret)
  const body = readBody(options.body)
  const header = (name: string) => readHeader(options.headers, name)

  if (standardHeaders.every((name) => header(name) === undefined)) {
    const signature = header("x-webhook-signature")
    if (!signature || options.requireTimestamp) {
      throw new WebhookVerificationError(
        "missing_header",
        `The webhook has no webhook-id, webhook-timestamp and webhook-signature${signature ? ", only x-webhook-signature, which covers no timestamp" : ""}.`,
      )
    }
    match(secrets, [signature], (secret) => createHmac("sha256", secret).update(body).digest("hex"))
    return { event: parse<Event>(body), deliveryId: null, timestamp: null }
  }

  const [id, timestamp, signatures] = standardHeaders.map((name) => {
    const value = header(name)
    if (!value) throw new WebhookVerificationError("missing_header", `The webhook has no ${name}.`)
    return value
  }) as [string, string, string]
  // The signed content separates its parts by full stops, so an id with a full stop would be ambiguous.
  if (id.includes(".")) throw new WebhookVerificationError("invalid_header", "webhook-id has a full stop.")
  const seconds = readTimestamp(timestamp, options.toleranceSeconds ?? 300)
  const received = signatures.split(" ", maxSignatures + 1)
  if (received.length > maxSignatures) {
    throw new WebhookVerificationError("invalid_header", `webhook-signature has more than ${maxSignatures} signatures.`)
  }
  const content = Buffer.concat([Buffer.from(`${id}.${timestamp}.`), body])
  match(
    secrets,
    received,
    (secret) => `v1,${createHmac("sha256", standardKey(secret)).update(content).digest("base64")}`,
  )
  return { event: parse<Event>(body), deliveryId: id, timestamp: new Date(seconds * 1000) }
}

/** Throws unless one of the received signatures is that of one of the secrets. */
const match = (secrets: ReadonlyArray<string>, received: ReadonlyArray<string>, sign: (secret: string) => string) => {
  const expected = secrets.map((secret) => Buffer.from(sign(secret)))
  const isMatch = received.some((text) => {
    const bytes = Buffer.from(text)
    return expected.some((one) => one.length === bytes.length && timingSafeEqual(one, bytes))
  })
  if (!isMatch) {
    throw new WebhookVerificationError(
      "signature_mismatch",
      "No signature matches: the secret is wrong, or the body differs from the bytes that were sent.",
    )
  }
}

const base64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=?|[A-Za-z0-9+/]{2}(?:==)?)$/

/** The key of a secret: the base64 after `whsec_`, decoded; any other secret is used as it is. */
const standardKey = (secret: string) =>
  secret.startsWith("whsec_") && base64.test(secret.slice(6)) ? Buffer.from(secret.slice(6), "base64") : secret

const readSecrets = (secret: unknown): ReadonlyArray<string> => {
  const secrets: ReadonlyArray<unknown> = Array.isArray(secret) ? secret : [secret]
  if (secrets.some((one) => typeof one === "string" && one.startsWith("whpk_"))) {
    throw new WebhookVerificationError(
      "invalid_secret",
      "A secret is a public key (whpk_…). Use signing_secret here; verifyWebhook of gatehouse-webhooks takes public keys.",
    )
  }
  if (secrets.length > 0 && secrets.every((one) => typeof one === "string" && one !== "")) {
    return secrets as ReadonlyArray<string>
  }
  throw new WebhookVerificationError(
    "invalid_secret",
    "A secret is empty or not a string. Check that its environment variable is set.",
  )
}

const readBody = (body: unknown): Uint8Array => {
  if (typeof body === "string") return Buffer.from(body, "utf8")
  // By tag, because instanceof fails for objects of another realm, as in Jest.
  if (ArrayBuffer.isView(body)) return new Uint8Array(body.buffer, body.byteOffset, body.byteLength)
  if (Object.prototype.toString.call(body) === "[object ArrayBuffer]") return new Uint8Array(body as ArrayBuffer)
  throw new WebhookVerificationError(
    "invalid_body",
    "The body must be the raw bytes or text of the request, not a parsed value. In Express, use express.raw().",
  )
}

const readHeader = (headers: WebhookHeaders, name: string): string | undefined => {
  if (typeof headers?.get === "function") return headers.get(name) ?? undefined
  const values = Object.entries(headers ?? {}).flatMap(([key, value]) =>
    key.toLowerCase() === name ? (value ?? []) : [],
  )
  if (values.length < 2) return values[0]
  throw new WebhookVerificationError("invalid_header", `${name} was sent more than once.`)
}

const readTimestamp = (timestamp: string, tolerance: number): number => {
  if (!(tolerance >= 0)) {
    throw new WebhookVerificationError("invalid_tolerance", "toleranceSeconds must be a number, 0 or more.")
  }
  if (!/^\d{1,12}$/.test(timestamp)) {
    throw new WebhookVerificationError("invalid_header", "webhook-timestamp must be whole seconds since 1970.")
  }
  const age = Math.floor(Date.now() / 1000) - Number(timestamp)
  if (age > tolerance) {
    throw new WebhookVerificationError("timestamp_too_old", `The webhook is ${age} s old; ${tolerance} s are allowed.`)
  }
  if (-age > tolerance) {
    throw new WebhookVerificationError(
      "timestamp_too_new",
      `The webhook is ${-age} s ahead of this machine's clock; ${tolerance} s are allowed.`,
    )
  }
  return Number(timestamp)
}

const parse = <Event>(body: Uint8Array): Event => {
  try {
    const event: unknown = JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body))
    if (typeof event === "object" && event !== null && !Array.isArray(event)) return event as Event
  } catch {}
  throw new WebhookVerificationError("invalid_body", "The body is not a JSON object.")
}
