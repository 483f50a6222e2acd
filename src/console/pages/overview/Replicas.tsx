import { Card, Empty } from "../../components/Page.tsx"
import { Table } from "../../components/Table.tsx"
import { Time } from "../../components/Time.tsx"
import { type Measured, millisText, type Replica, useServiceState } from "./Speed.tsx"

/** The median and the 99th percentile of a replica. */
const durations = (title: string, name: Measured) => ({
  title,
  align: "end" as const,
  cell: ({ figures }: Replica) => {
    const { p50Millis = null, p99Millis = null } = figures?.[name] ?? {}
    if (p50Millis === null) return "–"
    return (
      <span class="stack tight" title="The median, and what 99 of 100 were faster than">
        <span>{millisText(p50Millis)}</span>
        <span class="quiet">{millisText(p99Millis)}</span>
      </span>
    )
  },
})

/** Each process of the service, with how fast it was in the last five minutes: median and 99th percentile. */
export const Replicas = () => {
  const state = useServiceState()
  return (
    <Card
      title="Replicas"
      isPadded={false}
      actions={<span class="quiet small">median, and below it the 99th percentile</span>}
    >
      <Table
        caption="Replicas, with the median and the 99th percentile of what they measured"
        rows={state?.replicas}
        rowKey={({ replicaId }) => replicaId}
        empty={<Empty icon="activity" title="No replica was seen in the last minute" />}
        columns={[
          {
            title: "Replica",
            cell: ({ replicaId }) => (
              <code class="clip" title={replicaId}>
                {replicaId}
              </code>
            ),
          },
          { title: "Started", align: "fit", cell: ({ startedAt }) => <Time at={startedAt} isRelative /> },
          durations("Requests", "requests"),
          durations("Validations", "validations"),
          durations("Receivers", "attempts"),
          durations("Database", "database"),
          {
            title: "In flight",
            align: "end",
            cell: ({ figures }) =>
              figures === null ? (
                "–"
              ) : (
                <span title="Operations of the database in flight, and the most connections">
                  {figures.databaseInFlight} of {figures.databaseConnections}
                </span>
              ),
          },
        ]}
      />
    </Card>
  )
}
