import { Effect, Layer, Scope } from "effect"
import { HttpServerRequest } from "effect/http"
import * as ByteBudget from "../../domain/ByteBudget.ts"
import { CurrentPrincipal } from "../../domain/Principal.ts"
import { ChatBodyMemory } from "../../domain/chat/ChatBodyMemory.ts"
import { ChatBodies } from "../api/middleware.ts"
import { clientAddress } from "./clientAddress.ts"

/** How long a chat waits before its body is read. */
const deadline = "10 seconds"
/** How many chats of one owner may wait for that. */
const maxWaiting = 64
/** The largest body, in bytes. A body without a declared length counts as this. */
const largest = 8 * 1024 * 1024

/** From this size on, in bytes, what a body leaves behind is given back at once. */
const large = 1024 * 1024

/** Has the bodies of chats wait outside until there is memory for them; one owner has half of it, or one body. */
export const layer = Layer.effect(
  ChatBodies,
  Effect.gen(function* () {
    const { bytes, release } = yield* ChatBodyMemory
    const budget = ByteBudget.make({
      bytes,
      perOwner: bytes / 2,
      deadline,
      maxWaiting,
      error: "Too many chats with much documentation are being answered; try again.",
    })
    return (operation) =>
      Effect.gen(function* () {
        const { principal } = yield* CurrentPrincipal
        const { headers } = yield* HttpServerRequest.HttpServerRequest
        const length = Number(headers["content-length"] ?? largest)
        const owner = principal._tag === "ProjectKey" ? principal.orgId : `address ${yield* clientAddress}`
        const answering = yield* Effect.scope
        // Five times its size: V8 would let that of several add up first.
        const cleaned = length < large ? operation : Effect.ensuring(operation, release)
        // Until the answer begins; what it needs then is in memory otherwise.
        return yield* budget
          .take(owner, Math.min(length, largest))
          .pipe(Effect.andThen(Scope.provide(cleaned, answering)), Effect.scoped)
      })
  }),
)
