import type { Args, ResponseBody } from "../../client/Operations.ts"
import { useCall, useData } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { CausesCard, RunningBar } from "../../components/InBulk.tsx"
import { numberText } from "../../components/numbers.ts"
import { useOrg } from "../../navigation/org.ts"
import { Link, orgPath } from "../../navigation/router.tsx"
import { outcomeText } from "./DeliveryTable.tsx"

type ResendFilter = Args<"deliveries.resend">["filter"]

/** The resends that run, each with its progress and what ends it. */
export const RunningResends = () => {
  const call = useCall()
  const may = useMay()
  const { data } = useData("deliveries.resends", {}, { isLive: false, refetchMillis: 5_000 })
  const cancel = (resend_id: string) =>
    call("deliveries.cancelResend", { resend_id }, { said: "The rest is not sent." })
  return (
    <>
      {data?.resends.map(({ count, resend_id, resent }) => (
        <RunningBar
          key={resend_id}
          label="Resending"
          done={resent}
          count={count}
          onCancel={may("deliveries.cancelResend") ? () => cancel(resend_id) : undefined}
        />
      ))}
    </>
  )
}

interface CausesProps {
  readonly endpoint?: string | undefined
  readonly since?: string | undefined
  readonly until?: string | undefined
}

/** The failures of an org or of an endpoint, grouped by what the attempts ended with. */
export const Causes = ({ endpoint, since, until }: CausesProps) => {
  const orgId = useOrg()
  const filter = {
    ...(endpoint !== undefined && { webhook_endpoint_id: endpoint }),
    ...(since !== undefined && { since }),
    ...(until !== undefined && { until }),
  }
  const { data } = useData("deliveries.causes", filter, { isLive: false, refetchMillis: 15_000 })
  const to = (cause: string) => {
    const query = new URLSearchParams({
      cause,
      ...(endpoint && { endpoint }),
      ...(since && { since }),
      ...(until && { until }),
    })
    return orgPath(orgId, `/deliveries?${query}`)
  }
  const causes = (data?.causes ?? []).map((cause) => ({
    label: outcomeText(cause),
    to: to(causeOf(cause)),
    count: cause.deliveries,
    note: endpoint === undefined && <TopEndpoints of={cause} />,
    newest: cause.latest.text?.trim() || "Show the newest",
    newestTo: orgPath(orgId, `/deliveries/${cause.latest.delivery_id}`),
  }))
  return <CausesCard title="What fails, and why" causes={causes} />
}

/** The endpoints with most failures of a cause, and how many others there are. */
const TopEndpoints = ({
  of: { endpoints, top_endpoints: top },
}: {
  readonly of: ResponseBody<"deliveries.causes">["causes"][number]
}) => {
  const orgId = useOrg()
  return (
    <>
      {top.map(({ deliveries, name, webhook_endpoint_id: id }, i) => (
        <>
          {i > 0 && ", "}
          <Link to={orgPath(orgId, `/endpoints/${id}`)}>{name ?? "a deleted endpoint"}</Link>
          {endpoints > 1 && ` × ${numberText(deliveries)}`}
        </>
      ))}
      {endpoints > top.length && ` and ${numberText(endpoints - top.length)} more`}
    </>
  )
}

/** A cause as the address of a page has it: a status, or a kind of failure. */
const causeOf = ({ failure, status }: { readonly status: number | null; readonly failure: string | null }) =>
  failure ?? String(status)

/** A cause as people read it. */
export const causeText = (cause: string) =>
  outcomeText(/^\d/.test(cause) ? { status: cause, failure: null } : { status: null, failure: cause })

/** The fields that filter by a cause. */
export const filterOfCause = (cause: string | undefined): Pick<ResendFilter, "status" | "failure"> => {
  if (cause === undefined) return {}
  return /^\d+$/.test(cause) ? { status: Number(cause) } : { failure: cause as NonNullable<ResendFilter["failure"]> }
}
