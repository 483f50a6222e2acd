import { Context, Effect, Layer } from "effect"
import { LRUCache } from "lru-cache"
import { TooManyRequests } from "../Errors.ts"
import type { CurrentPrincipal, Principal } from "../Principal.ts"
import { monotonicMillis } from "../monotonicMillis.ts"
import { networkOf } from "../networks.ts"
import { ChatRates } from "./Chat.ts"

const minuteMillis = 60_000
/** The keys and networks that are remembered: the least recent one makes room for another. */
const maxRemembered = 10_000

const tooMany = (waitMillis: number) =>
  Effect.fail(
    new TooManyRequests({
      error: "The limit of chats per minute is reached; try again after the seconds in Retry-After.",
      retryAfterSeconds: Math.max(1, Math.ceil(waitMillis / 1000)),
    }),
  )

/** What the rate limit counts by: the key, or the address of a client without one. */
export const limitKeyOf = (principal: Principal, address: string) =>
  "keyId" in principal ? `key ${principal.keyId}` : `address ${networkOf(address)}`

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
      const rates = yield* ChatRates
      /** Until when the uses of each last: one of n a minute lasts a minute divided by n. */
      const lastUntil = new LRUCache<string, number>({ max: maxRemembered })
      return ChatRateLimits.of({
        take: (principal, address) =>
          Effect.flatMap(monotonicMillis, (now) => {
            const each = minuteMillis / ("keyId" in principal ? rates.projectKey : rates.address)
            const key = limitKeyOf(principal, address)
            const until = Math.max(now, lastUntil.get(key) ?? 0) + each
            if (until > now + minuteMillis) return tooMany(until - now - minuteMillis)
            lastUntil.set(key, until)
            return Effect.void
          }),
      })
    }),
  )
}
