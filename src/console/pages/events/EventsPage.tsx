import { Filters } from "../../components/Form.tsx"
import { Empty, Page, useCreate } from "../../components/Page.tsx"
import { type Column, ListCard } from "../../components/Table.tsx"
import { Time } from "../../components/Time.tsx"
import type { ResponseBody } from "../../client/Operations.ts"
import { useData, usePages } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { useOrg } from "../../navigation/org.ts"
import { Link, orgPath, useSearch } from "../../navigation/router.tsx"
import { JobLink } from "../jobs/JobLink.tsx"
import { PublishEvent } from "./PublishEvent.tsx"
import { TypeFilter } from "./TypeFilter.tsx"

const Types = () => {
  const orgId = useOrg()
  const { data, error, refetch } = useData("events.types", {})
  return (
    <ListCard
      title="Types"
      caption="Types of events"
      rows={data?.types}
      error={error}
      refetch={refetch}
      rowKey={({ type }) => type}
      empty={
        <Empty icon="list" title="No types yet">
          <p>Every type that was published appears here.</p>
        </Empty>
      }
      columns={[
        {
          title: "Type, last seen",
          link: ({ last_at, type }) => [
            orgPath(orgId, `/events?type=${encodeURIComponent(type)}`),
            type,
            <Time at={last_at} isRelative />,
          ],
        },
      ]}
    />
  )
}

type Event = ResponseBody<"events.list">["events"][number]

const idCell = ({ event_id }: Event) => <code>{event_id}</code>

const List = ({ publish }: { readonly publish: preact.ComponentChildren }) => {
  const orgId = useOrg()
  const may = useMay()
  const [type] = useSearch("type")
  const pages = usePages(
    "events.list",
    { limit: 50, ...(type === undefined ? {} : { type }) },
    ({ events }) => events,
    { keepsPrevious: true, rowKey: ({ event_id }) => event_id },
  )
  const jobColumn: Column<Event> = {
    title: "Job",
    cell: ({ job_id }) => (job_id === null ? <span class="quiet">–</span> : <JobLink id={job_id} />),
  }
  return (
    <div class="stack">
      <Filters>
        <TypeFilter />
      </Filters>
      <ListCard
        caption="Events"
        {...pages}
        rowKey={({ event_id }) => event_id}
        empty={
          <Empty title={type === undefined ? "No event yet" : "No event of this type"}>
            {may("jobs.get") ? (
              <p>The end of a job makes an event, and your own service publishes events of its own.</p>
            ) : (
              <p>It appears here as soon as it happens.</p>
            )}
            {publish}
          </Empty>
        }
        columns={[
          { title: "Type", link: ({ event_id, type }) => [orgPath(orgId, `/events/${event_id}`), type] },
          ...(may("jobs.get") ? [jobColumn] : [{ title: "Id", isExtra: true, cell: idCell }]),
          { title: "Created", align: "fit", cell: ({ created_at }) => <Time at={created_at} isRelative /> },
        ]}
      />
    </div>
  )
}

/** The events of an org, and the types that it has had. */
export default () => {
  const orgId = useOrg()
  const may = useMay()
  const { close, create, isCreating } = useCreate("Publish an event", "events.publish", "send")
  return (
    <Page
      title="Events"
      intro={
        may("jobs.get")
          ? "What happened, once for all receivers: finished jobs, and events of your own."
          : "What happened, newest first. Each event goes to every endpoint that wants its type."
      }
      actions={
        <>
          <Link class="button" to={orgPath(orgId, "/catalogue")}>
            Catalogue
          </Link>
          {create}
        </>
      }
    >
      <div class="columns">
        <List publish={create} />
        <Types />
      </div>
      {isCreating && <PublishEvent onClose={close} />}
    </Page>
  )
}
