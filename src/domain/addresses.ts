import { Result } from "effect"
import { IpNetwork, NetAddress } from "effect/net"

/**
 * Every block of the IANA special-purpose address registries (RFC 6890, RFC 8190), those that are reachable from
 * anywhere included, for no receiver lives there; and multicast, which has registries of its own (RFC 5771, RFC 4291).
 * https://www.iana.org/assignments/iana-ipv4-special-registry and …/iana-ipv6-special-registry
 */
const networks = (...blocks: ReadonlyArray<string>) => blocks.map(IpNetwork.fromStringUnsafe)

/** What a private installation may hold, and where ALLOW_PRIVATE_NETWORKS lets calls go. */
const privateNetworks = networks(
  "10.0.0.0/8", // private (RFC 1918)
  "172.16.0.0/12",
  "192.168.0.0/16",
  "100.64.0.0/10", // carrier-grade NAT (RFC 6598); overlay networks use it too
  "127.0.0.0/8", // loopback
  "::1/128",
  "fc00::/7", // unique-local (RFC 4193)
)

/** Addresses at which a cloud tells its machines their secrets: never called, wherever their block belongs. */
const metadataServices = networks(
  // AWS, Google Cloud, Azure and most others are at 169.254.169.254, which is link-local and refused with its block.
  "100.100.100.200/32", // Alibaba Cloud
  "168.63.129.16/32", // Azure's virtual public address of the host
  "fd00:ec2::/32", // AWS
  "fd20:ce::/32", // Google Cloud
)

const specialIpv4 = networks(
  "0.0.0.0/8", // this host, on which it reaches loopback
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
 * The one block of IPv6 that has been given out for use on the internet (RFC 4291, RFC 3587). Outside it are, among the
 * reserved: IPv4-mapped ::ffff:0:0/96 and -compatible ::/96, NAT64 64:ff9b::/96 and 64:ff9b:1::/48, discard 100::/64,
 * SRv6 5f00::/16, link-local fe80::/10, site-local fec0::/10, multicast ff00::/8.
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
 * Whether an address may be called (contract 8). What is no plain address (a name, brackets, a zone, a leading zero)
 * may not. An IPv4 address inside an IPv6 one is refused whatever it is, under every rule.
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
 * What is wrong with the host of a url that `urlFault` takes, to be put behind the field's name; `undefined` when it is
 * a name, which is looked up and checked when it is called. The parser makes one notation of all that an address has.
 */
export const addressFault = (url: string, rules: AddressRules): string | undefined => {
  const host = new URL(url).hostname.replace(/^\[|\]$/g, "")
  return Result.isFailure(NetAddress.ipFromString(host)) || mayCall(host, rules)
    ? undefined
    : "must not have a private, reserved or special address as its host"
}
