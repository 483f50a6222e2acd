import type { Socket } from "node:net"
import { buildConnector } from "undici"
import { codeOf, ConnectFault } from "./ConnectFault.ts"

/** The server of a connection. */
export interface Peer {
  /** A name or an address; IPv6 without brackets. */
  readonly hostname: string
  readonly port: number
}

/** A connection that is being opened. */
export interface Opening {
  isAborted: boolean
  /** What an abort destroys. */
  active: { readonly destroy: () => unknown } | undefined
}

/** Opens a TCP connection to a peer. It calls `done` once, and sets `opening.active` to what holds the connection. */
export type OpenConnection = (
  peer: Peer,
  opening: Opening,
  done: (error: Error | null, socket?: Socket) => void,
) => void

/**
 * An error of the operating system is a fault of the connection. Any other is a fault of TLS, such as a bad certificate.
 */
const tlsFault = (error: Error) => {
  const code = codeOf(error)
  if (/^E(?!RR_|PROTO)/.test(code)) return error
  // OpenSSL's messages contain addresses and lines of its source code; the code is enough.
  const why = code.startsWith("ERR_SSL_") || code === "EPROTO" ? "" : `: ${error.message.replace(/\.$/, "")}`
  return new ConnectFault("tls", `TLS failed${why} (${code}).`)
}

// No time-out here: a request has one deadline. HTTP/1.1 only, so that a connection serves one request at a time.
export const startTls = buildConnector({ allowH2: false, timeout: 0 })

/** The connector of one undici client. `abort` ends a connection in any phase. */
export const makeConnector = (open: OpenConnection) => {
  const opening: Opening = { isAborted: false, active: undefined }

  const connect: buildConnector.connector = (target, callback) => {
    const secure = target.protocol === "https:"
    const peer = { hostname: target.hostname, port: Number(target.port || (secure ? 443 : 80)) }
    open(peer, opening, (error, socket) => {
      if (error !== null) return callback(error, null)
      if (!secure) return callback(null, socket!)
      startTls({ ...target, httpSocket: socket! }, (...[error, tls]) =>
        error === null ? callback(null, tls) : callback(tlsFault(error), null),
      )
    })
  }

  const abort = () => {
    opening.isAborted = true
    opening.active?.destroy()
  }
  return { connect, abort }
}
