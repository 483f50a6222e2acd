import { connect, type Socket } from "node:net"
import { Pool } from "undici"

/** The service that an attack calls, and the credential that it uses. */
export interface Target {
  readonly url: string
  readonly key: string
  /** Ids of the key's webhook endpoints. */
  readonly endpoints: ReadonlyArray<string>
}

/** The number of responses by status. */
export type Statuses = Record<string, number>

const count = (statuses: Statuses, status: string) => {
  statuses[status] = (statuses[status] ?? 0) + 1
}

/** The status as the table shows it: a 503 without `Retry-After` is a fault. */
export const named = (status: number, retryAfter: unknown): string =>
  status === 503 && retryAfter === undefined ? "503 without Retry-After" : String(status)

/** The functions with which attacks send requests, and the count of the responses. */
export const makeClient = ({ key, url }: Target) => {
  const statuses: Statuses = {}
  const { hostname, port } = new URL(url)
  const pool = new Pool(url, { connections: 3_000, pipelining: 1, headersTimeout: 120_000, bodyTimeout: 120_000 })
  const sockets = new Set<Socket>()

  /** Sends a POST and reads its response to the end, without parsing it. */
  const ask = async (path: string, body: string | Buffer, headers: Record<string, string> = { "x-api-key": key }) => {
    try {
      const response = await pool.request({
        method: "POST",
        path,
        headers: { "content-type": "application/json", ...headers },
        body,
      })
      for await (const _ of response.body);
      count(statuses, named(response.statusCode, response.headers["retry-after"]))
    } catch {
      count(statuses, "connection ended")
    }
  }

  /** Sends bytes on a new connection. Ends when the connection does, or with `close`. */
  const raw = (bytes: string, reads: boolean) =>
    new Promise<void>((resolve) => {
      const socket = connect(Number(port), hostname)
      sockets.add(socket)
      const see = (chunk: Buffer) => {
        for (const [, status, rest] of chunk.toString("latin1").matchAll(/HTTP\/1\.1 (\d{3})([^]*?)\r\n\r\n/g)) {
          count(statuses, named(Number(status), /retry-after/i.test(rest!) ? "" : undefined))
        }
      }
      if (reads) socket.on("data", see)
      else socket.pause()
      socket
        .on("error", () => {})
        .on("close", () => {
          sockets.delete(socket)
          resolve()
        })
        .write(bytes, "latin1")
    })

  /** Closes the connections of `raw`. */
  const close = () => sockets.forEach((socket) => socket.destroy())

  return { ask, raw, close, statuses }
}

export type Client = ReturnType<typeof makeClient>
