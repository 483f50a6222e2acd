import { Context, Effect, Layer } from "effect"
import type { Principal } from "../Principal.ts"
import { minuteRates } from "../minuteRates.ts"
import { networkOf } from "../clientNetworks.ts"

/** The rate limits, in chats per minute. */
export const ChatRates = Context.Reference<{
  /** For each project key. */
  readonly projectKey: number
  /** For each client address without a key. */
  readonly address: number
}>("gatehouse/domain/docs/ChatRates", { defaultValue: () => ({ projectKey: 120, address: 60 }) })

/** What the rate limit counts by: the key, or the address of a client without one. */
export const limitKeyOf = (principal: Principal, address: string) =>
  "keyId" in principal ? `key ${principal.keyId}` : `address ${networkOf(address)}`

/** The rate limits of chats, and of everything else that searches documentation. */
export class ChatRateLimits extends Context.Service<ChatRateLimits>()("gatehouse/domain/docs/ChatRateLimits", {
  make: Effect.gen(function* () {
    const rates = yield* ChatRates
    const take = minuteRates("chats")

    return {
      /**
       * Takes one use. Fails when there were too many.
       *
       * @param address the client's address, by which callers without a key are counted
       */
      take: (principal: Principal, address: string) =>
        take(limitKeyOf(principal, address), "keyId" in principal ? rates.projectKey : rates.address),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}
