import { Option, Result } from "effect"
import { NetAddress } from "effect/net"

/** An address; an IPv4-mapped one, which servers of both families report, as the IPv4 address that it stands for. */
export const parseIp = (text: string): NetAddress.IpAddress | undefined => {
  const address = Result.getOrUndefined(NetAddress.ipFromString(text))
  return address === undefined || NetAddress.isIpv4Address(address)
    ? address
    : Option.getOrElse(NetAddress.fromIpv4Mapped(address), () => address)
}

/** Longer than any address with a zone and a port. */
const maxAddressLength = 128
/** An address in brackets, or one of IPv4, each with or without a port; else the whole text. */
const written = /^(?:\[([^\]]*)\](?::\d{1,5})?|([\d.]+):\d{1,5}|(.*))$/s

/**
 * The address of a client as servers and proxies write it: its port, brackets and zone are dropped. `undefined` for
 * what is no address, such as `unknown`.
 */
export const clientAddressIn = (text: string): NetAddress.IpAddress | undefined => {
  // Most requests have no header of a proxy, and a fault of the parser costs as much as the rest of their address.
  if (text === "" || text.length > maxAddressLength) return undefined
  const [, bracketed, withPort, plain = ""] = written.exec(text.trim()) ?? []
  return parseIp((bracketed ?? withPort ?? plain).replace(/%.*$/s, ""))
}

/**
 * What an address counts as: an IPv6 address as its /64 network, of which one client has all addresses. Text that is no
 * address counts as itself.
 */
export const networkOf = (text: string): string => {
  const address = clientAddressIn(text)
  if (address === undefined) return text.slice(0, maxAddressLength)
  if (NetAddress.isIpv4Address(address)) return NetAddress.formatIp(address)
  const network = NetAddress.ipv6ToSegments(address).slice(0, 4)
  return `${network.map((part) => part.toString(16)).join(":")}::/64`
}
