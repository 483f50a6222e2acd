import { useState } from "preact/hooks"
import { Badge, capitalized } from "../../components/Badge.tsx"
import { Button } from "../../components/Button.tsx"
import { isTime, TimeFilter } from "../../components/Time.tsx"
import { Filter, Filters } from "../../components/Form.tsx"
import { InBulk } from "../../components/InBulk.tsx"
import { Empty, Page } from "../../components/Page.tsx"
import { useIsLive } from "../../client/live.tsx"
import { usePages } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { Beside, besideHint } from "../../navigation/Beside.tsx"
import { useOrg } from "../../navigation/org.ts"
import { orgPath, useQuery } from "../../navigation/router.tsx"
import { TypeFilter } from "../events/TypeFilter.tsx"
import { shortUrl, useEndpoints } from "../webhooks/endpoints.ts"
import { type DeliveryState, deliveryStates, DeliveryTable, failureTexts } from "./DeliveryTable.tsx"
import { Causes, filterOfCause, RunningResends } from "./Resends.tsx"

const isState = (text: string | undefined): text is DeliveryState => deliveryStates.some((state) => state === text)
const isId = (text: string | undefined): text is string => /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/i.test(text ?? "")

/** What the list is filtered by: the query of the page's address. */
const useFilters = () => {
  const { cause, endpoint, job, since, state, type, until } = useQuery()
  return {
    ...(isState(state) && { state }),
    ...(type !== undefined && { event_type: type }),
    ...(isId(endpoint) && { webhook_endpoint_id: endpoint.toUpperCase() }),
    ...(isId(job) && { job_id: job.toUpperCase() }),
    ...(isCause(cause) && filterOfCause(cause)),
    ...(isTime(since) && { since }),
    ...(isTime(until) && { until }),
  }
}

/** What a reader may send again by a filter. */
const resendWords = { failed: "failed", canceled: "were canceled", skipped: "were skipped" } as const
type ResendState = keyof typeof resendWords

const isCause = (text: string | undefined): text is string =>
  text !== undefined && (/^[1-5]\d\d$/.test(text) || text in failureTexts)

/** In the list, a pending delivery with an attempt is called retrying. */
const stateLabel = (state: DeliveryState) => (state === "pending" ? "Pending or retrying" : capitalized(state))

const states = deliveryStates.map((value) => ({ value, label: stateLabel(value) }))
const causes = [
  ...[400, 401, 403, 404, 408, 410, 422, 429, 500, 502, 503, 504].map(String).map((value) => ({
    value,
    label: `HTTP ${value}`,
  })),
  ...Object.entries(failureTexts).map(([value, text]) => ({ value, label: capitalized(text) })),
]

const DeliveryFilters = () => {
  const { cause, endpoint, job } = useQuery()
  const { byId } = useEndpoints(isId(endpoint) ? [endpoint] : [])
  const urls = [...byId].map(([value, { url }]) => ({ value, label: shortUrl(url) }))
  const isKnown = cause === undefined || causes.some(({ value }) => value === cause)
  return (
    <Filters>
      <Filter label="State" name="state" options={states} />
      <TypeFilter />
      <Filter label="Endpoint" name="endpoint" options={urls} />
      <Filter
        label="Last attempt"
        name="cause"
        options={isKnown ? causes : [...causes, { value: cause, label: `HTTP ${cause}` }]}
      />
      <Filter
        label="Job"
        name="job"
        placeholder="Id of a job"
        clean={(text) => text.trim()}
        error={job === undefined || isId(job) ? undefined : "The id of a job has 26 characters."}
      />
      <TimeFilter />
    </Filters>
  )
}

/** All deliveries of an org, as they come, by what the reader looks for. */
export default () => {
  const orgId = useOrg()
  const filters = useFilters()
  const isLive = useIsLive()
  const may = useMay()
  const [isResending, setResending] = useState(false)
  const pages = usePages("deliveries.list", { ...filters, limit: 100 }, ({ deliveries }) => deliveries, {
    keepsPrevious: true,
    rowKey: ({ delivery_id }) => delivery_id,
  })
  const isFiltered = Object.keys(filters).length > 0
  const { job_id, state = "failed", ...others } = filters
  const { since, until, webhook_endpoint_id: endpoint, ...unlikeCauses } = others
  const words = job_id === undefined && state in resendWords ? resendWords[state as ResendState] : undefined
  return (
    <Page
      title="Deliveries"
      intro={<>One event on its way to one receiver. New ones appear by themselves. {besideHint}</>}
      state={isLive && <Badge tone="good">Live</Badge>}
      actions={
        <>
          {may("deliveries.resend") && words !== undefined && (
            <Button icon="repeat" onClick={() => setResending(true)}>
              Resend all that {words}…
            </Button>
          )}
        </>
      }
    >
      <RunningResends />
      <DeliveryFilters />
      {job_id === undefined && state === "failed" && Object.keys(unlikeCauses).length === 0 && (
        <Causes endpoint={endpoint} since={since} until={until} />
      )}
      <Beside
        list={pages}
        noun="delivery"
        rowKey={({ delivery_id }) => delivery_id}
        pathOf={(id) => orgPath(orgId, `/deliveries/${id}`)}
      >
        {(opened) => (
          <DeliveryTable
            {...pages}
            {...opened}
            filtered={isFiltered && "delivery"}
            empty={
              <Empty icon="send" title="Nothing was delivered yet">
                <p>
                  Every event makes a delivery to each endpoint that wants its type. Finish a job or publish an event.
                </p>
              </Empty>
            }
          />
        )}
      </Beside>
      {isResending && words !== undefined && (
        <InBulk
          id="deliveries.resend"
          filter={{ ...others, state: state as ResendState }}
          title="Resend what matches"
          intro={`Resends the deliveries of your filter that ${words}, at all active endpoints, the oldest first.`}
          submit="Resend"
          noun={["delivery", "deliveries"]}
          verb="will be resent"
          onClose={() => setResending(false)}
        />
      )}
    </Page>
  )
}
