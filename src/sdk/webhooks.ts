import { createHmac, timingSafeEqual } from "node:crypto"

interface WebhookEventFields {
  readonly job_id: string
  /** 32 hex characters: the same on every retry, and for every receiver of the event. */
  readonly nonce: string
  readonly workflow: string
  readonly deployment_id: string | null
}

/** The body of a webhook: always these nine fields. `event` tells its two kinds apart. */
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
      /** Any JSON; null when the job gave none. */
      readonly mapped_stack: unknown
    })

/** What was wrong with a webhook, or with the call (`invalid_secret`, `invalid_tolerance`). */
export type WebhookVerificationErrorCode =
  | "missing_header"
  | "invalid_header"
  | "timestamp_too_old"
  | "timestamp_too_new"
  | "signature_mismatch"
  | "invalid_body"
  | "invalid_secret"
  | "invalid_tolerance"

/** The webhook is not to be trusted: answer 400, and do nothing else with it. The message holds no secret. */
export class WebhookVerificationError extends Error {
  override readonly name = "WebhookVerificationError"
  readonly code: WebhookVerificationErrorCode

  constructor(code: WebhookVerificationErrorCode, message: string) {
    super(message)
    this.code = code
  }
}

/** A plain object, its names in any case (Node's `IncomingHttpHeaders`), or a `Headers`. */
export type WebhookHeaders =
  | Readonly<Record<string, string | ReadonlyArray<string> | undefined>>
  | { readonly get: (name: string) => string | null | undefined }

export interface VerifyWebhookOptions {
  readonly headers: WebhookHeaders
  /** The body exactly as it came; text stands for its UTF-8 bytes. Parsed and written again, it is another body. */
  readonly body: string | Uint8Array | ArrayBuffer
  /** The endpoint's `signing_secret`; while you change it, the new one and the old one. */
  readonly secret: string | ReadonlyArray<string>
  /** How far, in seconds, `webhook-timestamp` may be from this machine's clock, either way. Default 300. */
  readonly toleranceSeconds?: number
  /**
   * Refuses a webhook that has only `x-webhook-signature`, in which no time is signed: whoever recorded a delivery could
   * leave the other headers out and replay it for ever. Default false. Every delivery of Gatehouse has the others.
   */
  readonly requireTimestamp?: boolean
}

export interface VerifiedWebhook {
  readonly event: WebhookEvent
  /**
   * `webhook-id`: the same on every retry of a delivery, so do nothing for one that you have seen. null when only
   * `x-webhook-signature` came, which signs no id: go by `event.nonce` then.
   */
  readonly deliveryId: string | null
  /** When the attempt was made; null when only `x-webhook-signature` came. */
  readonly timestamp: Date | null
}

/** Two are sent while a secret changes. */
const maxSignatures = 16
const standardHeaders = ["webhook-id", "webhook-timestamp", "webhook-signature"]

/**
 * Verifies a webhook, in constant time, and parses its body. Throws a `WebhookVerificationError` when anything is wrong.
 *
 * If any header of Standard Webhooks 1.0 is there (`webhook-id`, `webhook-timestamp`, `webhook-signature`), they decide;
 * else `x-webhook-signature` does, the HMAC of the body alone: see `requireTimestamp`.
 *
 * It needs the body's raw bytes. In Express:
 *
 * ```ts
 * app.post("/webhooks", express.raw({ type: "application/json" }), (request, response) => {
 *   const { headers, body } = request
 *   const { event, deliveryId } = verifyWebhook({ headers, body, secret: process.env.WEBHOOK_SECRET ?? "" })
 *   response.sendStatus(204)
 * })
 * ```
 *
 * It is synchronous, over `node:crypto`, which Node, Bun, Deno and Workers (`nodejs_compat`) have: a promise that
 * somebody forgets to await would let every forgery in.
 */
export const verifyWebhook = (options: VerifyWebhookOptions): VerifiedWebhook => {
  const secrets = readSecrets(options.secret)
  const body = readBody(options.body)
  const header = (name: string) => readHeader(options.headers, name)

  if (standardHeaders.every((name) => header(name) === undefined)) {
    const signature = header("x-webhook-signature")
    if (!signature || options.requireTimestamp) {
      throw new WebhookVerificationError(
        "missing_header",
        `The webhook has no webhook-id, webhook-timestamp and webhook-signature${signature ? ", only x-webhook-signature, which signs no time" : ""}.`,
      )
    }
    match(secrets, [signature], (secret) => createHmac("sha256", secret).update(body).digest("hex"))
    return { event: parse(body), deliveryId: null, timestamp: null }
  }

  const [id, timestamp, signatures] = standardHeaders.map((name) => {
    const value = header(name)
    if (!value) throw new WebhookVerificationError("missing_header", `The webhook has no ${name}.`)
    return value
  }) as [string, string, string]
  // The full stop separates what is signed, so an id that has one could be read as another.
  if (id.includes(".")) throw new WebhookVerificationError("invalid_header", "webhook-id has a full stop.")
  const seconds = readTimestamp(timestamp, options.toleranceSeconds ?? 300)
  const given = signatures.split(" ", maxSignatures + 1)
  if (given.length > maxSignatures) {
    throw new WebhookVerificationError("invalid_header", `webhook-signature has more than ${maxSignatures} signatures.`)
  }
  const content = Buffer.concat([Buffer.from(`${id}.${timestamp}.`), body])
  match(secrets, given, (secret) => `v1,${createHmac("sha256", standardKey(secret)).update(content).digest("base64")}`)
  return { event: parse(body), deliveryId: id, timestamp: new Date(seconds * 1000) }
}

const match = (secrets: ReadonlyArray<string>, given: ReadonlyArray<string>, sign: (secret: string) => string) => {
  const expected = secrets.map((secret) => Buffer.from(sign(secret)))
  const found = given.some((text) => {
    const bytes = Buffer.from(text)
    return expected.some((one) => one.length === bytes.length && timingSafeEqual(one, bytes))
  })
  if (!found) {
    throw new WebhookVerificationError(
      "signature_mismatch",
      "No signature matches: the secret is another, or the body is not the one that was sent, byte for byte.",
    )
  }
}

const base64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=?|[A-Za-z0-9+/]{2}(?:==)?)$/

/** What follows `whsec_`, from base64; any other secret is its own bytes. */
const standardKey = (secret: string) =>
  secret.startsWith("whsec_") && base64.test(secret.slice(6)) ? Buffer.from(secret.slice(6), "base64") : secret

const readSecrets = (secret: unknown): ReadonlyArray<string> => {
  const secrets: ReadonlyArray<unknown> = Array.isArray(secret) ? secret : [secret]
  if (secrets.length > 0 && secrets.every((one) => typeof one === "string" && one !== "")) {
    return secrets as ReadonlyArray<string>
  }
  throw new WebhookVerificationError("invalid_secret", "A secret is empty or no text; is its variable set?")
}

const readBody = (body: unknown): Uint8Array => {
  if (typeof body === "string") return Buffer.from(body, "utf8")
  // By their tags and not by instanceof: they may be another realm's, as in Jest.
  if (ArrayBuffer.isView(body)) return new Uint8Array(body.buffer, body.byteOffset, body.byteLength)
  if (Object.prototype.toString.call(body) === "[object ArrayBuffer]") return new Uint8Array(body as ArrayBuffer)
  throw new WebhookVerificationError(
    "invalid_body",
    "The body must be the request's raw bytes or text, and not parsed before; in Express, use express.raw().",
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

const parse = (body: Uint8Array): WebhookEvent => {
  try {
    const event: unknown = JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body))
    if (typeof event === "object" && event !== null && !Array.isArray(event)) return event as WebhookEvent
  } catch {}
  throw new WebhookVerificationError("invalid_body", "The body is no JSON object.")
}
