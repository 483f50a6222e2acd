import { contains, useMatches } from "../../client/matches.ts"
import { usePages } from "../../client/queries.ts"
import { State } from "../../components/Badge.tsx"
import { Filter, Filters } from "../../components/Form.tsx"
import { Empty, Page, useCreate } from "../../components/Page.tsx"
import { ListCard } from "../../components/Table.tsx"
import { Time } from "../../components/Time.tsx"
import { counted } from "../../components/numbers.ts"
import { useOrg } from "../../navigation/org.ts"
import { navigate, orgPath, useQuery } from "../../navigation/router.tsx"
import { type Delivery, shownState } from "../deliveries/DeliveryTable.tsx"
import { CreateEndpoint } from "./EndpointForm.tsx"
import { type Endpoint, reasonText, shortUrl, stateOf } from "./endpoints.ts"

const states = [
  { value: "active", label: "Active" },
  { value: "failing", label: "Failing" },
  { value: "deactivated", label: "Deactivated" },
]

/** The newest deliveries of the org, by endpoint. */
const useLatest = () => {
  const { rows } = usePages("deliveries.list", { limit: 100 }, ({ deliveries }) => deliveries)
  const latest = new Map<string, Array<Delivery>>()
  for (const delivery of rows ?? []) {
    const id = delivery.webhook_endpoint_id ?? ""
    latest.set(id, [...(latest.get(id) ?? []), delivery])
  }
  return latest
}

/** The endpoints of an org, with what happened at each of them lately. */
export default () => {
  const orgId = useOrg()
  const { close, create, isCreating } = useCreate("Add endpoint", "webhooks.create")
  const { state, text } = useQuery()
  const all = usePages("webhooks.list", { limit: 50 }, ({ webhook_endpoints }) => webhook_endpoints)
  const matches = (one: Endpoint) =>
    contains(text ?? "", one.url, one.description, one.webhook_endpoint_id) &&
    (state === undefined || stateOf(one) === state)
  const isFiltered = text !== undefined || state !== undefined
  const pages = useMatches(all, isFiltered ? matches : undefined)
  const latest = useLatest()
  return (
    <Page title="Endpoints" intro="Each endpoint is a URL that receives the events of this org." actions={create}>
      <Filters>
        <Filter label="URL, description or id" name="text" placeholder="example.com" />
        <Filter label="State" name="state" options={states} />
      </Filters>
      <ListCard
        caption="Endpoints"
        {...pages}
        rowKey={({ webhook_endpoint_id }) => webhook_endpoint_id}
        filtered={isFiltered && "endpoint"}
        empty={
          <Empty icon="hook" title="No endpoint receives events yet">
            <p>Add the URL of a receiver. Its page shows each delivery with the response, and can send a test.</p>
            {create}
          </Empty>
        }
        columns={[
          {
            title: "URL",
            link: ({ description, url, webhook_endpoint_id }) => [
              orgPath(orgId, `/endpoints/${webhook_endpoint_id}`),
              shortUrl(url),
              description,
            ],
          },
          {
            title: "State",
            align: "fit",
            cell: (one) => (
              <span title={reasonText[one.deactivated_reason ?? ""]}>
                <State of={stateOf(one)} />
              </span>
            ),
          },
          {
            title: "Latest deliveries",
            align: "fit",
            cell: ({ webhook_endpoint_id }) => <Strip deliveries={latest.get(webhook_endpoint_id) ?? []} />,
          },
          { title: "Created", align: "fit", cell: ({ created_at }) => <Time at={created_at} isRelative /> },
        ]}
      />
      {isCreating && (
        <CreateEndpoint onClose={close} onCreated={(id) => navigate(orgPath(orgId, `/endpoints/${id}`))} />
      )}
    </Page>
  )
}

const maxShown = 24

const tones: Readonly<Record<string, string>> = {
  delivered: "series-good",
  retrying: "series-warn",
  failed: "series-bad",
  pending: "series-accent",
}

/** One small column for each of the newest deliveries, the newest at the right. */
const Strip = ({ deliveries }: { readonly deliveries: ReadonlyArray<Delivery> }) => {
  if (deliveries.length === 0) return <span class="quiet">none of the newest 100</span>
  const shown = deliveries.slice(0, maxShown).toReversed()
  const count = (state: string) => shown.filter((delivery) => shownState(delivery) === state).length
  const parts = ["delivered", "retrying", "failed"].filter((state) => count(state) > 0)
  const summary = parts.map((state) => `${count(state)} ${state}`).join(", ")
  return (
    <svg
      class="strip"
      viewBox={`0 0 ${maxShown * 6} 18`}
      role="img"
      aria-label={`${counted(shown.length, "delivery", "deliveries")}${summary === "" ? "" : `: ${summary}`}`}
    >
      {shown.map((delivery, i) => (
        <rect
          key={delivery.delivery_id}
          class={tones[shownState(delivery)] ?? "series-calm"}
          x={(maxShown - shown.length + i) * 6}
          width={4}
          height={18}
          rx={1}
        />
      ))}
    </svg>
  )
}
