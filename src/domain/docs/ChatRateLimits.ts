import { Context, Duration, Effect, Layer } from "effect"
import { RateLimiter } from "effect/persistence"
import { TooManyRequests } from "../Errors.ts"
import type { CurrentPrincipal, Principal } from "../Principal.ts"
import { ChatRates } from "./Chat.ts"

const tooMany = (error: RateLimiter.RateLimiterError) =>
  error.reason._tag === "RateLimitExceeded"
    ? Effect.fail(
        new TooManyRequests({
          error: "The limit of chats per minute is reached; try again after the seconds in Retry-After.",
          retryAfterSeconds: Math.max(1, Math.ceil(Duration.toSeconds(error.reason.retryAfter))),
        }),
      )
    : Effect.die(error)

/** What the rate limit counts by: the key, or the address of a client without one. */
export const limitKeyOf = (principal: Principal, address: string) =>
  "keyId" in principal ? `key ${principal.keyId}` : `address ${address}`

/** The rate limits of chats, and of everything else that searches documentation. */
export class ChatRateLimits extends Context.Service<
  ChatRateLimits,
  {
    /**
     * Takes one use. Fails when there were too many.
     *
     * @param address the client's address, by which callers without a key are counted
     */
    readonly take: (
      principal: CurrentPrincipal["Service"]["principal"],
      address: string,
    ) => Effect.Effect<void, TooManyRequests>
  }
>()("gatehouse/domain/docs/ChatRateLimits") {
  static readonly layer = Layer.effect(
    ChatRateLimits,
    Effect.gen(function* () {
      const limiter = yield* RateLimiter.RateLimiter
      const rates = yield* ChatRates
      return ChatRateLimits.of({
        take: (principal, address) => {
          const limit = "keyId" in principal ? rates.projectKey : rates.address
          const key = limitKeyOf(principal, address)
          return limiter
            .consume({ key, limit, window: "1 minute", algorithm: "token-bucket" })
            .pipe(Effect.catchTag("RateLimiterError", tooMany), Effect.asVoid)
        },
      })
    }),
  ).pipe(Layer.provide(RateLimiter.layer), Layer.provide(RateLimiter.layerStoreMemory))
}
