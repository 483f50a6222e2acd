import { useData } from "../../client/queries.ts"
import { Chart } from "../../components/Chart.tsx"
import { ErrorBox } from "../../components/ErrorBox.tsx"
import { Card } from "../../components/Page.tsx"
import type { Every } from "./range.ts"
import { deliverySeries, jobSeries, ownValidationSeries, validationSeries } from "./series.ts"

/** What happened in a range, as charts: in every org, or in one. */
export const Activity = ({ every, orgId }: { readonly every: Every; readonly orgId?: string }) => {
  const { data, error, refetch } = useData(
    "activity.overview",
    { every, ...(orgId === undefined ? {} : { orgId }) },
    { refetchMillis: 10_000, keepsPrevious: true },
  )
  const shown = data?.every ?? every
  return (
    <>
      <ErrorBox error={error} onRetry={refetch} />
      <Card title={`Attempts of deliveries by ${shown}`}>
        <Chart title="Attempts of deliveries" every={shown} series={deliverySeries} intervals={data?.deliveries} />
      </Card>
      <div class="grid-2">
        <Card title={`Validations of keys by ${shown}`}>
          <Chart
            title="Validations of keys"
            every={shown}
            series={orgId === undefined ? validationSeries : ownValidationSeries}
            intervals={data?.validations}
          />
        </Card>
        <Card title={`Finished jobs by ${shown}`}>
          <Chart title="Finished jobs" every={shown} series={jobSeries} intervals={data?.jobs} />
        </Card>
      </div>
    </>
  )
}
