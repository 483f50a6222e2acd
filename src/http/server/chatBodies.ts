import { Effect, Layer, Scope } from "effect"
import { HttpServerRequest } from "effect/http"
import * as ByteBudget from "../../domain/ByteBudget.ts"
import { CurrentPrincipal } from "../../domain/Principal.ts"
import { ChatBodyMemory } from "../../domain/chat/ChatBodyMemory.ts"
import { maxChatBodyBytes } from "../api/Chat.ts"
import { ChatBodies } from "../api/middleware.ts"
import { clientAddress } from "./clientAddress.ts"

/** How long a chat waits for memory before its body is read. */
const bodyMemoryDeadline = "10 seconds"
/** How many chats of one owner may wait for memory. */
const maxWaitingBodies = 64

/** After a body of this size, memory is returned to the operating system at once. */
const minReleasedBytes = 1024 * 1024

/** Delays reading the body of a chat until there is memory for it. One owner uses at most half, or one body. */
export const layer = Layer.effect(
  ChatBodies,
  Effect.gen(function* () {
    const { bytes, release } = yield* ChatBodyMemory
    const budget = ByteBudget.make({
      bytes,
      perOwner: bytes / 2,
      deadline: bodyMemoryDeadline,
      maxWaiting: maxWaitingBodies,
      error: "Too many chats with much documentation are being answered; try again.",
    })
    return (operation) =>
      Effect.gen(function* () {
        const { principal } = yield* CurrentPrincipal
        const { headers } = yield* HttpServerRequest.HttpServerRequest
        // A body without a declared length counts as the largest one.
        const length = Number(headers["content-length"] ?? maxChatBodyBytes)
        const owner = principal._tag === "ProjectKey" ? principal.orgId : `address ${yield* clientAddress}`
        const answering = yield* Effect.scope
        // A body leaves five times its size behind; V8 would collect only after several.
        const cleaned = length < minReleasedBytes ? operation : Effect.ensuring(operation, release)
        // Only until the answer begins: other limits bound the memory of the answer.
        return yield* budget
          .take(owner, Math.min(length, maxChatBodyBytes))
          .pipe(Effect.andThen(Scope.provide(cleaned, answering)), Effect.scoped)
      })
  }),
)
