import { NodeHttpServerRequest } from "@effect/platform-node"
import { Effect } from "effect"
import { HttpServerRequest } from "effect/http"
import type { ServerResponse } from "node:http"
import type { Socket } from "node:net"
import { Unavailable } from "../../domain/Errors.ts"
import { noOrg, RequestOrg } from "../../domain/orgs/RequestOrg.ts"

const MiB = 1024 * 1024

/** How many characters of large answers may be unsent: to all clients, and to the clients of one org. */
const maxUnsent = { all: 64 * MiB, org: 32 * MiB }
/** Smaller answers are not counted: other limits bound their number. */
const minCounted = MiB / 16

const noRoom = new Unavailable({ error: "Too many large answers wait to be read; read them, then try again." })

/** Unsent characters now. An org without unsent answers has no entry. */
const unsent = { all: 0, byOrg: new Map<string, number>() }

/** What to run when a connection ends: a pipelined answer that has not begun gets no event of its own. */
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

/** Counts an answer until it is sent or its connection ends. */
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

/** Fails before an operation when the org has too many unread answers. */
export const roomForAnswer = Effect.flatMap(org, (orgId) =>
  unsentOf(orgId) < maxUnsent.org ? Effect.void : Effect.fail(noRoom),
)

/** Counts an answer of `length` characters. Fails above the limit, unless the answer `mustBeSent`. */
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
