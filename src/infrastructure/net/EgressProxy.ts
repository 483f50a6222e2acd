import { Redacted } from "effect"

/** The proxy for requests to URLs that tenants choose. It speaks HTTP's CONNECT (RFC 9110, section 9.3.6). */
export interface EgressProxy {
  /** `http://proxy.internal:3128`, or https. */
  readonly origin: string
  /** The value of `proxy-authorization`; `undefined`: the proxy wants no credentials. */
  readonly authorization: Redacted.Redacted<string> | undefined
}

/** The proxy of a URL with optional credentials. Throws a `URIError` if they are not percent-encoded. */
export const egressProxyOf = (url: string): EgressProxy => {
  const { origin, password, username } = new URL(url)
  const credentials = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`
  const authorization = `Basic ${Buffer.from(credentials).toString("base64")}`
  return { origin, authorization: credentials === ":" ? undefined : Redacted.make(authorization) }
}
