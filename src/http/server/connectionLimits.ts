import type { ServerResponse } from "node:http"
import type { Socket } from "node:net"

/** Limits of each connection. */
export interface ConnectionLimits {
  /** How many pipelined requests may wait behind the one in progress. */
  readonly maxPipelined: number
  /** How long a client may leave an answer unread, in milliseconds. */
  readonly maxUnreadMillis: number
}

export const defaultLimits: ConnectionLimits = { maxPipelined: 100, maxUnreadMillis: 60_000 }

/** Whether a request of the connection is in progress. Reads a field that Node does not document. */
export const isAnswering = (socket: object): boolean => "_httpMessage" in socket && socket["_httpMessage"] !== null

/**
 * Counts the pipelined requests of each connection. Destroys a connection above `maxPipelined` and returns true: the
 * request of this response must not be answered.
 */
export const pipelineLimit = (maxPipelined: number) => {
  const waiting = new WeakMap<Socket, number>()
  const add = (socket: Socket, count: number) => waiting.set(socket, (waiting.get(socket) ?? 0) + count)
  return (socket: Socket, response: ServerResponse): boolean => {
    // Node assigns the socket when the previous response has ended.
    if (response.socket !== null) return false
    add(socket, 1)
    response.once("finish", () => add(socket, -1))
    if (waiting.get(socket)! <= maxPipelined) return false
    socket.destroy()
    return true
  }
}

/**
 * Ends a connection after a time without traffic if an answer is unread or the connection is idle. A connection whose
 * answer is in progress stays open.
 */
export const endStalled = (socket: Socket): void => {
  if (socket.writableLength > 0 || !isAnswering(socket)) socket.destroy()
}
