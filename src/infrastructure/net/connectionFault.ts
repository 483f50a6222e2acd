import { errors } from "undici"
import type { FailureKind } from "../../domain/webhooks/WebhookSender.ts"

/** Why a request has no complete response. `message` is a sentence for the user who chose the URL. */
export interface ConnectionFault {
  readonly kind: FailureKind
  readonly message: string
}

/** The end of the sentence "The connection …", by error code. */
const connectionErrors: Record<string, string> = {
  ECONNREFUSED: "was refused",
  ECONNRESET: "was reset",
  EPIPE: "was reset",
  UND_ERR_SOCKET: "was closed before the response ended",
  UND_ERR_RES_CONTENT_LENGTH_MISMATCH: "carried a response of another length than its content-length",
  EHOSTUNREACH: "found no route to the host",
  ENETUNREACH: "found no route to the host",
  ETIMEDOUT: "was not accepted in time",
}

/** Classifies and describes an error of undici, the connector or the operating system. */
export const connectionFault = (error: Error): ConnectionFault => {
  if (error instanceof ConnectFault) return error
  const code = codeOf(error)
  if (error instanceof errors.HeadersOverflowError) {
    return { kind: "bad_response", message: "The response's headers are longer than 16 KiB." }
  }
  if (error instanceof errors.SocketError && error.message === "bad upgrade") return switchedProtocols
  if (error instanceof errors.SocketError && error.message.startsWith("bad ")) {
    return { kind: "bad_response", message: "The receiver sent a response without a request." }
  }
  if (error instanceof errors.HTTPParserError) {
    const reason = /\(([^()]*)\)/.exec(error.message)?.[1] ?? "unreadable"
    return reason === "Invalid EOF state"
      ? { kind: "connection", message: "The connection was closed before the response ended." }
      : { kind: "bad_response", message: `The response is not valid HTTP (${reason}).` }
  }
  if (Object.hasOwn(connectionErrors, code)) {
    return { kind: "connection", message: `The connection ${connectionErrors[code]} (${code}).` }
  }
  if (/^(ERR_(SSL|TLS)_|EPROTO)/.test(code)) return { kind: "tls", message: tlsMessage(error) }
  return { kind: "connection", message: `The connection failed (${code}).` }
}

/** A response that the request, which offers no upgrade, cannot have. */
export const switchedProtocols: ConnectionFault = {
  kind: "bad_response",
  message: "The receiver switches protocols (101), which the request does not offer.",
}

/** Why TLS failed, with the name of the alert that the other side sent (RFC 8446, section 6). */
export const tlsMessage = (error: Error) => {
  const code = codeOf(error)
  const alert = /^ERR_SSL_(?:SSLV3|TLSV1|TLSV13|SSL\/TLS)_(?:ALERT_)?(\w+)$/.exec(code)?.[1]
  if (alert !== undefined) {
    return `TLS failed: the other side sent the alert ${alert.toLowerCase().replaceAll("_", " ")} (${code}).`
  }
  // OpenSSL's messages contain addresses and lines of its source code; the code is enough.
  const why = code.startsWith("ERR_SSL_") || code === "EPROTO" ? "" : `: ${error.message.replace(/\.$/, "")}`
  return `TLS failed${why} (${code}).`
}

/** No connection. `message` is a sentence for the user who chose the URL. */
export class ConnectFault extends Error {
  readonly kind: FailureKind
  constructor(kind: FailureKind, message: string) {
    super(message)
    this.kind = kind
  }
}

export const codeOf = (error: unknown): string => (error as { readonly code?: string } | null)?.code ?? "no code"
