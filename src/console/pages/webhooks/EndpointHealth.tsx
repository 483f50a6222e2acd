import { Chart } from "../../components/Chart.tsx"
import { usePages } from "../../client/queries.ts"
import { useNow } from "../../components/Time.tsx"
import { intervalsOf } from "./health.ts"

const series = [
  { name: "delivered", label: "Delivered", tone: "good" },
  { name: "pending", label: "Pending", tone: "accent" },
  { name: "retrying", label: "Retrying", tone: "warn" },
  { name: "failed", label: "Failed", tone: "bad" },
  { name: "unsent", label: "Not sent", tone: "calm" },
] as const

/** The newest deliveries of an endpoint over time, by what became of them. */
export const EndpointHealth = ({ id }: { readonly id: string }) => {
  const now = useNow(60_000)
  const { rows } = usePages("deliveries.list", { webhook_endpoint_id: id, limit: 100 }, ({ deliveries }) => deliveries)
  if (rows === undefined) return <span class="skeleton block" />
  const { every, intervals } = intervalsOf(rows, now)
  const shown = series.filter(({ name }) => name === "delivered" || intervals.some((interval) => interval[name] > 0))
  return (
    <div class="stack tight">
      <Chart
        title={rows.length < 100 ? "All deliveries" : "The newest 100 deliveries"}
        every={every}
        series={shown}
        intervals={intervals}
      />
      <span class="quiet small">A delivery counts once, as it is now. Its failed attempts are on its own page.</span>
    </div>
  )
}
