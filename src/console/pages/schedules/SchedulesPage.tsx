import { State } from "../../components/Badge.tsx"
import { Empty, Page, useCreate } from "../../components/Page.tsx"
import { ListCard } from "../../components/Table.tsx"
import { Time } from "../../components/Time.tsx"
import { usePages } from "../../client/queries.ts"
import { useOrg } from "../../navigation/org.ts"
import { navigate, orgPath } from "../../navigation/router.tsx"
import { cronText } from "./cronText.ts"
import { ScheduleForm } from "./ScheduleForm.tsx"

/** The schedules of an org, with their next times. */
export default () => {
  const orgId = useOrg()
  const { close, create, isCreating } = useCreate("Create schedule", "schedules.create")
  const pages = usePages("schedules.list", { limit: 50 }, ({ schedules }) => schedules, { refetchMillis: 30_000 })
  return (
    <Page title="Schedules" intro="Each creates a job at its times, once over all replicas." actions={create}>
      <ListCard
        caption="Schedules"
        {...pages}
        rowKey={({ schedule_id }) => schedule_id}
        empty={
          <Empty icon="clock" title="No schedule yet">
            <p>A schedule creates a job at fixed times, such as each night at four.</p>
            {create}
          </Empty>
        }
        columns={[
          {
            title: "Workflow",
            link: ({ schedule_id, workflow }) => [orgPath(orgId, `/schedules/${schedule_id}`), workflow],
          },
          { title: "State", align: "fit", cell: ({ active }) => <State of={active ? "active" : "paused"} /> },
          {
            title: "Times",
            cell: ({ cron, timezone }) => (
              <span class="row">
                <span title={cron}>{cronText(cron) ?? <code>{cron}</code>}</span>
                <span class="quiet small">{timezone}</span>
              </span>
            ),
          },
          { title: "Next", align: "fit", cell: ({ next_at }) => <Time at={next_at} isRelative none="paused" /> },
          { title: "Created", align: "fit", cell: ({ created_at }) => <Time at={created_at} isRelative /> },
        ]}
      />
      {isCreating && <ScheduleForm onClose={close} onDone={(id) => navigate(orgPath(orgId, `/schedules/${id}`))} />}
    </Page>
  )
}
