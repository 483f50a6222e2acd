import { Badge } from "../../components/Badge.tsx"
import { Copyable } from "../../components/Copy.tsx"
import { Facts } from "../../components/Page.tsx"
import { durationText, Time } from "../../components/Time.tsx"
import { useData } from "../../client/queries.ts"
import { useChanges } from "../audit/useChanges.tsx"
import type { EndpointDetail } from "./endpoints.ts"

/** The keys of the org that verify its Ed25519 signatures, the newest first. */
const PublicKeys = () => {
  const { data } = useData("webhooks.publicKey", {})
  if (data === undefined) return <span class="skeleton w-70" />
  return (
    <>
      {data.public_keys.map((key) => (
        <Copyable key={key} text={key} label="Copy the public key" />
      ))}
    </>
  )
}

/** The settings of an endpoint, without its secrets. */
export const EndpointSettings = ({ endpoint }: { readonly endpoint: EndpointDetail }) => (
  <Facts
    of={{
      URL: <Copyable text={endpoint.url} label="Copy the URL" />,
      Id: <Copyable text={endpoint.webhook_endpoint_id} label="Copy the id" />,
      Events:
        endpoint.event_types === null ? (
          "all, except those of Gatehouse itself"
        ) : (
          <span class="row">
            {endpoint.event_types.map((type) => (
              <Badge key={type} isPlain>
                {type}
              </Badge>
            ))}
          </span>
        ),
      Order: endpoint.ordered ? "one at a time, in the order of the events" : "any",
      Rate: endpoint.max_per_second === null ? "no limit" : `at most ${endpoint.max_per_second} attempts a second`,
      Retries:
        endpoint.retry_delays === null
          ? "the schedule of the service"
          : endpoint.retry_delays.length === 0
            ? "none"
            : `after ${endpoint.retry_delays.map((seconds) => durationText(seconds * 1000)).join(", ")}`,
      Signature: endpoint.signature === "hmac" ? "HMAC-SHA256" : "HMAC-SHA256 and Ed25519",
      "Public key": endpoint.signature === "ed25519" ? <PublicKeys /> : undefined,
      Headers: endpoint.headers?.join(", ") ?? "none",
      Created: <Time at={endpoint.created_at} />,
      Changed: <Time at={endpoint.updated_at} />,
      "Audit log": useChanges(endpoint.webhook_endpoint_id),
    }}
  />
)
