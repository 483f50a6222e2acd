import { useMemo } from "preact/hooks"
import { useData } from "../../client/queries.ts"
import type { ResponseBody } from "../../client/Operations.ts"

export type Endpoint = ResponseBody<"webhooks.list">["webhook_endpoints"][number]
export type EndpointDetail = ResponseBody<"webhooks.get">

/** Endpoints that one look-up names. */
const maxNamed = 1_000

/**
 * The endpoints of the org, up to 1,000, and of the others those with the ids; `byId` has all of them.
 *
 * @returns `nameOf` what an endpoint is called, by its id; `isAll` whether `endpoints` are all of the org
 */
export const useEndpoints = (ids: ReadonlyArray<string | null> = []) => {
  const { data, ...rest } = useData("webhooks.list", {})
  const first = useMemo(() => mapOf(data), [data])
  const others = data?.next_cursor === undefined ? [] : [...new Set(ids)].filter((id) => id !== null && !first.has(id))
  const asked = { webhook_endpoint_ids: others.slice(0, maxNamed) as ReadonlyArray<string> }
  const named = useData("webhooks.list", asked, { enabled: others.length > 0, keepsPrevious: true })
  const byId = new Map([...first, ...mapOf(named.data)])
  const isKnown = data !== undefined && (others.length === 0 || (named.data !== undefined && !named.isEarlier))
  const nameOf = (id: string) => {
    const endpoint = byId.get(id)
    return endpoint === undefined ? (isKnown ? "a deleted endpoint" : "…") : shortUrl(endpoint.url)
  }
  return { ...rest, endpoints: data?.webhook_endpoints, isAll: data?.next_cursor === undefined, byId, nameOf }
}

const mapOf = (list: ResponseBody<"webhooks.list"> | undefined) =>
  new Map(list?.webhook_endpoints.map((endpoint) => [endpoint.webhook_endpoint_id, endpoint]))

/** Of an endpoint: whether it receives events, and whether they arrive. */
export const stateOf = ({ active, failing_since }: Pick<Endpoint, "active" | "failing_since">) =>
  !active ? "deactivated" : failing_since === null ? "active" : "failing"

/** A URL without its scheme, as people name it. */
export const shortUrl = (url: string) => url.replace(/^https?:\/\//, "").replace(/\/$/, "")

/** What the body of a request is. */
export const bodies: Readonly<Record<EndpointDetail["payload"], string>> = {
  envelope: "The whole event",
  data: "The data of the event alone",
}

/** How requests to an endpoint are authorized. */
export const authText = (auth: NonNullable<EndpointDetail["auth"]>) =>
  auth.type === "oauth2"
    ? `a token of ${auth.token_url}`
    : `a client certificate, which ends on ${auth.certificate_expires_at?.slice(0, 10)}`

/** Why an endpoint is inactive, in a sentence. */
export const reasonText: Readonly<Record<string, string>> = {
  gone: "It answered 410 Gone, which asks for no more deliveries.",
  failing: "It failed for five days without a success, or its org reached the limit of pending deliveries.",
  by_request: "Somebody deactivated it.",
}

/** Random bytes as a key of Standard Webhooks. */
export const newSecret = () => {
  const bytes = crypto.getRandomValues(new Uint8Array(24))
  return `whsec_${btoa(String.fromCharCode(...bytes))}`
}
