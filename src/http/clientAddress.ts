import { Context, Effect, Option } from "effect"
import { HttpServerRequest } from "effect/http"
import { NetAddress } from "effect/net"
import { clientAddressIn } from "../domain/clientNetworks.ts"

/** How many proxies in front of the server are trusted to write `x-forwarded-for`. */
export const TrustedProxies = Context.Reference<number>("gatehouse/http/TrustedProxies", { defaultValue: () => 0 })

/**
 * The address of the client: of the connection, or the one that the outermost trusted proxy saw. Each proxy appends the
 * address of its client. With n trusted proxies, a client cannot forge the n-th entry from the right. An entry that is
 * no address counts as absent.
 */
export const clientAddress: Effect.Effect<string, never, HttpServerRequest.HttpServerRequest> = Effect.gen(
  function* () {
    const request = yield* HttpServerRequest.HttpServerRequest
    const hops = yield* TrustedProxies
    const forwarded = hops > 0 ? (request.headers["x-forwarded-for"] ?? "").split(",").at(-hops) : undefined
    const address =
      clientAddressIn(forwarded ?? "") ?? clientAddressIn(Option.getOrElse(request.remoteAddress, () => ""))
    return address === undefined ? "unknown" : NetAddress.formatIp(address)
  },
)

const loopback = /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/

const hostOf = (url: string) => (URL.canParse(url) ? new URL(url).hostname : undefined)

/**
 * Whether `Host` and `Origin` of a request are loopback names or the host of BASE_URL. Refuses DNS rebinding, where a
 * foreign page points its own name at this machine.
 */
export const isLocal = (headers: Readonly<Record<string, string | undefined>>, baseUrl: string): boolean => {
  const mine = (url: string) => {
    const host = hostOf(url)
    return host !== undefined && (loopback.test(host) || host === hostOf(baseUrl))
  }
  const { host, origin } = headers
  return (host === undefined || mine(`http://${host}`)) && (origin === undefined || mine(origin))
}

/** Whether a request came under a loopback name. */
export const hasLoopbackHost = ({ host }: Readonly<Record<string, string | undefined>>): boolean =>
  host !== undefined && loopback.test(hostOf(`http://${host}`) ?? "")

const loopbackAddress = /^(::1|(::ffff:)?127(\.\d{1,3}){3})$/
/** Headers that proxies add. Behind a proxy on this machine, every connection comes from loopback. */
const ofProxies = ["forwarded", "via", "x-forwarded-for", "x-real-ip"]

/** Whether a request comes from this machine: over loopback, and without the headers of a proxy. */
export const isFromThisMachine = (
  address: string | undefined,
  headers: Readonly<Record<string, string | undefined>>,
): boolean =>
  address !== undefined && loopbackAddress.test(address) && ofProxies.every((name) => headers[name] === undefined)
