import { NodeHttpServerRequest } from "@effect/platform-node"
import { Effect } from "effect"
import { HttpServerRequest } from "effect/http"
import type { ServerResponse } from "node:http"
import type { Socket } from "node:net"
import { Unavailable } from "../../domain/Errors.ts"
import { noOrg, RequestOrg } from "../../domain/orgs/RequestOrg.ts"

const MiB = 1024 * 1024

/** How many characters of large answers may wait to be sent: to all clients, and to those of one org. */
const maxUnsent = { all: 64 * MiB, org: 32 * MiB }
/** A smaller answer is not counted: what other bounds let in at one time is little. */
const minCounted = MiB / 16

const noRoom = new Unavailable({ error: "Too many large answers wait to be read; read them, then try again." })

/** What waits just now. An org for which nothing waits has no entry. */
const unsent = { all: 0, byOrg: new Map<string, number>() }

/** What is to be done when a connection ends: pipelined answers whose turn has not come hear of nothing else. */
const endings = new WeakMap<Socket, Set<() => void>>()
const onEnd = (socket: Socket) => {
  const known = endings.get(socket)
  if (known !== undefined) return known
  const made = new Set<() => void>()
  endings.set(socket, made)
  socket.once("close", () => made.forEach((end) => end()))
  return made
}

const unsentOf = (orgId: string) => unsent.byOrg.get(orgId) ?? 0

const add = (orgId: string, length: number) => {
  const own = unsentOf(orgId) + length
  if (own === 0) unsent.byOrg.delete(orgId)
  else unsent.byOrg.set(orgId, own)
  unsent.all += length
}

/** Counts an answer until it is sent or its connection has ended. */
const hold = (orgId: string, length: number, response: ServerResponse, socket: Socket) => {
  if (socket.destroyed) return
  const ends = onEnd(socket)
  const release = () => {
    if (ends.delete(release)) add(orgId, -length)
  }
  add(orgId, length)
  ends.add(release)
  response.once("close", release)
}

const org = Effect.map(RequestOrg, (orgId) => orgId ?? noOrg)

/** Fails when an org has as many unread answers as it may have, before anything is done for another one. */
export const roomForAnswer = Effect.flatMap(org, (orgId) =>
  unsentOf(orgId) < maxUnsent.org ? Effect.void : Effect.fail(noRoom),
)

/** Counts an answer of so many characters; fails when there is no room for it, unless it `mustBeSent`. */
export const holdAnswer = (length: number, mustBeSent: boolean) =>
  length < minCounted
    ? Effect.void
    : Effect.flatMap(org, (orgId) =>
        Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) => {
          const hasRoom = unsent.all + length <= maxUnsent.all && unsentOf(orgId) + length <= maxUnsent.org
          if (!mustBeSent && !hasRoom) return Effect.fail(noRoom)
          const response = NodeHttpServerRequest.toServerResponse(request) as ServerResponse
          const socket = NodeHttpServerRequest.toIncomingMessage(request).socket
          return Effect.sync(() => hold(orgId, length, response, socket))
        }),
      )
