import { Code, pretty } from "../../components/Code.tsx"
import { Copyable } from "../../components/Copy.tsx"
import { ErrorBox } from "../../components/ErrorBox.tsx"
import { Card, Empty, Facts, Page } from "../../components/Page.tsx"
import { Skeleton } from "../../components/Skeleton.tsx"
import { Time } from "../../components/Time.tsx"
import { useData, usePages } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { useOrg } from "../../navigation/org.ts"
import { Link, orgPath, useParam } from "../../navigation/router.tsx"
import { DeliveryTable } from "../deliveries/DeliveryTable.tsx"

/** One event: its payload, and what became of it at each receiver. */
export default () => {
  const id = useParam("eventId")
  const orgId = useOrg()
  const may = useMay()
  const { data: event, error, refetch } = useData("events.get", { event_id: id })
  const pages = usePages("deliveries.list", { event_id: id, limit: 50 }, ({ deliveries }) => deliveries)
  if (event === undefined && error !== null) return <ErrorBox error={error} onRetry={refetch} />
  return (
    <Page title={event?.type ?? "Event"} crumbs={[{ to: orgPath(orgId, "/events"), label: "Events" }]}>
      <Card title="Deliveries" isPadded={false}>
        <DeliveryTable
          {...pages}
          empty={
            <Empty icon="send" title="Nobody received it">
              <p>No endpoint wanted this type when the event came.</p>
            </Empty>
          }
        />
      </Card>
      <Card title="Event">
        {event === undefined ? (
          <Skeleton lines={3} />
        ) : (
          <>
            <Facts
              of={{
                Id: <Copyable text={event.event_id} label="Copy the id" />,
                Job:
                  event.job_id === null ? undefined : may("jobs.get") ? (
                    <Link to={orgPath(orgId, `/jobs/${event.job_id}`)}>
                      <code>{event.job_id}</code>
                    </Link>
                  ) : (
                    <code>{event.job_id}</code>
                  ),
                Created: <Time at={event.created_at} />,
              }}
            />
            <Code title="Payload" text={pretty(event.payload)} copied={event.payload} />
          </>
        )}
      </Card>
    </Page>
  )
}
