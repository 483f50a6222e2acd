import { Context, Effect, Option } from "effect"
import { HttpServerRequest } from "effect/http"

/** How many proxies in front of the server are trusted to say, in `x-forwarded-for`, whom they speak for. */
export const TrustedProxies = Context.Reference<number>("gatehouse/http/TrustedProxies", { defaultValue: () => 0 })

/**
 * The address of the client: the connection's, or what the outermost trusted proxy saw. Each proxy appends the address
 * it was called from, so that with n trusted ones the n-th entry from the right is the last that a stranger cannot write.
 */
export const clientAddress: Effect.Effect<string, never, HttpServerRequest.HttpServerRequest> = Effect.gen(
  function* () {
    const request = yield* HttpServerRequest.HttpServerRequest
    const hops = yield* TrustedProxies
    const forwarded = (request.headers["x-forwarded-for"] ?? "").split(",").map((entry) => entry.trim())
    const claimed = hops > 0 ? forwarded.at(-hops) : undefined
    return claimed !== undefined && claimed !== "" ? claimed : Option.getOrElse(request.remoteAddress, () => "unknown")
  },
)
