import { Context, Effect, Option } from "effect"
import { HttpServerRequest } from "effect/http"

/** How many proxies in front of the server are trusted to write `x-forwarded-for`. */
export const TrustedProxies = Context.Reference<number>("gatehouse/http/TrustedProxies", { defaultValue: () => 0 })

/**
 * The address of the client: of the connection, or the one that the outermost trusted proxy saw. Each proxy appends the
 * address of its client. With n trusted proxies, a client cannot forge the n-th entry from the right.
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
