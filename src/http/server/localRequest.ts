const loopback = /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/

const hostOf = (url: string) => (URL.canParse(url) ? new URL(url).hostname : undefined)

/**
 * Whether a request was meant for this machine: its `Host`, and the `Origin` of a page that sends it, are loopback names
 * or the host of BASE_URL. A web page elsewhere that points its own name at this machine (DNS rebinding) has neither.
 */
export const isLocal = (headers: Readonly<Record<string, string | undefined>>, baseUrl: string): boolean => {
  const mine = (url: string) => {
    const host = hostOf(url)
    return host !== undefined && (loopback.test(host) || host === hostOf(baseUrl))
  }
  const { host, origin } = headers
  return (host === undefined || mine(`http://${host}`)) && (origin === undefined || mine(origin))
}

const loopbackAddress = /^(::1|(::ffff:)?127(\.\d{1,3}){3})$/
/** What proxies add. Behind one on the same machine every connection is a loopback one. */
const ofProxies = ["forwarded", "via", "x-forwarded-for", "x-real-ip"]

/** Whether a request comes from this machine: over a loopback connection, and not by a proxy, as far as one can be told. */
export const isFromThisMachine = (
  address: string | undefined,
  headers: Readonly<Record<string, string | undefined>>,
): boolean =>
  address !== undefined && loopbackAddress.test(address) && ofProxies.every((name) => headers[name] === undefined)
