import { Context, Effect, Result } from "effect"
import { IpNetwork, NetAddress } from "effect/net"
import { InvalidRequest } from "./Errors.ts"

// Which URLs of users the service may call: first their text, then the address of their host.

/** The maximum length of a URL, in characters. */
const maxUrlLength = 2048

export const portFault = "must have a port from 1 to 65,535, or none"

/**
 * Checks the text of a URL. Returns the broken rule as the end of a sentence (`must be …`), or `undefined` for a valid
 * URL. Does not check the host: `addressFault` checks a literal address, and a name is resolved and checked before each
 * request.
 *
 * @param options httpsOnly: refuse http, as in guarded mode
 */
export const urlFault = (url: string, options: { readonly httpsOnly: boolean }): string | undefined => {
  if (url.length > maxUrlLength) return "must be at most 2,048 characters"
  // The parser drops some of these and escapes others: the stored URL and the called one would differ.
  if (/[\s\p{Cc}]/u.test(url) || !url.isWellFormed()) return "must be a URL without white space or control characters"
  // The parser also accepts "http:example.com" and "https:\\example.com", which other parsers refuse.
  const authority = /^https?:\/\/([^/?#\\]+)/i.exec(url)?.[1]
  if (authority === undefined || !URL.canParse(url)) {
    return `must be an absolute ${options.httpsOnly ? "https" : "http or https"} URL`
  }
  // The text and not the parsed URL, which has no trace of the empty ones in "https://@example.com".
  if (authority.includes("@")) return "must have no user name or password in it"
  const { port, protocol } = new URL(url)
  if (port === "0") return portFault
  return options.httpsOnly && protocol !== "https:" ? "must be an https URL" : undefined
}

/**
 * The lists below contain every block of the IANA special-purpose address registries (RFC 6890, RFC 8190), including
 * the globally reachable ones, where no receiver is; and multicast (RFC 5771, RFC 4291).
 * https://www.iana.org/assignments/iana-ipv4-special-registry and …/iana-ipv6-special-registry
 */
const networks = (...blocks: ReadonlyArray<string>) => blocks.map(IpNetwork.fromStringUnsafe)

/** Private networks, which ALLOW_PRIVATE_NETWORKS permits. */
const privateNetworks = networks(
  "10.0.0.0/8", // private (RFC 1918)
  "172.16.0.0/12",
  "192.168.0.0/16",
  "100.64.0.0/10", // carrier-grade NAT (RFC 6598); overlay networks use it too
  "127.0.0.0/8", // loopback
  "::1/128",
  "fc00::/7", // unique-local (RFC 4193)
)

/** The metadata services of clouds, which return secrets. They are always refused, also inside a permitted block. */
const metadataServices = networks(
  // AWS, Google Cloud, Azure and most others use 169.254.169.254, which is link-local and refused with its block.
  "100.100.100.200/32", // Alibaba Cloud
  "168.63.129.16/32", // Azure: virtual public address of the host
  "fd00:ec2::/32", // AWS
  "fd20:ce::/32", // Google Cloud
)

const specialIpv4 = networks(
  "0.0.0.0/8", // this host; reaches loopback
  "169.254.0.0/16", // link-local
  "192.0.0.0/24", // protocol assignments
  "192.0.2.0/24", // documentation
  "192.31.196.0/24", // AS112
  "192.52.193.0/24", // AMT
  "192.88.99.0/24", // 6to4 relays
  "192.175.48.0/24", // AS112
  "198.18.0.0/15", // benchmarking
  "198.51.100.0/24", // documentation
  "203.0.113.0/24", // documentation
  "224.0.0.0/4", // multicast
  "240.0.0.0/4", // reserved, and broadcast
)

/**
 * The only block of IPv6 for use on the internet (RFC 4291, RFC 3587). Outside it are, among others: IPv4-mapped
 * ::ffff:0:0/96 and -compatible ::/96, NAT64 64:ff9b::/96 and 64:ff9b:1::/48, discard 100::/64, SRv6 5f00::/16,
 * link-local fe80::/10, site-local fec0::/10, multicast ff00::/8.
 */
const [globalUnicast] = networks("2000::/3")

const specialIpv6 = networks(
  "2001::/23", // protocol assignments: Teredo, benchmarking, ORCHID, AMT, DRIP …
  "2001:db8::/32", // documentation
  "2002::/16", // 6to4
  "2620:4f:8000::/48", // AS112
  "3ffe::/16", // the former 6bone
  "3fff::/20", // documentation
)

export interface AddressRules {
  /** Whether private, loopback, unique-local and carrier-grade NAT addresses may be called too. */
  readonly allowPrivateNetworks: boolean
}

/**
 * Whether the service may send requests to an address. Refuses text that is not a plain address, such as a name,
 * brackets, a zone or a leading zero. Always refuses an IPv4 address inside an IPv6 one.
 */
export const mayCall = (text: string, rules: AddressRules): boolean => {
  const address = Result.getOrUndefined(NetAddress.ipFromString(text))
  if (address === undefined) return false
  const among = (blocks: ReadonlyArray<IpNetwork.IpNetwork>) =>
    blocks.some((block) => IpNetwork.contains(block, address))
  if (among(metadataServices)) return false
  if (among(privateNetworks)) return rules.allowPrivateNetworks
  return NetAddress.isIpv4Address(address)
    ? !among(specialIpv4)
    : IpNetwork.contains(globalUnicast!, address) && !among(specialIpv6)
}

/**
 * Checks the host of a URL that `urlFault` accepts. Returns the broken rule as the end of a sentence, or `undefined`
 * for a valid host and for a name, which is resolved and checked before each request. The URL parser normalizes every
 * notation of an address.
 */
export const addressFault = (url: string, rules: AddressRules): string | undefined => {
  const host = new URL(url).hostname.replace(/^\[|\]$/g, "")
  return Result.isFailure(NetAddress.ipFromString(host)) || mayCall(host, rules)
    ? undefined
    : "must not have a private, reserved or special address as its host"
}

/** The rules for URLs that receive webhooks. */
export class ReceiverUrlRules extends Context.Reference<AddressRules & { readonly httpsOnly: boolean }>(
  "gatehouse/domain/ReceiverUrlRules",
  { defaultValue: () => ({ httpsOnly: true, allowPrivateNetworks: false }) },
) {}

/** Checks the URL of an endpoint, a callback or a token. Fails with a sentence that names the field. */
export const checkReceiverUrl = (
  field: string,
  url: string,
  rules: typeof ReceiverUrlRules.Service,
): Effect.Effect<void, InvalidRequest> => {
  const fault = urlFault(url, rules) ?? addressFault(url, rules)
  return fault === undefined ? Effect.void : Effect.fail(new InvalidRequest({ error: `${field} ${fault}.` }))
}
