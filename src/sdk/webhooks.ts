import { parseJson } from "./numberTexts.ts"

/** The body of a webhook. `event` says what happened; the events of jobs have the fields below. */
export interface WebhookEvent {
  /** `job.completed`, `job.failed`, or a name that this version does not know: answer 2xx to it. */
  readonly event: string
  /** 32 hex characters, the same in every attempt and for every receiver of the event. */
  readonly nonce: string
  readonly [field: string]: unknown
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

type HeaderValues = Readonly<Record<string, string | ReadonlyArray<string> | undefined>>

/** A request as a server has it. A `Request` of the Fetch standard is one; its body is read. */
export interface WebhookRequest {
  /** A `Headers`, or a plain object with names in any case. */
  readonly headers: HeaderValues | { readonly get: (name: string) => string | null | undefined }
  /** The raw body, exactly as received. */
  readonly body?: string | Uint8Array | ArrayBuffer | object | null | undefined
  readonly arrayBuffer?: () => Promise<ArrayBuffer>
}

export interface VerifyOptions {
  /** The largest difference in seconds between `webhook-timestamp` and this machine's clock. Default: 300. */
  readonly toleranceSeconds?: number
}

export interface VerifiedWebhook {
  readonly event: WebhookEvent
  /** `webhook-id`: the same in every attempt of a delivery. Ignore a delivery that you have processed. */
  readonly deliveryId: string
  /** The time of the attempt. */
  readonly timestamp: Date
}

/** Limit of the signatures in `webhook-signature`. Gatehouse sends two while a secret changes. */
const maxSignatures = 16
const encoder = new TextEncoder()

const refuse = (code: WebhookVerificationErrorCode, message: string): never => {
  throw new WebhookVerificationError(code, message)
}

/**
 * Verifies a webhook and returns its event. Rejects with a `WebhookVerificationError` if anything is wrong. It needs
 * only Web Crypto, so it runs in Node, Bun, Deno, browsers, workers and at the edge. Signatures are compared in
 * constant time.
 *
 * ```ts
 * const { event, deliveryId } = await verifyWebhook(request, env.WEBHOOK_SECRET)
 * ```
 *
 * @param request a `Request`, or an object with `headers` and the raw `body`
 * @param secret the endpoint's `signing_secret`, or a public key of the org (`whpk_…`) for an endpoint with
 *   `signature: "ed25519"`; while you change it, both the new and the old one
 */
export const verifyWebhook = async (
  request: WebhookRequest,
  secret: string | ReadonlyArray<string>,
  { toleranceSeconds = 300 }: VerifyOptions = {},
): Promise<VerifiedWebhook> => {
  const keys = readSecrets(secret)
  const [id, timestamp, signatures] = ["webhook-id", "webhook-timestamp", "webhook-signature"].map(
    (name) => readHeader(request.headers, name) || refuse("missing_header", `The webhook has no ${name}.`),
  ) as [string, string, string]
  // The signed content separates its parts by full stops, so an id with a full stop would be ambiguous.
  if (id.includes(".")) refuse("invalid_header", "webhook-id has a full stop.")
  const seconds = readTimestamp(timestamp, toleranceSeconds)
  const received = signatures.split(" ", maxSignatures + 1)
  if (received.length > maxSignatures) {
    refuse("invalid_header", `webhook-signature has more than ${maxSignatures} signatures.`)
  }
  const body = await readBody(request)
  const content = join(encoder.encode(`${id}.${timestamp}.`), body)
  if (!(await hasMatch(keys, received, content))) {
    refuse(
      "signature_mismatch",
      keys.some(({ version }) => version === "v1a") && !received.some((one) => one.startsWith("v1a,"))
        ? "webhook-signature has no v1a signature for the public key. Set signature: ed25519 at the endpoint."
        : "No signature matches: the secret or public key is wrong, or the body differs from the bytes that were sent.",
    )
  }
  return { event: parse(body), deliveryId: id, timestamp: new Date(seconds * 1000) }
}

type Bytes = Uint8Array<ArrayBuffer>

const join = (first: Bytes, second: Bytes): Bytes => {
  const all = new Uint8Array(first.length + second.length)
  all.set(first)
  all.set(second, first.length)
  return all
}

/** A key verifies only signatures of its own version, so a public key never serves as a key of HMAC. */
interface Key {
  /** `v1`: HMAC-SHA256. `v1a`: Ed25519. */
  readonly version: "v1" | "v1a"
  readonly bytes: Bytes
}

const algorithms = { v1: { name: "HMAC", hash: "SHA-256" }, v1a: { name: "Ed25519" } }

/** Whether one of the signatures (version, `,` and base64) is of one of the keys. */
const hasMatch = async (keys: ReadonlyArray<Key>, received: ReadonlyArray<string>, content: Bytes) => {
  for (const { bytes, version } of keys) {
    const algorithm = algorithms[version]
    const imported = await crypto.subtle.importKey("raw", bytes, algorithm, false, ["verify"])
    for (const one of received) {
      const signature = one.startsWith(`${version},`) ? decode(one.slice(version.length + 1)) : undefined
      if (signature && (await crypto.subtle.verify(algorithm.name, imported, signature, content))) return true
    }
  }
  return false
}

const base64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=?|[A-Za-z0-9+/]{2}(?:==)?)$/

const decode = (text: string): Bytes | undefined =>
  base64.test(text) ? Uint8Array.from(atob(text), (character) => character.charCodeAt(0)) : undefined

/**
 * The keys of secrets: the base64 after `whsec_` (HMAC) or `whpk_` (Ed25519), decoded; any other secret is an HMAC key
 * as it is.
 */
const readSecrets = (secret: unknown): ReadonlyArray<Key> => {
  const secrets: ReadonlyArray<unknown> = Array.isArray(secret) ? secret : [secret]
  if (secrets.length === 0 || !secrets.every((one) => typeof one === "string" && one !== "")) {
    refuse("invalid_secret", "A secret is empty or not a string. Check that its environment variable is set.")
  }
  return (secrets as ReadonlyArray<string>).map((one): Key => {
    if (one.startsWith("whpk_")) return { version: "v1a", bytes: readPublicKey(one.slice(5)) }
    const bytes = one.startsWith("whsec_") ? decode(one.slice(6)) : undefined
    return { version: "v1", bytes: bytes ?? encoder.encode(one) }
  })
}

const readPublicKey = (text: string): Bytes => {
  const bytes = decode(text)
  return bytes?.length === 32 ? bytes : refuse("invalid_secret", "A public key must be whpk_ and 32 bytes in base64.")
}

const readHeader = (headers: WebhookRequest["headers"], name: string): string | undefined => {
  if (typeof headers?.get === "function") return headers.get(name) ?? undefined
  const values = Object.entries((headers ?? {}) as HeaderValues).flatMap(([key, value]) =>
    key.toLowerCase() === name ? (value ?? []) : [],
  )
  return values.length < 2 ? values[0] : refuse("invalid_header", `${name} was sent more than once.`)
}

const readTimestamp = (timestamp: string, tolerance: number): number => {
  if (!(tolerance >= 0)) refuse("invalid_tolerance", "toleranceSeconds must be a number, 0 or more.")
  if (!/^\d{1,12}$/.test(timestamp)) {
    refuse("invalid_header", "webhook-timestamp must be whole seconds since 1970.")
  }
  const age = Math.floor(Date.now() / 1000) - Number(timestamp)
  if (age > tolerance) refuse("timestamp_too_old", `The webhook is ${age} s old; ${tolerance} s are allowed.`)
  if (-age > tolerance) {
    refuse("timestamp_too_new", `The webhook is ${-age} s ahead of this machine's clock; ${tolerance} s are allowed.`)
  }
  return Number(timestamp)
}

const readBody = async (request: WebhookRequest): Promise<Bytes> => {
  const body = typeof request.arrayBuffer === "function" ? await request.arrayBuffer() : request.body
  if (typeof body === "string") return encoder.encode(body)
  if (ArrayBuffer.isView(body)) return Uint8Array.from(new Uint8Array(body.buffer, body.byteOffset, body.byteLength))
  // By tag, because instanceof fails for objects of another realm, as in Jest.
  if (Object.prototype.toString.call(body) === "[object ArrayBuffer]") return new Uint8Array(body as ArrayBuffer)
  return refuse(
    "invalid_body",
    "The body must be the raw bytes or text of the request, not a parsed value. In Express, use express.raw().",
  )
}

const parse = (body: Bytes): WebhookEvent => {
  try {
    const event = parseJson(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body))
    if (typeof event === "object" && event !== null && !Array.isArray(event)) return event as WebhookEvent
  } catch {}
  return refuse("invalid_body", "The body is not a JSON object.")
}
