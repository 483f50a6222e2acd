import { Redacted, Result } from "effect"
import { lookup, Resolver } from "node:dns/promises"
import { connect, isIP, type LookupFunction, type Socket } from "node:net"
import { type buildConnector, Client } from "undici"
import { type AddressRules, mayCall } from "../../domain/addresses.ts"
import type { ClientIdentity } from "../../domain/webhooks/EndpointAuth.ts"
import type { EgressProxy } from "./EgressProxy.ts"
import { codeOf, ConnectFault } from "./connectionFault.ts"
import { connectForeign, connectForeignAs, readIdentity } from "./foreignTls.ts"

/** The server of a connection. */
interface Peer {
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
 * An error of the operating system is a fault of the connection. Any other is a fault of TLS, such as a bad
 * certificate.
 */
const tlsFault = (error: Error) => {
  const code = codeOf(error)
  if (/^E(?!RR_|PROTO)/.test(code)) return error
  // OpenSSL's messages contain addresses and lines of its source code; the code is enough.
  const why = code.startsWith("ERR_SSL_") || code === "EPROTO" ? "" : `: ${error.message.replace(/\.$/, "")}`
  return new ConnectFault("tls", `TLS failed${why} (${code}).`)
}

/**
 * The connector of one undici client. `abort` ends a connection in any phase.
 *
 * @param identity is shown to the server if it asks for a certificate
 */
export const makeConnector = (open: OpenConnection, identity?: ClientIdentity) => {
  const opening: Opening = { isAborted: false, active: undefined }
  const checked = identity && readIdentity(identity)

  const connect: buildConnector.connector = (target, callback) => {
    if (checked !== undefined && Result.isFailure(checked))
      return callback(new ConnectFault("tls", checked.failure), null)
    const secure = target.protocol === "https:"
    const peer = { hostname: target.hostname, port: Number(target.port || (secure ? 443 : 80)) }
    open(peer, opening, (error, socket) => {
      if (error !== null) return callback(error, null)
      if (!secure) return callback(null, socket!)
      const start = checked === undefined ? connectForeign : connectForeignAs(checked.success)
      start({ ...target, httpSocket: socket! }, (...[error, tls]) =>
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

interface PinnedOptions extends AddressRules {
  readonly resolve: ResolveHost
}

interface Address {
  readonly address: string
  readonly family: number
}

const resolve = async (hostname: string, options: PinnedOptions) => {
  if (isIP(hostname) !== 0) return [hostname]
  const addresses = await options.resolve(hostname).catch((error: unknown) => {
    throw new ConnectFault("dns", `The host's name does not resolve (${codeOf(error)}).`)
  })
  if (addresses.length === 0) throw new ConnectFault("dns", "The host's name has no address.")
  return addresses
}

/** Resolves a host and checks its addresses. One forbidden address refuses the host. */
const checkedAddresses = async (hostname: string, options: PinnedOptions): Promise<ReadonlyArray<Address>> => {
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

/** Why no connection to the host of a URL may be opened; `null` when one may, or its name does not resolve now. */
export const hostFault = (options: PinnedOptions) => async (url: string) => {
  const hostname = new URL(url).hostname.replace(/^\[|\]$/g, "")
  return checkedAddresses(hostname, options).then(
    () => null,
    (fault: unknown) => (fault instanceof ConnectFault && fault.kind === "refused_address" ? fault.message : null),
  )
}

/**
 * Opens direct connections. For each it resolves the host once, checks all addresses and connects to those addresses,
 * so a name that resolves differently a moment later changes nothing (DNS rebinding).
 */
export const pinnedConnection =
  (options: PinnedOptions): OpenConnection =>
  ({ hostname, port }, opening, done) => {
    const proceed = (addresses: ReadonlyArray<Address>) => {
      if (opening.isAborted) return done(new ConnectFault("connection", "The request was canceled."))
      // Not called when the host is an address, which is the checked one.
      const pinned: LookupFunction = (_host, { all }, found) =>
        all ? found(null, [...addresses]) : found(null, addresses[0]!.address, addresses[0]!.family)
      const socket = connect({ host: hostname, port, lookup: pinned, noDelay: true })
      opening.active = socket
      socket.once("error", done).once("connect", () => {
        socket.off("error", done)
        done(null, socket)
      })
    }
    checkedAddresses(hostname, options).then(proceed, done)
  }

/** The proxy answered, and refused to connect. */
export class ProxyRefusal extends ConnectFault {
  readonly status: number
  constructor(status: number) {
    super("connection", `The egress proxy refused the connection with status ${status}.`)
    this.status = status
  }
}

/** Host and port as CONNECT and `host` have them. */
const authority = ({ hostname, port }: Peer) => `${isIP(hostname) === 6 ? `[${hostname}]` : hostname}:${port}`

/** A client for one CONNECT. The connection has the deadline of the request that it is for. */
const clientOf = (origin: string) =>
  new Client(origin, { connect: connectForeign, headersTimeout: 0, bodyTimeout: 0, maxHeaderSize: 16 * 1024 })

/**
 * Opens connections through a proxy. A host that resolves here to a forbidden address is refused; then the proxy
 * resolves the host and decides, also about names that only it knows. undici's ProxyAgent is an Agent: see
 * `ConnectionPool` for what that does not bound.
 */
export const proxiedConnection = (proxy: EgressProxy, options: PinnedOptions): OpenConnection => {
  const connect = throughProxy(proxy)
  return (peer, opening, done) => {
    const proceed = () =>
      opening.isAborted
        ? done(new ConnectFault("connection", "The request was canceled."))
        : connect(peer, opening, done)
    checkedAddresses(peer.hostname, options).then(proceed, (fault: unknown) =>
      fault instanceof ConnectFault && fault.kind === "refused_address" ? done(fault) : proceed(),
    )
  }
}

/** Opens connections through a proxy, to any host. */
export const throughProxy =
  ({ origin, authorization }: EgressProxy): OpenConnection =>
  (peer, opening, done) => {
    const client = clientOf(origin)
    opening.active = client
    const path = authority(peer)
    const credentials =
      authorization === undefined ? undefined : { "proxy-authorization": Redacted.value(authorization) }
    client.connect({ path, headers: { host: path, ...credentials } }, (error, data) => {
      if (error !== null) {
        return done(new ConnectFault("connection", `The connection to the egress proxy failed (${codeOf(error)}).`))
      }
      const socket = data.socket as Socket
      opening.active = socket
      if (data.statusCode >= 200 && data.statusCode < 300) return done(null, socket)
      socket.on("error", () => {}).destroy()
      done(new ProxyRefusal(data.statusCode))
    })
  }

/** Resolves a host name to its addresses. Rejects with an error that has a `code` if there are none. */
export type ResolveHost = (hostname: string) => Promise<ReadonlyArray<string>>

/** Error codes for a name that does not exist, or for no name server. */
const unknownNameCodes = new Set(["ENOTFOUND", "ENODATA", "ECONNREFUSED"])

const askSystem: ResolveHost = async (hostname) => (await lookup(hostname, { all: true })).map(({ address }) => address)

/**
 * Resolves names by DNS, with two tries of two seconds for each name server. It avoids the system's `getaddrinfo`,
 * which blocks one of the process's four worker threads while a name server does not answer: a few receivers with a
 * dead name server would block all other look-ups and the verification of tokens. It asks the system for names without
 * a dot (`localhost`, containers) and, with `askSystemToo`, for names that DNS does not know (hosts file, search
 * domains).
 */
export const makeResolveHost =
  (options: {
    readonly askSystemToo: boolean
    /** `ADDRESS:PORT`. Default: the name servers of the system. */
    readonly nameServers?: ReadonlyArray<string>
  }): ResolveHost =>
  async (hostname) => {
    if (!hostname.replace(/\.$/, "").includes(".")) return askSystem(hostname)
    // A new resolver reads the system's name servers again: they change when a laptop moves.
    const resolver = new Resolver({ timeout: 2000, tries: 2 })
    if (options.nameServers !== undefined) resolver.setServers(options.nameServers)
    const answers = await Promise.allSettled([resolver.resolve4(hostname), resolver.resolve6(hostname)])
    const addresses = answers.flatMap((answer) => (answer.status === "fulfilled" ? answer.value : []))
    if (addresses.length > 0) return addresses
    const faults = answers.flatMap((answer) =>
      answer.status === "rejected" ? [answer.reason as { code?: string }] : [],
    )
    const serverFault = faults.find(({ code }) => !unknownNameCodes.has(code ?? ""))
    if (serverFault === undefined && options.askSystemToo) return askSystem(hostname)
    throw serverFault ?? faults[0] ?? new Error("no addresses")
  }
