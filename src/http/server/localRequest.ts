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
