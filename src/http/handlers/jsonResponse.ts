import { NodeHttpServerRequest } from "@effect/platform-node"
import { Effect, Schema } from "effect"
import { HttpServerRequest, HttpServerResponse } from "effect/http"
import type { ServerResponse } from "node:http"
import type { Socket } from "node:net"
import { Unavailable } from "../../domain/Errors.ts"
import { noOrg, RequestOrg } from "../../domain/Principal.ts"
import { stringify } from "../../domain/StoredJson.ts"

/**
 * Makes an encoder of responses that copies stored JSON as it is; the definition's encoder would parse and print it. A
 * value that does not match the schema is a defect. Fails with `Unavailable` when too many large responses are unread.
 * Call it once per operation: it compiles the schema.
 *
 * @param changes whether the operation changes something; then its response is sent above the limit as well
 */
export const jsonResponse = <S extends Schema.Codec<object, object>>(schema: S, changes = false) => {
  const encode = Schema.encodeUnknownEffect(schema)
  return <E, R>(operation: Effect.Effect<S["Type"], E, R>) =>
    roomForResponse.pipe(
      Effect.andThen(operation),
      Effect.flatMap((value) => Effect.orDie(encode(value))),
      Effect.map(stringify),
      Effect.tap((text) => holdResponse(text.length, changes)),
      Effect.map((text) => HttpServerResponse.text(text, { contentType: "application/json" })),
    )
}

const MiB = 1024 * 1024

/** How many characters of large responses may be unsent: to all clients, and to the clients of one org. */
const maxUnsent = { all: 64 * MiB, org: 32 * MiB }
/** Smaller responses are not counted: other limits bound their number. */
const minCounted = MiB / 16

const noRoom = new Unavailable({ error: "Too many large responses wait to be read; read them, then try again." })

/** Unsent characters now. An org without unsent responses has no entry. */
const unsent = { all: 0, byOrg: new Map<string, number>() }

/**
 * What to run when a connection ends, by connection. A response that has not begun, behind others of its connection,
 * has no event for that.
 */
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

/** Counts a response until it is sent or its connection ends. */
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

/** Fails before an operation when the org has too many unread responses. */
const roomForResponse = Effect.flatMap(org, (orgId) =>
  unsentOf(orgId) < maxUnsent.org ? Effect.void : Effect.fail(noRoom),
)

/** Counts a response of `length` characters. Fails above the limit, unless the response `mustBeSent`. */
const holdResponse = (length: number, mustBeSent: boolean) =>
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
