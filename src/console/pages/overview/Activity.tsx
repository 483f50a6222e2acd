import { useData } from "../../client/queries.ts"
import { byDay, Chart, type Interval, type Series, unitText, useBeginning } from "../../components/Chart.tsx"
import { ErrorBox } from "../../components/ErrorBox.tsx"
import { Card } from "../../components/Page.tsx"
import { orgPath, useChoice } from "../../navigation/router.tsx"

/** What happened in a range, as charts: in every org, or in one. */
export const Activity = ({ every, orgId }: { readonly every: Every; readonly orgId?: string }) => {
  // The days are the reader's, so they are added up from hours.
  const from = useBeginning(every)
  const { data, error, refetch } = useData(
    "activity.overview",
    { ...(every === "day" ? { every: "hour", from } : { every }), ...(orgId === undefined ? {} : { orgId }) },
    { refetchMillis: 10_000, keepsPrevious: true },
  )
  const isAsked = data !== undefined && (every === "minute") === (data.every === "minute")
  const of = <I extends { readonly at: string }>(intervals: ReadonlyArray<I> | undefined) =>
    !isAsked ? undefined : every === "day" ? byDay(intervals) : intervals
  const unit = unitText(every)
  const chart = <Name extends string>(
    title: string,
    series: ReadonlyArray<Series<Name>>,
    intervals: ReadonlyArray<Interval<Name>> | undefined,
    linkTo?: (since: string, until: string) => string,
  ) => (
    <Card title={`${title} by ${unit}`}>
      <Chart {...{ title, every, series, linkTo }} intervals={of(intervals)} />
    </Card>
  )
  const toDeliveries =
    orgId === undefined
      ? undefined
      : (since: string, until: string) => orgPath(orgId, `/deliveries?${new URLSearchParams({ since, until })}`)
  return (
    <>
      <ErrorBox error={error} onRetry={refetch} />
      {chart("Attempts of deliveries", deliverySeries, data?.deliveries, toDeliveries)}
      <div class="grid-2">
        {chart("Validations of keys", orgId === undefined ? validationSeries : ownValidationSeries, data?.validations)}
        {chart("Finished jobs", jobSeries, data?.jobs)}
      </div>
    </>
  )
}

/** What the charts of an overview count, each outcome in the colour of its meaning. */
const deliverySeries = [
  { name: "delivered", label: "Delivered", tone: "good" },
  { name: "retried", label: "Retried", tone: "warn" },
  { name: "failed", label: "Failed for good", tone: "bad" },
] as const satisfies ReadonlyArray<Series>

/** Validations of one org. Invalid keys belong to no org. */
const ownValidationSeries = [
  { name: "valid", label: "Valid", tone: "good" },
  { name: "limited", label: "Limited", tone: "warn" },
  { name: "forbidden", label: "Forbidden", tone: "calm" },
] as const satisfies ReadonlyArray<Series>

const validationSeries = [
  ...ownValidationSeries,
  { name: "invalid", label: "Invalid", tone: "bad" },
] as const satisfies ReadonlyArray<Series>

const jobSeries = [
  { name: "completed", label: "Completed", tone: "good" },
  { name: "canceled", label: "Canceled", tone: "calm" },
  { name: "failed", label: "Failed", tone: "bad" },
] as const satisfies ReadonlyArray<Series>

export type Every = "minute" | "hour" | "day"

/** The ranges of an overview, by the length of their intervals. */
export const ranges: ReadonlyArray<{ readonly value: Every; readonly label: string }> = [
  { value: "minute", label: "Last hour" },
  { value: "hour", label: "Last 24 hours" },
  { value: "day", label: "Last 30 days" },
]

/** The range in the address of the page. */
export const useRange = (usual: Every) => useChoice("every", ranges, usual)
