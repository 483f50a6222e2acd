import { useMemo } from "preact/hooks"
import { useData } from "../../client/queries.ts"
import type { ResponseBody } from "../../client/Operations.ts"

export type Endpoint = ResponseBody<"webhooks.list">["webhook_endpoints"][number]
export type EndpointDetail = ResponseBody<"webhooks.get">

/** All endpoints of the org, up to 1,000, by their ids. `missing`: what one is called that is not among them. */
export const useEndpoints = () => {
  const { data, ...rest } = useData("webhooks.list", {})
  const byId = useMemo(
    () => new Map(data?.webhook_endpoints.map((endpoint) => [endpoint.webhook_endpoint_id, endpoint])),
    [data],
  )
  return { ...rest, endpoints: data?.webhook_endpoints, byId, missing: data === undefined ? "…" : "a deleted endpoint" }
}

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
