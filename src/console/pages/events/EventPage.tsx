import { useState } from "preact/hooks"
import { Button, Copyable } from "../../components/Button.tsx"
import { JsonText } from "../../components/Code.tsx"
import { sentenceOf } from "../../components/ErrorBox.tsx"
import { Card, Empty, Facts, Page } from "../../components/Page.tsx"
import { ListCard, Loaded } from "../../components/Table.tsx"
import { Time } from "../../components/Time.tsx"
import type { ResponseBody } from "../../client/Operations.ts"
import { useData, usePages } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { useOrg } from "../../navigation/org.ts"
import { orgPath, useParam } from "../../navigation/router.tsx"
import { JobLink } from "../jobs/JobLink.tsx"
import { DeliveryTable } from "../deliveries/DeliveryTable.tsx"
import { type EndpointDetail, shortUrl, useEndpoints } from "../webhooks/endpoints.ts"
import { PublishEvent } from "./PublishEvent.tsx"

type EventDetail = ResponseBody<"events.get">

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

/** The first words of the types of the service's own events, which * does not match. */
const ofService = /^(endpoint|delivery|deployment|key)\./

/** Why an endpoint has no delivery of an event, by its settings as they are now. */
const reasonOf = ({ channels, created_at, event_types, filter }: EndpointDetail, event: EventDetail) => {
  const types = event_types ?? ["*"]
  const wants = (pattern: string) =>
    pattern === "*"
      ? !ofService.test(event.type)
      : pattern === event.type || (pattern.endsWith(".*") && event.type.startsWith(pattern.slice(0, -1)))
  if (created_at > event.created_at) return "It was added after the event."
  if (!types.some(wants)) return `Type: it receives ${types.join(", ")}.`
  if (channels !== null && !channels.some((channel) => event.channels.includes(channel)))
    return `Channel: it receives ${channels.join(", ")}; the event has ${event.channels.join(", ") || "none"}.`
  if (event.job_id !== null) return "The job asked for no webhooks, or for its own callback alone."
  if (filter !== null) return `Filter: the event does not have ${JSON.stringify(filter)}.`
  return "Its delivery is on its way, or its settings were changed after the event."
}

const Reason = ({ event, id }: { readonly id: string; readonly event: EventDetail }) => {
  const { data, error } = useData("webhooks.get", { id })
  if (data === undefined) return error ? <>{sentenceOf(error)}</> : <span class="skeleton w-50" />
  return <span class="anywhere">{reasonOf(data, event)}</span>
}

/** Rows that are shown first, because each asks for its endpoint. */
const firstRows = 20

/** The endpoints that did not receive an event, each with the reason. */
const Others = ({ event, received }: { readonly event: EventDetail; readonly received: ReadonlySet<string> }) => {
  const orgId = useOrg()
  const [count, setCount] = useState(firstRows)
  const { endpoints, error, isAll, refetch } = useEndpoints()
  const others = endpoints?.filter(({ webhook_endpoint_id: id }) => !received.has(id))
  if (others?.length === 0) return null
  return (
    <ListCard
      title={
        isAll ? "Endpoints that did not receive it" : "Of the first 1,000 endpoints, those that did not receive it"
      }
      {...{ error, refetch, rows: others?.slice(0, count), empty: null }}
      more={others && others.length > count ? () => setCount(count + firstRows) : undefined}
      rowKey={({ webhook_endpoint_id }) => webhook_endpoint_id}
      columns={[
        {
          title: "Endpoint",
          link: ({ description, url, webhook_endpoint_id: id }) => [
            orgPath(orgId, `/endpoints/${id}`),
            shortUrl(url),
            description,
          ],
        },
        {
          title: "Why, as it is set now",
          cell: ({ webhook_endpoint_id: id }) => <Reason id={id} event={event} />,
        },
      ]}
    />
  )
}

/** One event: its payload, and what became of it at each receiver. */
export default () => {
  const id = useParam("eventId")
  const orgId = useOrg()
  const may = useMay()
  const response = useData("events.get", { event_id: id })
  const event = response.data
  const pages = usePages("deliveries.list", { event_id: id, limit: 100 }, ({ deliveries }) => deliveries)
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
            <DeliveryTable
              title="Deliveries"
              {...pages}
              empty={
                <Empty icon="send" title="Nobody received it">
                  <p>Below is why, for each endpoint.</p>
                </Empty>
              }
            />
            {pages.rows && pages.more === undefined && may("webhooks.list", "webhooks.get") && (
              <Others
                event={event}
                received={new Set(pages.rows.flatMap(({ webhook_endpoint_id: to }) => (to === null ? [] : [to])))}
              />
            )}
            <Card title="Event">
              <Facts
                of={{
                  Id: <Copyable text={event.event_id} label="Copy the id" />,
                  Job: event.job_id === null ? undefined : <JobLink id={event.job_id} />,
                  Created: <Time at={event.created_at} />,
                }}
              />
              <JsonText title="Payload" text={event.payload} />
            </Card>
          </>
        )}
      </Loaded>
    </Page>
  )
}
