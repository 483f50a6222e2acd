import { connect, isIP, type LookupFunction } from "node:net"
import { type AddressRules, mayCall } from "../../domain/addresses.ts"
import { codeOf, ConnectFault } from "./ConnectFault.ts"
import type { OpenConnection } from "./connector.ts"
import type { ResolveHost } from "./resolveHost.ts"

export interface PinnedOptions extends AddressRules {
  readonly resolve: ResolveHost
}

interface Address {
  readonly address: string
  readonly family: number
}

const resolve = async (hostname: string, options: PinnedOptions) => {
  if (isIP(hostname) !== 0) return [hostname]
  const addresses = await options.resolve(hostname).catch((error: unknown) => {
    throw new ConnectFault("dns", `The host's name does not resolve (${codeOf(error)}).`)
  })
  if (addresses.length === 0) throw new ConnectFault("dns", "The host's name has no address.")
  return addresses
}

/** Resolves a host and checks its addresses. One forbidden address refuses the host. */
const checkedAddresses = async (hostname: string, options: PinnedOptions): Promise<ReadonlyArray<Address>> => {
  const addresses = await resolve(hostname, options)
  if (!addresses.every((address) => mayCall(address, options))) {
    // Without the address: otherwise a user could resolve the names of a private network.
    throw new ConnectFault(
      "refused_address",
      "The host has an address that is not called (private, reserved or special).",
    )
  }
  return addresses.map((address) => ({ address, family: isIP(address) }))
}

/**
 * Opens direct connections. For each it resolves the host once, checks all addresses and connects to those addresses, so a
 * name that resolves differently a moment later changes nothing (DNS rebinding).
 */
export const pinnedConnection =
  (options: PinnedOptions): OpenConnection =>
  ({ hostname, port }, opening, done) => {
    const proceed = (addresses: ReadonlyArray<Address>) => {
      if (opening.isAborted) return done(new ConnectFault("connection", "The request was canceled."))
      // Not called when the host is an address, which is the checked one.
      const pinned: LookupFunction = (_host, { all }, found) =>
        all ? found(null, [...addresses]) : found(null, addresses[0]!.address, addresses[0]!.family)
      const socket = connect({ host: hostname, port, lookup: pinned, noDelay: true })
      opening.active = socket
      socket.once("error", done).once("connect", () => {
        socket.off("error", done)
        done(null, socket)
      })
    }
    checkedAddresses(hostname, options).then(proceed, done)
  }
