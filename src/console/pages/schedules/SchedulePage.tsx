import { useState } from "preact/hooks"
import { State } from "../../components/Badge.tsx"
import { readersZone } from "../../components/Chart.tsx"
import { Button, Copyable } from "../../components/Button.tsx"
import { Json } from "../../components/Code.tsx"
import { Confirm } from "../../components/Dialog.tsx"
import { ErrorBox } from "../../components/ErrorBox.tsx"
import { useAction } from "../../components/Form.tsx"
import { Card, Empty, Facts, Page } from "../../components/Page.tsx"
import { Skeleton } from "../../components/Table.tsx"
import { Time } from "../../components/Time.tsx"
import { toast } from "../../components/Toasts.tsx"
import { useCall, useData } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { useOrg } from "../../navigation/org.ts"
import { Link, navigate, orgPath, useParam } from "../../navigation/router.tsx"
import { useChanges } from "../audit/useChanges.tsx"
import { cronText, EditSchedule, type Schedule } from "./ScheduleForm.tsx"

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

/** Run now, pause or resume; what fails is said below the buttons. */
const useActions = (schedule: Schedule | undefined) => {
  const orgId = useOrg()
  const call = useCall()
  const { error, isRunning, run } = useAction()
  const schedule_id = schedule?.schedule_id ?? ""
  return {
    error,
    isRunning,
    runNow: () =>
      run(async () => {
        const { job_id } = await call("schedules.run", { schedule_id })
        navigate(orgPath(orgId, `/jobs/${job_id}`))
      }),
    setActive: (active: boolean) =>
      run(async () => {
        await call("schedules.update", { schedule_id, active })
        toast(active ? "The schedule runs again." : "The schedule is paused.")
      }),
  }
}

const DeleteSchedule = ({ id, onClose }: { readonly id: string; readonly onClose: () => void }) => {
  const call = useCall()
  const orgId = useOrg()
  return (
    <Confirm
      title="Delete this schedule?"
      action="Delete schedule"
      isDangerous
      onClose={onClose}
      onConfirm={async () => {
        await call("schedules.delete", { schedule_id: id })
        navigate(orgPath(orgId, "/schedules"))
      }}
    >
      <p>It creates no more jobs. Those that it has created stay.</p>
    </Confirm>
  )
}

/** One schedule: its next times, its last job, and what can be done. */
export default () => {
  const id = useParam("scheduleId")
  const orgId = useOrg()
  const may = useMay()
  const [open, setOpen] = useState<"edit" | "delete">()
  const { data: schedule, error, refetch } = useData("schedules.get", { schedule_id: id }, { refetchMillis: 30_000 })
  const actions = useActions(schedule)
  const changes = useChanges(id)
  const crumbs = [{ to: orgPath(orgId, "/schedules"), label: "Schedules" }]
  if (schedule === undefined && error !== null) {
    return (
      <Page title="Schedule" crumbs={crumbs}>
        <ErrorBox error={error} onRetry={refetch} />
      </Page>
    )
  }
  return (
    <Page
      title={schedule?.workflow ?? "Schedule"}
      crumbs={crumbs}
      state={schedule && <State of={schedule.active ? "active" : "paused"} />}
      actions={
        schedule !== undefined && (
          <>
            {may("schedules.run") && (
              <Button look="primary" icon="play" onClick={actions.runNow} disabled={actions.isRunning}>
                Run now
              </Button>
            )}
            {may("schedules.update") && (
              <>
                <Button
                  icon={schedule.active ? "pause" : "play"}
                  onClick={() => actions.setActive(!schedule.active)}
                  disabled={actions.isRunning}
                >
                  {schedule.active ? "Pause" : "Resume"}
                </Button>
                <Button onClick={() => setOpen("edit")}>Edit</Button>
              </>
            )}
            {may("schedules.delete") && (
              <Button icon="trash" look="danger" aria-label="Delete the schedule" onClick={() => setOpen("delete")} />
            )}
          </>
        )
      }
    >
      <ErrorBox error={actions.error} />
      {schedule === undefined ? (
        <Skeleton lines={3} />
      ) : (
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
      {schedule !== undefined && open === "edit" && (
        <EditSchedule schedule={schedule} onClose={() => setOpen(undefined)} />
      )}
      {open === "delete" && <DeleteSchedule id={id} onClose={() => setOpen(undefined)} />}
    </Page>
  )
}
