import { Chart } from "../../components/Chart.tsx"
import { ErrorBox } from "../../components/ErrorBox.tsx"
import { Card, Page } from "../../components/Page.tsx"
import { Segments } from "../../components/Tabs.tsx"
import { useData } from "../../client/queries.ts"
import { useSearch } from "../../navigation/router.tsx"
import { deliverySeries, jobSeries, validationSeries } from "./series.ts"

type Every = "minute" | "hour" | "day"
const ranges: ReadonlyArray<{ readonly value: Every; readonly label: string }> = [
  { value: "minute", label: "Last hour" },
  { value: "hour", label: "Last day" },
  { value: "day", label: "Last 30 days" },
]
const isEvery = (text: string | undefined): text is Every => ranges.some(({ value }) => value === text)

export default () => {
  const [range, setRange] = useSearch("every")
  const every = isEvery(range) ? range : "minute"
  const { data, error, refetch } = useData(
    "activity.overview",
    { every },
    { refetchMillis: 15_000, keepsPrevious: true },
  )
  const shown = data?.every ?? every
  return (
    <Page
      title="Overview"
      actions={<Segments label="Range" value={every} options={ranges} onChange={(value) => setRange(value)} />}
    >
      <ErrorBox error={error} onRetry={refetch} />
      <Card title="Attempts of deliveries">
        <Chart title="Attempts of deliveries" every={shown} series={deliverySeries} intervals={data?.deliveries} />
      </Card>
      <div class="grid-2">
        <Card title="Validations of keys">
          <Chart title="Validations of keys" every={shown} series={validationSeries} intervals={data?.validations} />
        </Card>
        <Card title="Finished jobs">
          <Chart title="Finished jobs" every={shown} series={jobSeries} intervals={data?.jobs} />
        </Card>
      </div>
    </Page>
  )
}
