import { useState } from "preact/hooks"
import { Button } from "../../components/Button.tsx"
import { Field, Select } from "../../components/Form.tsx"
import { Card, Empty, Page } from "../../components/Page.tsx"
import { type Column, Table } from "../../components/Table.tsx"
import { Time } from "../../components/Time.tsx"
import type { ResponseBody } from "../../client/Operations.ts"
import { useData, usePages } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { useOrg } from "../../navigation/org.ts"
import { Link, orgPath, useSearch, useLocation } from "../../navigation/router.tsx"
import { PublishEvent } from "./PublishEvent.tsx"

const Types = () => {
  const orgId = useOrg()
  const { data, error, refetch } = useData("events.types", {})
  return (
    <Card title="Types" isPadded={false}>
      <Table
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
            cell: ({ last_at, type }) => (
              <div class="stack tight">
                <Link class="main clip" title={type} to={orgPath(orgId, `/events?type=${encodeURIComponent(type)}`)}>
                  {type}
                </Link>
                <span class="quiet small">
                  <Time at={last_at} isRelative />
                </span>
              </div>
            ),
          },
        ]}
      />
    </Card>
  )
}

type Event = ResponseBody<"events.list">["events"][number]

const idCell = ({ event_id }: Event) => <code>{event_id}</code>

const List = ({ publish }: { readonly publish: preact.ComponentChildren }) => {
  const orgId = useOrg()
  const may = useMay()
  const [type, setType] = useSearch("type")
  const { data } = useData("events.types", {})
  const pages = usePages(
    "events.list",
    { limit: 50, ...(type === undefined ? {} : { type }) },
    ({ events }) => events,
    { keepsPrevious: true, rowKey: ({ event_id }) => event_id },
  )
  const jobColumn: Column<Event> = {
    title: "Job",
    cell: ({ job_id }) =>
      job_id === null ? (
        <span class="quiet">–</span>
      ) : (
        <Link to={orgPath(orgId, `/jobs/${job_id}`)}>
          <code>{job_id}</code>
        </Link>
      ),
  }
  const types = [...new Set([...(data?.types ?? []).map(({ type }) => type), ...(type === undefined ? [] : [type])])]
  return (
    <div class="stack">
      <div class="filters">
        <Field label="Event type">
          <Select
            value={type ?? ""}
            onInput={setType}
            options={[{ value: "", label: "All" }, ...types.map((value) => ({ value, label: value }))]}
          />
        </Field>
      </div>
      <Card isPadded={false}>
        <Table
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
            {
              title: "Type",
              cell: ({ event_id, type }) => (
                <Link class="main clip" title={type} to={orgPath(orgId, `/events/${event_id}`)}>
                  {type}
                </Link>
              ),
            },
            ...(may("jobs.get") ? [jobColumn] : [{ title: "Id", isExtra: true, cell: idCell }]),
            { title: "Created", align: "fit", cell: ({ created_at }) => <Time at={created_at} isRelative /> },
          ]}
        />
      </Card>
    </div>
  )
}

/** The events of an org, and the types that it has had. */
export default () => {
  const may = useMay()
  const [isPublishing, setPublishing] = useState(useLocation().search.has("new"))
  const publish = may("events.publish") && (
    <Button look="primary" icon="send" onClick={() => setPublishing(true)}>
      Publish an event
    </Button>
  )
  return (
    <Page
      title="Events"
      intro={
        may("jobs.get")
          ? "What happened, once for all receivers: finished jobs, and events of your own."
          : "What happened, newest first. Each event goes to every endpoint that wants its type."
      }
      actions={publish}
    >
      <div class="columns">
        <List publish={publish} />
        <Types />
      </div>
      {isPublishing && <PublishEvent onClose={() => setPublishing(false)} />}
    </Page>
  )
}
