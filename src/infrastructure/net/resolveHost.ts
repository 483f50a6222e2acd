import { lookup, Resolver } from "node:dns/promises"

/** The addresses of a host's name; rejects with an error that has a `code` when there are none. */
export type ResolveHost = (hostname: string) => Promise<ReadonlyArray<string>>

/** What a name server says when a name does not exist, or when there is no name server. */
const unknown = new Set(["ENOTFOUND", "ENODATA", "ECONNREFUSED"])

const askSystem: ResolveHost = async (hostname) => (await lookup(hostname, { all: true })).map(({ address }) => address)

/**
 * Resolves names over the network, two tries of two seconds for each name server, and not by the system's
 * `getaddrinfo`: that holds one of the process's four worker threads for as long as a name server is silent, and a few
 * receivers with a dead one would stop everyone else's look-ups, and the checking of tokens with them.
 * The system is asked for names without a dot (`localhost`, a container's), and with `askSystemToo` for those that DNS
 * does not know (the hosts file, search domains).
 */
export const makeResolveHost =
  (options: {
    readonly askSystemToo: boolean
    /** `ADDRESS:PORT`; default: the system's. */
    readonly nameServers?: ReadonlyArray<string>
  }): ResolveHost =>
  async (hostname) => {
    if (!hostname.replace(/\.$/, "").includes(".")) return askSystem(hostname)
    // A new one each time reads the system's name servers anew: they change when a laptop moves.
    const resolver = new Resolver({ timeout: 2000, tries: 2 })
    if (options.nameServers !== undefined) resolver.setServers(options.nameServers)
    const answers = await Promise.allSettled([resolver.resolve4(hostname), resolver.resolve6(hostname)])
    const addresses = answers.flatMap((answer) => (answer.status === "fulfilled" ? answer.value : []))
    if (addresses.length > 0) return addresses
    const faults = answers.flatMap((answer) =>
      answer.status === "rejected" ? [answer.reason as { code?: string }] : [],
    )
    const grave = faults.find(({ code }) => !unknown.has(code ?? ""))
    if (grave === undefined && options.askSystemToo) return askSystem(hostname)
    throw grave ?? faults[0] ?? new Error("no addresses")
  }
