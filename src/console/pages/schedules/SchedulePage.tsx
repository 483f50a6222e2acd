import { useState } from "preact/hooks"
import { State } from "../../components/Badge.tsx"
import { readersZone } from "../../components/Chart.tsx"
import { Button, Copyable } from "../../components/Button.tsx"
import { Json } from "../../components/Code.tsx"
import { DeleteButton } from "../../components/Dialog.tsx"
import { ActionButton } from "../../components/Form.tsx"
import { Card, Empty, Facts, Page } from "../../components/Page.tsx"
import { Loaded } from "../../components/Table.tsx"
import { Time } from "../../components/Time.tsx"
import { useCall, useData } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { useOrg } from "../../navigation/org.ts"
import { Link, navigate, orgPath, useParam } from "../../navigation/router.tsx"
import { useChanges } from "../audit/useChanges.tsx"
import { cronText } from "./cronText.ts"
import { type Schedule, ScheduleForm } from "./ScheduleForm.tsx"

const inZone = (at: string, timeZone: string) =>
  new Date(at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short", timeZone })

/** The next times, in the zone of the schedule and in the reader's. */
const NextTimes = ({ schedule }: { readonly schedule: Schedule }) =>
  schedule.active ? (
    <ol class="times">
      {schedule.next_times.map((at) => (
        <li key={at} class="row between">
          <span class="stack tight">
            <span>
              {inZone(at, schedule.timezone)} <span class="quiet small">{schedule.timezone}</span>
            </span>
            {schedule.timezone !== readersZone && (
              <span class="quiet small">
                <Time at={at} /> {readersZone}
              </span>
            )}
          </span>
          <span class="quiet small">
            <Time at={at} isRelative />
          </span>
        </li>
      ))}
    </ol>
  ) : (
    <Empty icon="pause" title="Paused">
      <p>It creates no jobs. Times of the pause are not made up for. Run now works all the same.</p>
    </Empty>
  )

const LastJob = ({ schedule }: { readonly schedule: Schedule }) => {
  const orgId = useOrg()
  const { last_job } = schedule
  if (last_job === null) return <span class="quiet">none yet</span>
  return (
    <span class="row">
      <Link to={orgPath(orgId, `/jobs/${last_job.job_id}`)}>
        <Time at={last_job.created_at} isRelative />
      </Link>
      <State of={last_job.status} />
    </span>
  )
}

/** The newest jobs of the workflow, also those that others created. */
const LatestJobs = ({ workflow }: { readonly workflow: string }) => {
  const orgId = useOrg()
  const { data } = useData("jobs.list", { workflow, limit: 5 })
  return (
    <Card title="Latest jobs of the workflow">
      <ul class="times">
        {data?.jobs.map(({ created_at, error, job_id, status }) => (
          <li key={job_id} class="row between">
            <Link to={orgPath(orgId, `/jobs/${job_id}`)}>
              <Time at={created_at} />
            </Link>
            <span class="truncate quiet small">{error}</span>
            <State of={status} />
          </li>
        ))}
      </ul>
      {data?.jobs.length === 0 && <span class="quiet">none yet</span>}
      <Link to={orgPath(orgId, `/jobs?workflow=${encodeURIComponent(workflow)}`)}>All of them</Link>
    </Card>
  )
}

/** What can be done with a schedule. */
const Actions = ({ schedule }: { readonly schedule: Schedule }) => {
  const orgId = useOrg()
  const may = useMay()
  const call = useCall()
  const [isEditing, setEditing] = useState(false)
  const { active, schedule_id } = schedule
  const runNow = async () => {
    const { job_id } = await call("schedules.run", { schedule_id })
    navigate(orgPath(orgId, `/jobs/${job_id}`))
  }
  const said = active ? "The schedule is paused." : "The schedule runs again."
  const pause = () => call("schedules.update", { schedule_id, active: !active }, { said })
  const remove = async () => {
    await call("schedules.delete", { schedule_id })
    navigate(orgPath(orgId, "/schedules"))
  }
  return (
    <>
      {may("schedules.run") && (
        <ActionButton look="primary" icon="play" onPress={runNow}>
          Run now
        </ActionButton>
      )}
      {may("schedules.update") && (
        <>
          <ActionButton icon={active ? "pause" : "play"} onPress={pause}>
            {active ? "Pause" : "Resume"}
          </ActionButton>
          <Button onClick={() => setEditing(true)}>Edit</Button>
        </>
      )}
      {may("schedules.delete") && (
        <DeleteButton
          label="Delete the schedule"
          title="Delete this schedule?"
          submit="Delete schedule"
          onConfirm={remove}
        >
          <p>It creates no more jobs. Those that it has created stay.</p>
        </DeleteButton>
      )}
      {isEditing && <ScheduleForm schedule={schedule} onClose={() => setEditing(false)} />}
    </>
  )
}

/** One schedule: its next times, its last job, and what can be done. */
export default () => {
  const id = useParam("scheduleId")
  const orgId = useOrg()
  const may = useMay()
  const response = useData("schedules.get", { schedule_id: id }, { refetchMillis: 30_000 })
  const schedule = response.data
  const changes = useChanges(id)
  return (
    <Page
      title={schedule?.workflow ?? "Schedule"}
      crumbs={[{ to: orgPath(orgId, "/schedules"), label: "Schedules" }]}
      state={schedule && <State of={schedule.active ? "active" : "paused"} />}
      actions={schedule && <Actions schedule={schedule} />}
    >
      <Loaded of={response}>
        {(schedule) => (
          <div class="grid-2">
            <Card title="Next times">
              <NextTimes schedule={schedule} />
            </Card>
            <Card title="About">
              <Facts
                of={{
                  Id: <Copyable text={schedule.schedule_id} label="Copy the id" />,
                  Times: (
                    <span class="row">
                      {cronText(schedule.cron)} <code>{schedule.cron}</code>
                    </span>
                  ),
                  "Time zone": schedule.timezone,
                  "Last job": <LastJob schedule={schedule} />,
                  "While a job is open":
                    schedule.overlap === "skip" ? "its times are skipped" : "further jobs are created",
                  Priority: schedule.priority,
                  Created: <Time at={schedule.created_at} />,
                  "Audit log": changes,
                }}
              />
              <Json title="Input of the jobs" value={schedule.input} none="none" />
            </Card>
            {may("jobs.list") && <LatestJobs workflow={schedule.workflow} />}
          </div>
        )}
      </Loaded>
    </Page>
  )
}
