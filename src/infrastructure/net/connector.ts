import { Redacted, Result } from "effect"
import { lookup, Resolver } from "node:dns/promises"
import { connect, isIP, type Socket } from "node:net"
import { type buildConnector, Client } from "undici"
import { type AddressRules, mayCall } from "../../domain/callableUrls.ts"
import type { ClientIdentity } from "../../domain/webhooks/EndpointAuth.ts"
import type { EgressProxy } from "./EgressProxy.ts"
import { codeOf, ConnectFault, tlsMessage } from "./connectionFault.ts"
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

/** An error of the system is a fault of the connection. Any other is one of TLS, such as a bad certificate. */
const tlsFault = (error: Error) =>
  /^E(?!RR_|PROTO)/.test(codeOf(error)) ? error : new ConnectFault("tls", tlsMessage(error))

/**
 * Makes undici skip an unasked `100 Continue`, which it takes for a fault: as a 102 it is skipped like the others
 * (RFC 9110, section 15.2).
 */
const skipContinue = (socket: Socket) => {
  const ofParser = Object.getOwnPropertySymbols(socket).find(({ description }) => description === "parser")!
  const parser = (socket as unknown as Record<symbol, HttpParser>)[ofParser]!
  const onHeadersComplete = parser.onHeadersComplete.bind(parser)
  parser.onHeadersComplete = (status, ...others) => onHeadersComplete(status === 100 ? 102 : status, ...others)
}

/** What undici's parser of responses has. */
interface HttpParser {
  onHeadersComplete: (status: number, upgrade: boolean, shouldKeepAlive: boolean) => number
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
    const proceed = (socket: Socket) => {
      // Otherwise undici reports the end of the connection, which follows an alert of TLS, and not the alert.
      socket.once("error", (error) => socket.destroy(error))
      callback(null, socket)
      // Not if the client was destroyed meanwhile.
      if (!socket.destroyed) skipContinue(socket)
    }
    const peer = { hostname: target.hostname, port: Number(target.port || (secure ? 443 : 80)) }
    open(peer, opening, (error, socket) => {
      if (error !== null) return callback(error, null)
      if (!secure) return proceed(socket!)
      const start = checked === undefined ? connectForeign : connectForeignAs(checked.success)
      start({ ...target, httpSocket: socket! }, (...[error, tls]) =>
        error === null ? proceed(tls) : callback(tlsFault(error), null),
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

/** Limit of the addresses of a name. All are checked before one is called. */
const maxAddresses = 256

const resolve = async (hostname: string, options: PinnedOptions) => {
  if (isIP(hostname) !== 0) return [hostname]
  const addresses = await options.resolve(hostname).catch((error: unknown) => {
    throw new ConnectFault("dns", `The host's name does not resolve (${codeOf(error)}).`)
  })
  if (addresses.length === 0) throw new ConnectFault("dns", "The host's name has no address.")
  if (addresses.length > maxAddresses) {
    throw new ConnectFault("dns", `The host's name has more than ${maxAddresses} addresses.`)
  }
  return addresses
}

/** Resolves a host and checks its addresses. One forbidden address refuses the host. */
const checkedAddresses = async (hostname: string, options: PinnedOptions) => {
  const addresses = await resolve(hostname, options)
  if (!addresses.every((address) => mayCall(address, options))) {
    // Without the address: otherwise a user could resolve the names of a private network.
    throw new ConnectFault(
      "refused_address",
      "The host has an address that is not called (private, reserved or special).",
    )
  }
  return addresses
}

/** Why no connection to the host of a URL may be opened; `null` when one may, or its name does not resolve now. */
export const hostFault = (options: PinnedOptions) => async (url: string) => {
  const hostname = new URL(url).hostname.replace(/^\[|\]$/g, "")
  return checkedAddresses(hostname, options).then(
    () => null,
    (fault: unknown) => (fault instanceof ConnectFault && fault.kind === "refused_address" ? fault.message : null),
  )
}

/** The time between the starts of two connections to a host, in milliseconds (RFC 8305, section 5). */
const connectDelayMillis = 250
/** The addresses of a host that are tried: a name may have thousands. */
const maxTried = 16

/** IPv6 and IPv4 in turn, IPv6 first (RFC 8305, section 4). */
const inTurn = (addresses: ReadonlyArray<string>) => {
  const [v6, v4] = [6, 4].map((family) => addresses.filter((address) => isIP(address) === family))
  return addresses.flatMap((_, n) => [v6![n] ?? [], v4![n] ?? []]).flat()
}

/** This machine has no way to the address, which says less than what another address answers. */
const noWay = new Set(["ENETUNREACH", "EHOSTUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT"])

/**
 * Connects to the address that answers first (RFC 8305). The next one is tried after a delay, or when one fails; none
 * that may still answer is given up.
 */
const connectToFirst = (
  addresses: ReadonlyArray<string>,
  port: number,
  opening: Opening,
  done: Parameters<OpenConnection>[2],
) => {
  const untried = inTurn(addresses).slice(0, maxTried)
  const connecting = new Set<Socket>()
  let fault: Error | undefined
  let timer: NodeJS.Timeout | undefined
  const destroy = () => {
    clearTimeout(timer)
    connecting.forEach((socket) => socket.destroy())
  }
  opening.active = { destroy }

  const tryNext = () => {
    clearTimeout(timer)
    const host = untried.shift()
    if (host === undefined) return
    const socket = connect({ host, port, noDelay: true })
    connecting.add(socket)
    if (untried.length > 0) timer = setTimeout(tryNext, connectDelayMillis)
    const onError = (error: Error) => {
      connecting.delete(socket)
      if (fault === undefined || noWay.has(codeOf(fault))) fault = error
      if (untried.length > 0) tryNext()
      else if (connecting.size === 0) done(fault)
    }
    socket.once("error", onError).once("connect", () => {
      socket.off("error", onError)
      connecting.delete(socket)
      destroy()
      opening.active = socket
      done(null, socket)
    })
  }
  tryNext()
}

/**
 * Opens direct connections. For each it resolves the host once, checks all addresses and connects to those addresses,
 * so a name that resolves differently a moment later changes nothing (DNS rebinding).
 */
export const pinnedConnection =
  (options: PinnedOptions): OpenConnection =>
  ({ hostname, port }, opening, done) => {
    const proceed = (addresses: ReadonlyArray<string>) => {
      if (opening.isAborted) return done(new ConnectFault("connection", "The request was canceled."))
      connectToFirst(addresses, port, opening, done)
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

/**
 * How long the IPv6 addresses of a name are waited for when its IPv4 addresses are known, in milliseconds. Some name
 * servers never answer for IPv6 (RFC 8305, section 3).
 */
const ipv6WaitMillis = 1_000

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
    const ipv4 = resolver.resolve4(hostname)
    let timer: NodeJS.Timeout | undefined
    const waitLess = () => void (timer = setTimeout(() => resolver.cancel(), ipv6WaitMillis))
    ipv4.then(waitLess, () => {})
    const answers = await Promise.allSettled([ipv4, resolver.resolve6(hostname)])
    clearTimeout(timer)
    const addresses = answers.flatMap((answer) => (answer.status === "fulfilled" ? answer.value : []))
    if (addresses.length > 0) return addresses
    const faults = answers.flatMap((answer) =>
      answer.status === "rejected" ? [answer.reason as { code?: string }] : [],
    )
    const serverFault = faults.find(({ code }) => !unknownNameCodes.has(code ?? ""))
    if (serverFault === undefined && options.askSystemToo) return askSystem(hostname)
    throw serverFault ?? faults[0] ?? new Error("no addresses")
  }
