import { Effect } from "effect"
import { Agent, type IncomingHttpHeaders, type OutgoingHttpHeaders, request } from "node:http"

/** A request as it is sent on the wire. */
export interface WireRequest {
  readonly headers?: OutgoingHttpHeaders | undefined
  /** Sent as JSON, with its content type. */
  readonly json?: unknown
  /** Sent unchanged. */
  readonly body?: string | Uint8Array | undefined
  /** A credential for `authorization: Bearer`. */
  readonly as?: string | undefined
}

/** An answer as it came on the wire. */
export interface WireAnswer {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly text: string
  /** The body as JSON; undefined when it is not JSON. */
  readonly json: unknown
}

export type Send = (method: string, path: string, options?: WireRequest) => Effect.Effect<WireAnswer, Error>

const parse = (text: string): unknown => {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** Sends requests to one address with Node's own client: nothing is added, encoded or followed. */
export const sender = (url: string, agent: Agent): Send => {
  const { hostname, port } = new URL(url)
  return (method, path, { headers, json, body, as } = {}) =>
    Effect.callback((resume, signal) => {
      const sent = body ?? (json === undefined ? undefined : JSON.stringify(json))
      const outgoing = request(
        {
          hostname,
          port,
          method,
          path,
          agent,
          signal,
          headers: {
            ...(sent === undefined || headers?.["transfer-encoding"]
              ? {}
              : { "content-length": Buffer.byteLength(sent) }),
            ...(json === undefined ? {} : { "content-type": "application/json" }),
            ...(as === undefined ? {} : { authorization: `Bearer ${as}` }),
            ...headers,
          },
        },
        (incoming) => {
          const chunks: Array<Buffer> = []
          incoming.on("data", (chunk: Buffer) => chunks.push(chunk))
          incoming.on("error", (error) => resume(Effect.fail(error)))
          incoming.on("end", () => {
            const text = Buffer.concat(chunks).toString("utf8")
            resume(Effect.succeed({ status: incoming.statusCode!, headers: incoming.headers, text, json: parse(text) }))
          })
        },
      )
      outgoing.on("error", (error) => resume(Effect.fail(error)))
      outgoing.end(sent)
    })
}
