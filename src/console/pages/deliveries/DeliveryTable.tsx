import type { ComponentChildren } from "preact"
import { State } from "../../components/Badge.tsx"
import { type Column, Table } from "../../components/Table.tsx"
import { Time, useNow } from "../../components/Time.tsx"
import { useOrg } from "../../navigation/org.ts"
import { Link, orgPath } from "../../navigation/router.tsx"
import { shortUrl, useEndpoints } from "../webhooks/endpoints.ts"
import { type Delivery, shownState } from "./delivery.ts"

interface DeliveryTableProps {
  readonly rows: ReadonlyArray<Delivery> | undefined
  /** Whether all rows are of one endpoint, which the page names. */
  readonly isOfEndpoint?: boolean
  readonly empty: ComponentChildren
  readonly error?: Error | null
  readonly refetch?: () => void
  readonly more?: (() => void) | undefined
  readonly isLoadingMore?: boolean
}

/** When the next attempt comes. A time that has passed is due: the delivery waits for a free slot, or for an earlier one. */
const NextAttempt = ({ at }: { readonly at: string | null }) =>
  at !== null && Date.parse(at) < useNow() ? <span title={at}>due</span> : <Time at={at} isRelative />

/** Deliveries, the newest first. */
export const DeliveryTable = ({ isOfEndpoint = false, ...table }: DeliveryTableProps) => {
  const orgId = useOrg()
  const { byId } = useEndpoints()
  const nameOf = ({ webhook_endpoint_id }: Delivery) => {
    if (webhook_endpoint_id === null) return <span class="quiet">callback of a job</span>
    const endpoint = byId.get(webhook_endpoint_id)
    if (endpoint === undefined) return <span class="quiet">deleted endpoint</span>
    return (
      <span class="clip wide" title={endpoint.url}>
        {shortUrl(endpoint.url)}
      </span>
    )
  }
  const columns: ReadonlyArray<Column<Delivery>> = [
    {
      title: "Event",
      cell: ({ delivery_id, event }) => (
        <Link class="main clip" title={event} to={orgPath(orgId, `/deliveries/${delivery_id}`)}>
          {event}
        </Link>
      ),
    },
    { title: "State", align: "fit", cell: (row) => <State of={shownState(row)} /> },
    ...(isOfEndpoint ? [] : [{ title: "Endpoint", cell: nameOf }]),
    { title: "Attempts", align: "end", cell: ({ attempts }) => attempts },
    { title: "Next attempt", align: "fit", cell: ({ next_attempt_at }) => <NextAttempt at={next_attempt_at} /> },
    { title: "Created", align: "fit", cell: ({ created_at }) => <Time at={created_at} isRelative /> },
  ]
  return <Table caption="Deliveries" {...table} rowKey={({ delivery_id }) => delivery_id} columns={columns} />
}
