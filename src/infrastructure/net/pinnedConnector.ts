import { connect as connectTcp, isIP, type LookupFunction, type Socket } from "node:net"
import { buildConnector } from "undici"
import { type AddressRules, mayCall } from "../../domain/addresses.ts"
import type { FailureKind } from "../../domain/webhooks/WebhookSender.ts"
import type { ResolveHost } from "./resolveHost.ts"

export interface ConnectorOptions extends AddressRules {
  readonly resolve: ResolveHost
}

/** The connection failed. */
export class ConnectFault extends Error {
  readonly kind: FailureKind
  constructor(kind: FailureKind, message: string) {
    super(message)
    this.kind = kind
  }
}

interface Address {
  readonly address: string
  readonly family: number
}

export const codeOf = (error: unknown): string => (error as { readonly code?: string } | null)?.code ?? "no code"

const resolve = async (hostname: string, options: ConnectorOptions) => {
  if (isIP(hostname) !== 0) return [hostname]
  const addresses = await options.resolve(hostname).catch((error: unknown) => {
    throw new ConnectFault("dns", `The host's name does not resolve (${codeOf(error)}).`)
  })
  if (addresses.length === 0) throw new ConnectFault("dns", "The host's name has no address.")
  return addresses
}

/** Resolves a host and checks its addresses. One forbidden address refuses the host. */
const checkedAddresses = async (hostname: string, options: ConnectorOptions): Promise<ReadonlyArray<Address>> => {
  const addresses = await resolve(hostname, options)
  if (!addresses.every((address) => mayCall(address, options))) {
    // Without the address: otherwise a user could resolve the names of a private network.
    throw new ConnectFault(
      "refused_address",
      "The host has an address that is not called (private, reserved or special).",
    )
  }
  return addresses.map((address) => ({ address, family: isIP(address) }))
}

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
const startTls = buildConnector({ allowH2: false, timeout: 0 })

/**
 * The connector of one undici client. For each connection it resolves the host once, checks all addresses and connects to
 * those addresses, so a name that resolves differently a moment later changes nothing (DNS rebinding). `abort` ends a
 * connection in any phase.
 */
export const pinnedConnector = (options: ConnectorOptions) => {
  let aborted = false
  let tcp: Socket | undefined

  const connect: buildConnector.connector = (target, callback) => {
    const secure = target.protocol === "https:"
    const failed = (error: Error) => callback(error, null)
    const proceed = (addresses: ReadonlyArray<Address>) => {
      if (aborted) return failed(new ConnectFault("connection", "The request was canceled."))
      // Not called when the host is an address, which is the checked one.
      const pinned: LookupFunction = (_host, { all }, done) =>
        all ? done(null, [...addresses]) : done(null, addresses[0]!.address, addresses[0]!.family)
      const port = Number(target.port || (secure ? 443 : 80))
      const socket = connectTcp({ host: target.hostname, port, lookup: pinned, noDelay: true })
      tcp = socket
      socket.once("error", failed).once("connect", () => {
        socket.off("error", failed)
        if (!secure) return callback(null, socket)
        startTls({ ...target, httpSocket: socket }, (...[error, tls]) =>
          error === null ? callback(null, tls) : failed(tlsFault(error)),
        )
      })
    }
    checkedAddresses(target.hostname, options).then(proceed, failed)
  }

  const abort = () => {
    aborted = true
    tcp?.destroy()
  }
  return { connect, abort }
}
