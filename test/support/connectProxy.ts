import { Effect, type Scope } from "effect"
import { createServer, type IncomingMessage } from "node:http"
import { createServer as createTlsServer } from "node:https"
import { type AddressInfo, connect, type Socket } from "node:net"

/**
 * What a proxy does with a CONNECT: it connects, or answers with this status, or does nothing, or closes the
 * connection.
 */
export type ProxyBehaviour = "connect" | number | "hang" | "close"

export interface ConnectProxy {
  /** `http://127.0.0.1:PORT`, or `https://localhost:PORT`. */
  readonly url: string
  /** The same with the user and password. */
  readonly urlWithCredentials: string
  /** The host and port of each CONNECT that it accepted. */
  readonly connected: ReadonlyArray<string>
  /** The number of open connections to it. */
  readonly open: () => number
  /** Sets the behaviour of each next CONNECT; the last one holds from then on. */
  readonly behave: (...behaviours: ReadonlyArray<ProxyBehaviour>) => void
}

const user = "gatehouse"
const password = "p@ss/word"
/** The password as a log line could have it: as it is, in the URL, in base64. */
export const proxySecrets = [
  password,
  encodeURIComponent(password),
  Buffer.from(`${user}:${password}`).toString("base64"),
]

/**
 * A proxy that takes CONNECT (RFC 9110, section 9.3.6) until the scope closes. Its names all lead to loopback.
 *
 * @param options authenticated: it answers 407 to a request without the user and password
 */
export const makeConnectProxy = (
  options: { readonly authenticated?: boolean; readonly tls?: { readonly key: string; readonly cert: string } } = {},
): Effect.Effect<ConnectProxy, never, Scope.Scope> => {
  const connected: Array<string> = []
  const sockets = new Set<Socket>()
  let behaviours: ReadonlyArray<ProxyBehaviour> = ["connect"]
  const isAuthorized = ({ headers }: IncomingMessage) => {
    const credentials = Buffer.from(`${user}:${password}`).toString("base64")
    return options.authenticated !== true || headers["proxy-authorization"] === `Basic ${credentials}`
  }
  const server = options.tls === undefined ? createServer() : createTlsServer(options.tls)
  const track = (socket: Socket) => {
    sockets.add(socket)
    socket.on("error", () => {})
    socket.on("close", () => sockets.delete(socket))
  }
  server.on("connection", track)
  server.on("connect", (request: IncomingMessage, client: Socket) => {
    client.on("error", () => {})
    const [behaviour, ...later] = behaviours
    if (later.length > 0) behaviours = later
    const status = isAuthorized(request) ? behaviour : 407
    if (status === "hang") return client.on("end", () => client.destroy()).resume()
    if (status === "close") return client.destroy()
    // As in RFC 9112, section 3.2.2; a proxy may check it.
    if (status !== "connect" || request.headers.host !== request.url) {
      return client.end(`HTTP/1.1 ${status === "connect" ? 400 : status} Refused\r\ncontent-length: 2\r\n\r\nno`)
    }
    connected.push(request.url!)
    const upstream = connect(Number(/\d+$/.exec(request.url!)![0]), "127.0.0.1", () => {
      client.write("HTTP/1.1 200 Connection established\r\n\r\n")
      client.pipe(upstream).pipe(client)
    })
    track(upstream)
    upstream.on("close", () => client.destroy())
    client.on("close", () => upstream.destroy())
  })
  return Effect.acquireRelease(
    Effect.callback<ConnectProxy>((resume) => {
      server.listen(0, "127.0.0.1", () => {
        const { port } = server.address() as AddressInfo
        const url = options.tls === undefined ? `http://127.0.0.1:${port}` : `https://localhost:${port}`
        const credentials = `${encodeURIComponent(user)}:${encodeURIComponent(password)}`
        resume(
          Effect.succeed({
            url,
            urlWithCredentials: url.replace("//", `//${credentials}@`),
            connected,
            open: () => sockets.size,
            behave: (...next) => {
              behaviours = next
            },
          }),
        )
      })
    }),
    () =>
      Effect.callback<void>((resume) => {
        server.close(() => resume(Effect.void))
        sockets.forEach((socket) => socket.destroy())
      }),
  )
}
