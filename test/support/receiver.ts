import { Effect, type Scope } from "effect"
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from "node:http"
import { createServer as createTlsServer } from "node:https"
import { type AddressInfo, createServer as createTcpServer, type Socket } from "node:net"
import type { TlsOptions } from "node:tls"
import { gzipSync } from "node:zlib"

/** A request as it arrived. */
export interface Received {
  readonly method: string
  readonly path: string
  readonly headers: IncomingHttpHeaders
  /** The names of the headers, in order, as they were sent. */
  readonly headerNames: ReadonlyArray<string>
  /** The exact bytes. */
  readonly body: Buffer
  readonly socket: Socket
  /** The number of its connection, from 1. */
  readonly connection: number
}

export interface Reply {
  readonly status: number
  readonly headers?: Readonly<Record<string, string | ReadonlyArray<string>>>
  readonly body?: string | Uint8Array
}

/** What a receiver does with a request that it has read. */
export type Behaviour =
  | Reply
  | "slow" // 200 after 100 ms
  | "hang" // never answers
  | "close" // the connection is closed without an answer
  | "reset" // the same, with a reset
  | "reset-in-headers"
  | "reset-in-body"
  | "close-in-body" // before its content-length is reached
  | "close-in-chunk" // without the last chunk
  | "drip" // 200, and a byte of the body every 20 ms
  | "drip-headers" // a header's bytes, one every 20 ms
  | "endless-headers"
  | "endless-body" // 200, as fast as it is read
  | "endless-informational" // 103, repeatedly
  | "bomb" // 200, 10 MiB of zeros as 10 KiB of gzip
  | "garbage" // not HTTP
  | "upgrade" // an unrequested 101
  | "101" // the same without a header that says to what
  | "continue" // 100 and 103 and 100, then 200 with a body
  | "no-status" // 099

export interface Receiver {
  /** `http://127.0.0.1:PORT`, or https. */
  readonly url: string
  readonly port: number
  readonly received: ReadonlyArray<Received>
  /** Sets the behaviour from now on; default: 200 without a body. */
  readonly behave: (behaviour: Behaviour | ((request: Received) => Behaviour)) => void
  /** Resolves once `n` requests have been read in total. */
  readonly arrived: (n: number) => Effect.Effect<void>
  /** Resolves once `n` connections have been accepted in total. */
  readonly accepted: (n: number) => Effect.Effect<void>
  /** Resolves once no connection is open. */
  readonly quiet: Effect.Effect<void>
  /** The numbers of connections that were accepted so far, and that are open. */
  readonly connections: () => { readonly accepted: number; readonly open: number }
  /** The number of bytes written so far to connections that are still open. */
  readonly written: () => number
}

export interface ReceiverOptions {
  readonly host?: string
  /** The PEM of a key and its certificate; makes it https. */
  readonly tls?: Pick<TlsOptions, "ciphers" | "dhparam" | "ecdhCurve" | "maxVersion"> & {
    readonly key: string
    readonly cert: string
    /** Then clients must show a certificate of this authority. */
    readonly ca?: string
  }
  /** Whether it accepts connections without reading or sending anything, even in TLS. */
  readonly mute?: boolean
}

const bomb = gzipSync(new Uint8Array(10 * 1024 * 1024))
const head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n"

const every = (milliseconds: number, socket: Socket, write: () => void) => {
  const timer = setInterval(write, milliseconds)
  socket.once("close", () => clearInterval(timer))
}
/** Writes as long as the other side reads. */
const flood = (socket: Socket, text: string) => {
  const block = text.repeat(Math.ceil(65_536 / text.length))
  const more = () => {
    while (!socket.destroyed && socket.write(block));
  }
  socket.on("drain", more)
  more()
}

const act = (behaviour: Behaviour, response: ServerResponse, socket: Socket) => {
  if (typeof behaviour === "object") {
    return response.writeHead(behaviour.status, { ...behaviour.headers } as never).end(behaviour.body)
  }
  switch (behaviour) {
    case "slow":
      return setTimeout(() => response.end(), 100)
    case "hang":
      return
    case "close":
      return socket.end()
    case "reset":
      return socket.resetAndDestroy()
    case "reset-in-headers":
      return socket.write("HTTP/1.1 200 OK\r\ncontent-", () => setTimeout(() => socket.resetAndDestroy(), 20))
    case "reset-in-body":
      return socket.write(`${head}content-length: 100\r\n\r\npart`, () =>
        setTimeout(() => socket.resetAndDestroy(), 20),
      )
    case "close-in-body":
      return socket.end(`${head}content-length: 100\r\n\r\npart`)
    case "close-in-chunk":
      return socket.end(`${head}transfer-encoding: chunked\r\nconnection: close\r\n\r\n4\r\npart\r\n`)
    case "drip":
      socket.write(`${head}content-length: 100000\r\n\r\n`)
      return every(20, socket, () => socket.write("x"))
    case "drip-headers":
      socket.write(`${head}x-drip: `)
      return every(20, socket, () => socket.write("x"))
    case "endless-headers":
      socket.write(head)
      return flood(socket, `x-more: ${"x".repeat(1000)}\r\n`)
    case "endless-body":
      socket.write(`${head}transfer-encoding: chunked\r\n\r\n`)
      return flood(socket, `400\r\n${"x".repeat(1024)}\r\n`)
    case "endless-informational":
      return flood(socket, "HTTP/1.1 103 Early Hints\r\nlink: </style.css>\r\n\r\n")
    case "bomb":
      return response.writeHead(200, { "content-encoding": "gzip" }).end(bomb)
    case "garbage":
      return socket.write("SSH-2.0-OpenSSH_9.9\r\n")
    case "101":
      return socket.write("HTTP/1.1 101 Switching Protocols\r\n\r\n")
    case "no-status":
      return socket.write("HTTP/1.1 099 What\r\n\r\n")
    case "continue":
      socket.write("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 1")
      return setTimeout(
        () => socket.write("00 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n", () => response.end("ok")),
        10,
      )
    case "upgrade":
      return socket.write("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
  }
}

const start = (options: ReceiverOptions, listening: () => void) => {
  const received: Array<Received> = []
  const sockets = new Map<Socket, number>()
  const waiting = new Set<() => void>()
  let accepted = 0
  let behaviour: Behaviour | ((request: Received) => Behaviour) = { status: 200 }
  const changed = () => waiting.forEach((check) => check())
  const until = (condition: () => boolean) =>
    Effect.callback<void>((resume) => {
      const check = () => {
        if (!condition()) return
        waiting.delete(check)
        resume(Effect.void)
      }
      waiting.add(check)
      check()
      return Effect.sync(() => waiting.delete(check))
    })

  const handle = (request: IncomingMessage, response: ServerResponse) => {
    const chunks: Array<Buffer> = []
    request.on("data", (chunk: Buffer) => chunks.push(chunk))
    request.on("end", () => {
      const { method = "", url = "", headers, rawHeaders, socket } = request
      const headerNames = rawHeaders.filter((_, index) => index % 2 === 0)
      const connection = Number(numbers.get(`${socket.remotePort}`))
      const entry = { method, path: url, headers, headerNames, body: Buffer.concat(chunks), socket, connection }
      received.push(entry)
      act(typeof behaviour === "function" ? behaviour(entry) : behaviour, response, socket)
      changed()
    })
  }
  // Identified by the client's port, because under TLS the socket of a request is not the accepted one.
  const numbers = new Map<string, number>()
  const server =
    options.mute === true
      ? createTcpServer()
      : options.tls === undefined
        ? createServer(handle)
        : createTlsServer({ ...options.tls, requestCert: options.tls.ca !== undefined }, handle)
  server.on("connection", (socket: Socket) => {
    sockets.set(socket, ++accepted)
    numbers.set(`${socket.remotePort}`, accepted)
    socket.on("error", () => {})
    socket.on("close", () => {
      sockets.delete(socket)
      changed()
    })
    // Nothing reads from a mute receiver's connections, so their ends would be missed.
    if (options.mute === true) socket.resume()
    changed()
  })
  server.on("tlsClientError", () => {})
  server.listen(0, options.host ?? "127.0.0.1", listening)

  const receiver = (): Receiver => {
    const { port } = server.address() as AddressInfo
    return {
      url: `${options.tls === undefined ? "http" : "https"}://${options.host ?? "127.0.0.1"}:${port}`,
      port,
      received,
      behave: (next) => {
        behaviour = next
      },
      arrived: (n) => until(() => received.length >= n),
      accepted: (n) => until(() => accepted >= n),
      quiet: until(() => sockets.size === 0),
      connections: () => ({ accepted, open: sockets.size }),
      written: () => [...sockets.keys()].reduce((sum, socket) => sum + socket.bytesWritten, 0),
    }
  }
  const stop = (done: () => void) => {
    server.close(() => done())
    sockets.forEach((_, socket) => socket.destroy())
  }
  return { receiver, stop }
}

/** A receiver of webhooks on a loopback port, which follows `behave` and records requests until the scope closes. */
export const makeReceiver = (options: ReceiverOptions = {}): Effect.Effect<Receiver, never, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(
      Effect.callback<ReturnType<typeof start>>((resume) => {
        const started = start(options, () => resume(Effect.succeed(started)))
      }),
      ({ stop }) => Effect.callback<void>((resume) => stop(() => resume(Effect.void))),
    ),
    ({ receiver }) => receiver(),
  )

/** A loopback port on which nothing listens. */
export const closedPort: Effect.Effect<number> = Effect.scoped(Effect.map(makeReceiver(), ({ port }) => port))
