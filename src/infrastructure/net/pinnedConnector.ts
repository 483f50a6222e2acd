import { connect as connectTcp, isIP, type LookupFunction, type Socket } from "node:net"
import { buildConnector } from "undici"
import { type AddressRules, mayCall } from "../../domain/addresses.ts"
import type { FailureKind } from "../../domain/webhooks/WebhookSender.ts"
import type { ResolveHost } from "./resolveHost.ts"

export interface ConnectorOptions extends AddressRules {
  readonly resolve: ResolveHost
}

/** Why there is no connection. */
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

/** The addresses of a host, all of them checked: one bad address refuses the host. */
const checkedAddresses = async (hostname: string, options: ConnectorOptions): Promise<ReadonlyArray<Address>> => {
  const addresses = await resolve(hostname, options)
  if (!addresses.every((address) => mayCall(address, options))) {
    // Which one is not said: a stranger could read a private network's names out of it.
    throw new ConnectFault(
      "refused_address",
      "The host has an address that is not called (private, reserved or special).",
    )
  }
  return addresses.map((address) => ({ address, family: isIP(address) }))
}

/** A system's error is one of the connection; everything else is TLS's, an invalid certificate above all. */
const tlsFault = (error: Error) => {
  const code = codeOf(error)
  if (/^E(?!RR_|PROTO)/.test(code)) return error
  // What OpenSSL says of itself has addresses and lines of its source in it: the code says as much.
  const why = code.startsWith("ERR_SSL_") || code === "EPROTO" ? "" : `: ${error.message.replace(/\.$/, "")}`
  return new ConnectFault("tls", `TLS failed${why} (${code}).`)
}

// Without a time-out of its own: a request has one for everything. HTTP/1.1, so that a connection is one request's.
const startTls = buildConnector({ allowH2: false, timeout: 0 })

/**
 * Makes the connections of one undici client. For each, the host is resolved once, all its addresses are checked, and
 * the connection is made to those very addresses, so that a name that means something else a moment later changes
 * nothing. `abort` ends what it is doing, in whatever phase.
 */
export const pinnedConnector = (options: ConnectorOptions) => {
  let aborted = false
  let tcp: Socket | undefined

  const connect: buildConnector.connector = (target, callback) => {
    const secure = target.protocol === "https:"
    const failed = (error: Error) => callback(error, null)
    const proceed = (addresses: ReadonlyArray<Address>) => {
      if (aborted) return failed(new ConnectFault("connection", "The request was given up."))
      // An address for a host skips this, and is the one that was checked.
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
