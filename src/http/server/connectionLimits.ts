import type { ServerResponse } from "node:http"
import type { Socket } from "node:net"

/** What one connection may take of the process. */
export interface ConnectionLimits {
  /** How many requests may wait behind the one that is being answered. */
  readonly maxPipelined: number
  /** How long an answer may lie unread, in milliseconds. */
  readonly maxUnreadMillis: number
}

export const defaultLimits: ConnectionLimits = { maxPipelined: 100, maxUnreadMillis: 60_000 }

/** Whether an answer of the connection is being made or written. */
export const isAnswering = (socket: object): boolean => "_httpMessage" in socket && socket["_httpMessage"] !== null

/**
 * Counts pipelined requests, and ends a connection that has more of them than `maxPipelined`. Tells whether the request
 * of a response is past that, and has to be left alone.
 */
export const pipelineLimit = (maxPipelined: number) => {
  const waiting = new WeakMap<Socket, number>()
  const add = (socket: Socket, count: number) => waiting.set(socket, (waiting.get(socket) ?? 0) + count)
  return (socket: Socket, response: ServerResponse): boolean => {
    // It has a socket, unless it waits for the one before it.
    if (response.socket !== null) return false
    add(socket, 1)
    response.once("finish", () => add(socket, -1))
    if (waiting.get(socket)! <= maxPipelined) return false
    socket.destroy()
    return true
  }
}

/**
 * For a connection on which nothing has moved for a time: ends it if an answer lies unread, or if it is idle. One whose
 * answer is still being made is left alone.
 */
export const endStalled = (socket: Socket): void => {
  if (socket.writableLength > 0 || !isAnswering(socket)) socket.destroy()
}
