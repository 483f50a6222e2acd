import { useState } from "preact/hooks"
import { Button, Copyable } from "../../components/Button.tsx"
import { Code, pretty } from "../../components/Code.tsx"
import { Card, Empty, Facts, Page } from "../../components/Page.tsx"
import { Loaded } from "../../components/Table.tsx"
import { Time } from "../../components/Time.tsx"
import { useData, usePages } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { useOrg } from "../../navigation/org.ts"
import { Link, orgPath, useParam } from "../../navigation/router.tsx"
import { DeliveryTable } from "../deliveries/DeliveryTable.tsx"
import { PublishEvent } from "./PublishEvent.tsx"

/** The data of an event that was published, as a JSON text; undefined for the event of a job. */
const dataOf = (payload: string) => {
  const at = payload.indexOf(',"data":')
  return at < 0 ? undefined : payload.slice(at + ',"data":'.length, -1)
}

/** Begins an event with the type and data of another one. */
const PublishCopy = ({ data, type }: { readonly type: string; readonly data: string }) => {
  const [isOpen, setOpen] = useState(false)
  return (
    <>
      <Button icon="send" onClick={() => setOpen(true)}>
        Publish a copy
      </Button>
      {isOpen && <PublishEvent like={{ type, data }} onClose={() => setOpen(false)} />}
    </>
  )
}

/** One event: its payload, and what became of it at each receiver. */
export default () => {
  const id = useParam("eventId")
  const orgId = useOrg()
  const may = useMay()
  const response = useData("events.get", { event_id: id })
  const event = response.data
  const pages = usePages("deliveries.list", { event_id: id, limit: 50 }, ({ deliveries }) => deliveries)
  const data = event?.job_id === null ? dataOf(event.payload) : undefined
  return (
    <Page
      title={event?.type ?? "Event"}
      crumbs={[{ to: orgPath(orgId, "/events"), label: "Events" }]}
      actions={data !== undefined && may("events.publish") && <PublishCopy type={event!.type} data={data} />}
    >
      <Loaded of={response}>
        {(event) => (
          <>
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
            </Card>
          </>
        )}
      </Loaded>
    </Page>
  )
}
