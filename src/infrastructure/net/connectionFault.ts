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
  UND_ERR_RES_CONTENT_LENGTH_MISMATCH: "was closed before the response ended",
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
  if (/^(ERR_(SSL|TLS)_|EPROTO)/.test(code)) return { kind: "tls", message: `TLS failed (${code}).` }
  return { kind: "connection", message: `The connection failed (${code}).` }
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
