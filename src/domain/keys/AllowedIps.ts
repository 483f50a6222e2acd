import { Option, Result, Schema } from "effect"
import { IpNetwork, NetAddress } from "effect/net"

/** An address; an IPv4-mapped one, which servers of both families report, as the IPv4 address that it stands for. */
const parseIp = (text: string): NetAddress.IpAddress | undefined => {
  const address = Result.getOrUndefined(NetAddress.ipFromString(text))
  return address === undefined || NetAddress.isIpv4Address(address)
    ? address
    : Option.getOrElse(NetAddress.fromIpv4Mapped(address), () => address)
}

/** A network, or an address as the network of only that. */
const parseNetwork = (text: string): IpNetwork.IpNetwork | undefined => {
  if (text.includes("/")) return Result.getOrUndefined(IpNetwork.fromString(text))
  const address = parseIp(text)
  return address && IpNetwork.makeUnsafe(address, NetAddress.width(address))
}

/** Longer than any address or network. */
const maxLength = 64
const ofIp = (isValid: (text: string) => boolean, expected: string) =>
  Schema.String.check(
    Schema.isMaxLength(maxLength, { expected }),
    Schema.makeFilter(isValid, { expected, toJsonSchema: () => [{}, true] }),
  )

export const ClientIp = ofIp((text) => parseIp(text) !== undefined, "an IPv4 or IPv6 address").annotate({
  description: "The address of the client that sent the key. A key with allowedIps needs it: else the answer is a 403.",
  examples: ["203.0.113.7"],
})

/** The networks from which a key may be used. */
export const AllowedIps = Schema.Array(
  ofIp(
    (text) => parseNetwork(text) !== undefined,
    "an address, or a network whose host bits are zero, as in 203.0.113.0/24 or 2001:db8::/32",
  ),
)
  .check(
    Schema.isMinLength(1, { expected: "a list of 1 to 100 networks" }),
    Schema.isMaxLength(100, { expected: "a list of 1 to 100 networks" }),
  )
  .annotate({
    description:
      "The networks from which the key may be used: 1 to 100 addresses or networks, of IPv4 and IPv6. Validations pass the client's " +
      "address in clientIp.",
    examples: [["203.0.113.0/24", "2001:db8::/32"]],
  })

/** The networks of a key, parsed at their first use. */
export class AllowedNetworks {
  readonly list: ReadonlyArray<string>
  #networks: ReadonlyArray<IpNetwork.IpNetwork> | undefined

  constructor(list: ReadonlyArray<string>) {
    this.list = list
  }

  has(clientIp: string | undefined): boolean {
    const address = clientIp === undefined ? undefined : parseIp(clientIp)
    if (address === undefined) return false
    this.#networks ??= this.list.flatMap((text) => parseNetwork(text) ?? [])
    return this.#networks.some((network) => IpNetwork.contains(network, address))
  }
}
