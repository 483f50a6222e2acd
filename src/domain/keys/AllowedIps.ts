import { Option, Result, Schema } from "effect"
import { IpNetwork, NetAddress } from "effect/net"
import { clientAddressIn, parseIp } from "../clientNetworks.ts"

/** What an IPv4-mapped network has before the prefix of its IPv4 network. */
const mappedBits = 96

/** An IPv4-mapped network as the IPv4 network that it stands for. */
const unmapped = (network: IpNetwork.IpNetwork): IpNetwork.IpNetwork =>
  IpNetwork.isIpv6Network(network) && network.prefixLength >= mappedBits
    ? Option.match(NetAddress.fromIpv4Mapped(network.address), {
        onSome: (address) => IpNetwork.makeUnsafe(address, network.prefixLength - mappedBits),
        onNone: () => network,
      })
    : network

/** A network, or an address as the network of only that. */
const parseNetwork = (text: string): IpNetwork.IpNetwork | undefined => {
  if (text.includes("/")) return Result.getOrUndefined(Result.map(IpNetwork.fromString(text), unmapped))
  const address = parseIp(text)
  return address && IpNetwork.makeUnsafe(address, NetAddress.width(address))
}

/** Longer than any address or network. */
const maxLength = 64
const expected = "an address, or a network whose host bits are zero, as in 203.0.113.0/24 or 2001:db8::/32"

// Any text: a gateway passes on what its proxy says, which may be no address.
export const ClientIp = Schema.String.annotate({
  description:
    "The address of the client that sent the key, with or without a port. What is no address counts as absent. A key with " +
    "allowedIps needs it: else the answer is a 403.",
  examples: ["203.0.113.7"],
})

/** The networks from which a key may be used. */
export const AllowedIps = Schema.Array(
  Schema.String.check(
    Schema.isMaxLength(maxLength, { expected }),
    Schema.makeFilter((text) => parseNetwork(text) !== undefined, { expected, toJsonSchema: () => [{}, true] }),
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
    const address = clientIp === undefined ? undefined : clientAddressIn(clientIp)
    if (address === undefined) return false
    this.#networks ??= this.list.flatMap((text) => parseNetwork(text) ?? [])
    return this.#networks.some((network) => IpNetwork.contains(network, address))
  }
}
