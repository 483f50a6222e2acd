import { useData } from "../../client/queries.ts"
import { Chart, type Series } from "../../components/Chart.tsx"
import { ErrorBox } from "../../components/ErrorBox.tsx"
import { Card } from "../../components/Page.tsx"
import { Segments } from "../../components/Tabs.tsx"
import { useSearch } from "../../navigation/router.tsx"
import { useMemo } from "preact/hooks"

const ranges = [
  { value: "hour", label: "Last day" },
  { value: "day", label: "Last 30 days" },
] as const
const dayMillis = 86_400_000
const daysOf = { hour: 1, day: 30 }

const validations = [
  { name: "valid", label: "Valid", tone: "good" },
  { name: "limited", label: "Limited", tone: "warn" },
  { name: "forbidden", label: "Forbidden", tone: "bad" },
] as const satisfies ReadonlyArray<Series>
const costs = [{ name: "cost", label: "Cost", tone: "accent" }] as const satisfies ReadonlyArray<Series>

/** How often a key was validated, and what it cost. */
export const KeyUsage = ({ id, orgId }: { readonly orgId: string; readonly id: string }) => {
  const [text, setText] = useSearch("every")
  const every = text === "day" ? "day" : "hour"
  const from = useMemo(
    () => new Date(Date.now() - daysOf[every] * dayMillis + dayMillis / 24).toISOString(),
    [every, id],
  )
  const { data, error, refetch } = useData(
    "keys.usage",
    { orgId, id, every, from },
    { refetchMillis: 10_000, keepsPrevious: true },
  )
  return (
    <>
      <ErrorBox error={error} onRetry={refetch} />
      <div class="grid-2">
        <Card
          title={`Validations by ${every}`}
          actions={<Segments label="Range" value={every} options={ranges} onChange={setText} />}
        >
          <Chart title="Validations" every={every} series={validations} intervals={data?.usage} />
        </Card>
        <Card title={`Cost by ${every}`}>
          <Chart title="Cost of valid validations" every={every} series={costs} intervals={data?.usage} />
        </Card>
      </div>
    </>
  )
}
