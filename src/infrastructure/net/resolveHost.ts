import { lookup, Resolver } from "node:dns/promises"

/** Resolves a host name to its addresses. Rejects with an error that has a `code` if there are none. */
export type ResolveHost = (hostname: string) => Promise<ReadonlyArray<string>>

/** Error codes for a name that does not exist, or for no name server. */
const unknownNameCodes = new Set(["ENOTFOUND", "ENODATA", "ECONNREFUSED"])

const askSystem: ResolveHost = async (hostname) => (await lookup(hostname, { all: true })).map(({ address }) => address)

/**
 * Resolves names by DNS, with two tries of two seconds for each name server. It avoids the system's `getaddrinfo`, which
 * blocks one of the process's four worker threads while a name server does not answer: a few receivers with a dead name
 * server would block all other look-ups and the verification of tokens. It asks the system for names without a dot
 * (`localhost`, containers) and, with `askSystemToo`, for names that DNS does not know (hosts file, search domains).
 */
export const makeResolveHost =
  (options: {
    readonly askSystemToo: boolean
    /** `ADDRESS:PORT`. Default: the name servers of the system. */
    readonly nameServers?: ReadonlyArray<string>
  }): ResolveHost =>
  async (hostname) => {
    if (!hostname.replace(/\.$/, "").includes(".")) return askSystem(hostname)
    // A new resolver reads the system's name servers again: they change when a laptop moves.
    const resolver = new Resolver({ timeout: 2000, tries: 2 })
    if (options.nameServers !== undefined) resolver.setServers(options.nameServers)
    const answers = await Promise.allSettled([resolver.resolve4(hostname), resolver.resolve6(hostname)])
    const addresses = answers.flatMap((answer) => (answer.status === "fulfilled" ? answer.value : []))
    if (addresses.length > 0) return addresses
    const faults = answers.flatMap((answer) =>
      answer.status === "rejected" ? [answer.reason as { code?: string }] : [],
    )
    const serverFault = faults.find(({ code }) => !unknownNameCodes.has(code ?? ""))
    if (serverFault === undefined && options.askSystemToo) return askSystem(hostname)
    throw serverFault ?? faults[0] ?? new Error("no addresses")
  }
