import { Redacted } from "effect"
import { isIP, type Socket } from "node:net"
import { type buildConnector, Client } from "undici"
import { codeOf, ConnectFault } from "./ConnectFault.ts"
import { type OpenConnection, type Peer, startTls } from "./connector.ts"
import type { EgressProxy } from "./EgressProxy.ts"

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
const clientOf = (origin: string) => {
  const { hostname } = new URL(origin)
  // Otherwise undici checks the proxy's certificate for the name of the receiver.
  const servername = isIP(hostname.replace(/^\[|\]$/g, "")) === 0 ? hostname : ""
  const connect: buildConnector.connector = (target, callback) => startTls({ ...target, servername }, callback)
  return new Client(origin, { connect, headersTimeout: 0, bodyTimeout: 0, maxHeaderSize: 16 * 1024 })
}

/**
 * Opens connections through a proxy, which resolves the host and decides whether it may be called. undici's ProxyAgent is
 * an Agent: see `ConnectionPool` for what that does not bound.
 */
export const proxiedConnection =
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
