import { Time } from "../../components/Time.tsx"
import { useData, usePages } from "../../client/queries.ts"
import { useOrg } from "../../navigation/org.ts"
import { Link, orgPath } from "../../navigation/router.tsx"
import { hasSucceeded, outcomeText } from "../deliveries/delivery.ts"

/** What the receiver answered last, when that was no success, with the delivery that shows all of it. */
export const LatestFailure = ({ id }: { readonly id: string }) => {
  const orgId = useOrg()
  // The same list as the chart of the health, so that it is read once.
  const { rows = [] } = usePages(
    "deliveries.list",
    { webhook_endpoint_id: id, limit: 100 },
    ({ deliveries }) => deliveries,
  )
  const [newest] = rows
    .filter(({ attempts, state }) => attempts > 0 && state !== "delivered")
    .toSorted((a, b) => Date.parse(b.updated_at) - Date.parse(a.updated_at))
  const { data } = useData(
    "deliveries.get",
    { delivery_id: newest?.delivery_id ?? "" },
    { enabled: newest !== undefined, keepsPrevious: true },
  )
  const attempt = data?.attempt_log.at(-1)
  if (data === undefined || attempt === undefined || hasSucceeded(attempt)) return null
  return (
    <span>
      Latest failure: {outcomeText(attempt)}, <Time at={attempt.started_at} isRelative />.{" "}
      <Link to={orgPath(orgId, `/deliveries/${data.delivery_id}`)}>Show the delivery</Link>
    </span>
  )
}
