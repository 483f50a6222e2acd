import { useEffect, useState } from "preact/hooks"
import { Badge } from "../../components/Badge.tsx"
import { Button } from "../../components/Button.tsx"
import { DateTime, LastTimes } from "../../components/Time.tsx"
import { Field, Input, Select } from "../../components/Form.tsx"
import { NoMatch } from "../../components/Table.tsx"
import { Card, Empty, Page } from "../../components/Page.tsx"
import { useIsLive } from "../../client/live.tsx"
import { useData, usePages } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { Beside } from "../../navigation/Beside.tsx"
import { useOrg } from "../../navigation/org.ts"
import { navigate, orgPath, useLocation, useSearch } from "../../navigation/router.tsx"
import { shortUrl, useEndpoints } from "../webhooks/endpoints.ts"
import { type DeliveryState, deliveryStates, DeliveryTable, failureTexts } from "./DeliveryTable.tsx"
import { Causes, filterOfCause, ResendMany, RunningResends } from "./Resends.tsx"

const isState = (text: string | undefined): text is DeliveryState => deliveryStates.some((state) => state === text)
const isId = (text: string | undefined): text is string => /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/i.test(text ?? "")
const isTime = (text: string | undefined): text is string => !Number.isNaN(Date.parse(text ?? ""))

/** What the list is filtered by: the query of the page's address. */
const useFilters = () => {
  const { search } = useLocation()
  const value = (name: string) => search.get(name) ?? undefined
  const [state, type, endpoint, job, since, until] = ["state", "type", "endpoint", "job", "since", "until"].map(value)
  const cause = value("cause")
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

const isCause = (text: string | undefined): text is string =>
  text !== undefined && (/^[1-5]\d\d$/.test(text) || text in failureTexts)

const all = { value: "", label: "All" }
const capitalized = (text: string) => text.slice(0, 1).toUpperCase() + text.slice(1)

/** In the list, a pending delivery with an attempt is called retrying. */
const stateLabel = (state: DeliveryState) => (state === "pending" ? "Pending or retrying" : capitalized(state))

const causes = [
  all,
  ...[400, 401, 403, 404, 408, 410, 422, 429, 500, 502, 503, 504].map(String).map((value) => ({
    value,
    label: `HTTP ${value}`,
  })),
  ...Object.entries(failureTexts).map(([value, text]) => ({ value, label: capitalized(text) })),
]

const JobFilter = () => {
  const [job, setJob] = useSearch("job")
  const [text, setText] = useState(job ?? "")
  const isWrong = text !== "" && !isId(text.trim())
  useEffect(() => {
    if (job === undefined) setText("")
  }, [job])
  return (
    <Field label="Job" error={isWrong ? "The id of a job has 26 characters." : undefined}>
      <Input
        value={text}
        placeholder="Id of a job"
        spellcheck={false}
        autocomplete="off"
        onInput={(text) => {
          setText(text)
          if (text === "" || isId(text.trim())) setJob(text.trim())
        }}
      />
    </Field>
  )
}

const Filters = () => {
  const [state, setState] = useSearch("state")
  const [type, setType] = useSearch("type")
  const [endpoint, setEndpoint] = useSearch("endpoint")
  const [since, setSince] = useSearch("since")
  const [until, setUntil] = useSearch("until")
  const [cause, setCause] = useSearch("cause")
  const { endpoints = [] } = useEndpoints()
  const { data } = useData("events.types", {}, { isLive: false })
  const types = [...new Set([...(data?.types ?? []).map(({ type }) => type), ...(type === undefined ? [] : [type])])]
  return (
    <div class="filters">
      <Field label="State">
        <Select
          value={state ?? ""}
          onInput={setState}
          options={[all, ...deliveryStates.map((value) => ({ value, label: stateLabel(value) }))]}
        />
      </Field>
      <Field label="Event type">
        <Select
          value={type ?? ""}
          onInput={setType}
          options={[all, ...types.map((value) => ({ value, label: value }))]}
        />
      </Field>
      <Field label="Endpoint">
        <Select
          value={endpoint ?? ""}
          onInput={setEndpoint}
          options={[
            all,
            ...endpoints.map(({ url, webhook_endpoint_id }) => ({ value: webhook_endpoint_id, label: shortUrl(url) })),
          ]}
        />
      </Field>
      <Field label="Last attempt">
        <Select
          value={cause ?? ""}
          onInput={setCause}
          options={
            cause === undefined || causes.some(({ value }) => value === cause)
              ? causes
              : [...causes, { value: cause, label: `HTTP ${cause}` }]
          }
        />
      </Field>
      <JobFilter />
      <DateTime label="From" value={since} onChange={setSince} />
      <DateTime label="To" value={until} onChange={setUntil} />
      <LastTimes
        onChoose={(since) => {
          setSince(since)
          setUntil(undefined)
        }}
      />
    </div>
  )
}

/** All deliveries of an org, as they come, by what the reader looks for. */
export default () => {
  const orgId = useOrg()
  const filters = useFilters()
  const isLive = useIsLive()
  const may = useMay()
  const [isResending, setResending] = useState(false)
  const { path } = useLocation()
  const pages = usePages("deliveries.list", { ...filters, limit: 100 }, ({ deliveries }) => deliveries, {
    keepsPrevious: true,
    rowKey: ({ delivery_id }) => delivery_id,
  })
  const isFiltered = Object.keys(filters).length > 0
  const { job_id, state, ...others } = filters
  const isResendable = state !== "pending" && state !== "delivered" && job_id === undefined
  return (
    <Page
      title="Deliveries"
      intro="One event on its way to one receiver. New ones appear by themselves; j opens one beside the list."
      state={isLive && <Badge tone="good">Live</Badge>}
      actions={
        <>
          {isFiltered && <Button onClick={() => navigate(path, { replace: true })}>Clear filters</Button>}
          {may("deliveries.resend") && isResendable && (
            <Button icon="repeat" onClick={() => setResending(true)}>
              Resend all that failed…
            </Button>
          )}
        </>
      }
    >
      <RunningResends />
      <Filters />
      {!isFiltered && <Causes />}
      <Beside
        list={pages}
        noun="delivery"
        rowKey={({ delivery_id }) => delivery_id}
        pathOf={(id) => orgPath(orgId, `/deliveries/${id}`)}
      >
        {(opened) => (
          <Card isPadded={false}>
            <DeliveryTable
              {...pages}
              {...opened}
              empty={
                isFiltered ? (
                  <NoMatch noun="delivery" more={pages.more} />
                ) : (
                  <Empty icon="send" title="Nothing was delivered yet">
                    <p>
                      Every event makes a delivery to each endpoint that wants its type. Finish a job or publish an
                      event.
                    </p>
                  </Empty>
                )
              }
            />
          </Card>
        )}
      </Beside>
      {isResending && (
        <ResendMany
          filter={{ ...others, ...(state !== undefined && isResendable && { state }) }}
          onClose={() => setResending(false)}
        />
      )}
    </Page>
  )
}
