import { useEffect, useState } from "preact/hooks"
import type { Args } from "../../client/Operations.ts"
import { refresh, useCall, useData, usePages } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { capitalized, State } from "../../components/Badge.tsx"
import { Button } from "../../components/Button.tsx"
import { FormDialog } from "../../components/Dialog.tsx"
import { json, number, text, time, useFields } from "../../components/Fields.tsx"
import { Filter, Filters } from "../../components/Form.tsx"
import { InBulk, RunningBar } from "../../components/InBulk.tsx"
import { Empty, Page, useCreate } from "../../components/Page.tsx"
import { ListCard } from "../../components/Table.tsx"
import { isTime, Time, TimeFilter } from "../../components/Time.tsx"
import { Beside, besideHint } from "../../navigation/Beside.tsx"
import { useOrg } from "../../navigation/org.ts"
import { navigate, orgPath, useQuery } from "../../navigation/router.tsx"
import { type Job, type JobStatus, jobStatuses } from "./job.ts"
import { JobCauses } from "./JobCauses.tsx"
import { Queue } from "./Queue.tsx"
import { Workflows } from "./Workflows.tsx"

const isStatus = (text: string | undefined): text is JobStatus => jobStatuses.some((status) => status === text)

const statuses = jobStatuses.map((value) => ({ value, label: capitalized(value) }))

/** How far a job is, in a few words. */
const Detail = ({ job }: { readonly job: Job }) => {
  if (job.status === "running") {
    const progress = job.progress === null ? "" : `${Math.round(job.progress * 100)} %`
    return <span class="truncate-2">{[progress, job.note].filter(Boolean).join(" · ") || "–"}</span>
  }
  return <span class="truncate-2">{job.error ?? "–"}</span>
}

/** What the list is filtered by: the query of the page's address. */
const useFilters = () => {
  const { error, since, status, until, workflow } = useQuery()
  return {
    ...(isStatus(status) && { status }),
    ...(workflow !== undefined && { workflow }),
    ...(error !== undefined && { error }),
    ...(isTime(since) && { since }),
    ...(isTime(until) && { until }),
  }
}

/** The retries and cancellations that run, each with its progress and what ends it. */
const RunningSweeps = () => {
  const call = useCall()
  const may = useMay()
  const { data } = useData("jobs.sweeps", {}, { isLive: false, refetchMillis: 5_000 })
  // No live event tells of a job that is queued again or canceled by a filter.
  useEffect(
    () => void refresh(({ queryKey }) => queryKey.includes("jobs.list") || queryKey.includes("jobs.causes")),
    [data?.sweeps.map(({ done, sweep_id }) => `${sweep_id} ${done}`).join()],
  )
  const end = (sweep_id: string) =>
    call("jobs.endSweep", { sweep_id }, { said: "Stopped. Jobs that it has not reached stay as they are." })
  return (
    <>
      {data?.sweeps.map(({ count, done, kind, sweep_id }) => (
        <RunningBar
          key={sweep_id}
          label={kind === "retry" ? "Retrying jobs" : "Canceling jobs"}
          done={done}
          count={count}
          onCancel={may("jobs.endSweep") ? () => end(sweep_id) : undefined}
        />
      ))}
    </>
  )
}

const noun = ["job", "jobs"] as const

/** The jobs of an org, as they change. */
export default () => {
  const orgId = useOrg()
  const may = useMay()
  const filters = useFilters()
  const [open, setOpen] = useState<"retry" | "cancel">()
  const close = () => setOpen(undefined)
  const { create, ...creating } = useCreate("Create job", "jobs.create")
  const pages = usePages("jobs.list", { ...filters, limit: 50 }, ({ jobs }) => jobs, {
    keepsPrevious: true,
    rowKey: ({ job_id }) => job_id,
  })
  const isFiltered = Object.keys(filters).length > 0
  const { error, status, ...others } = filters
  const isRetried = status === undefined || status === "failed"
  const isCanceled = (status === "queued" || status === "running") && error === undefined
  return (
    <Page
      title="Jobs"
      intro={<>Work that a worker claims. The end of a job makes an event, which goes to the endpoints. {besideHint}</>}
      actions={
        <>
          {may("jobs.retry") && isRetried && (
            <Button icon="repeat" onClick={() => setOpen("retry")}>
              Retry all that failed…
            </Button>
          )}
          {may("jobs.cancel") && isCanceled && (
            <Button icon="close" onClick={() => setOpen("cancel")}>
              Cancel all that match…
            </Button>
          )}
          {create}
        </>
      }
    >
      <RunningSweeps />
      {(isCanceled || !isFiltered) && <Queue />}
      <Filters>
        <Filter label="State" name="status" options={statuses} />
        <Filter label="Workflow" name="workflow" placeholder="Its exact name" />
        <Filter label="Error" name="error" placeholder="How it begins" />
        <TimeFilter />
      </Filters>
      <Workflows workflow={others.workflow} hasJobs={pages.rows !== undefined && pages.rows.length > 0} />
      {may("jobs.causes") && isRetried && error === undefined && <JobCauses {...others} />}
      <Beside list={pages} noun="job" rowKey={({ job_id }) => job_id} pathOf={(id) => orgPath(orgId, `/jobs/${id}`)}>
        {(opened) => (
          <ListCard
            caption="Jobs"
            {...pages}
            {...opened}
            rowKey={({ job_id }) => job_id}
            filtered={isFiltered && "job"}
            empty={
              <Empty icon="gear" title="No job yet">
                <p>Your service creates jobs, a schedule does, or you do here. A worker claims and finishes them.</p>
                {create}
              </Empty>
            }
            columns={[
              { title: "Workflow", link: ({ job_id, workflow }) => [orgPath(orgId, `/jobs/${job_id}`), workflow] },
              { title: "State", align: "fit", cell: ({ status }) => <State of={status} /> },
              { title: "Progress or error", cell: (job) => <Detail job={job} /> },
              {
                title: "Attempts",
                align: "end",
                isExtra: true,
                cell: ({ attempt, max_attempts }) => `${attempt} of ${max_attempts}`,
              },
              { title: "Created", align: "fit", cell: ({ created_at }) => <Time at={created_at} isRelative /> },
              {
                title: "Finished",
                align: "fit",
                isExtra: true,
                cell: ({ finished_at }) => <Time at={finished_at} isRelative />,
              },
            ]}
          />
        )}
      </Beside>
      {creating.isCreating && <CreateJob onClose={creating.close} />}
      {open === "retry" && (
        <InBulk
          id="jobs.retry"
          filter={{ ...others, ...(error !== undefined && { error }) }}
          title="Retry what matches"
          intro="Queues the failed jobs of your filter again, each with as many further attempts as it had, the oldest first."
          submit="Retry"
          noun={noun}
          verb="will be retried"
          onClose={close}
        />
      )}
      {open === "cancel" && isCanceled && (
        <InBulk
          id="jobs.cancel"
          filter={{ ...others, status }}
          title="Cancel what matches"
          intro="Ends the jobs of your filter without an outcome, the oldest first. No webhooks are sent."
          submit="Cancel jobs"
          isDangerous
          noun={noun}
          verb="will be canceled"
          onClose={close}
        />
      )}
    </Page>
  )
}

const newJob = {
  workflow: {
    ...text,
    label: "Workflow",
    hint: "Workers claim jobs by this name.",
    required: true,
    maxLength: 255,
    placeholder: "nightly-report",
  },
  input: {
    ...json,
    label: "Input",
    hint: "Any JSON. Empty: none.",
    class: "input",
    placeholder: '{ "shop": "northwind" }',
  },
  run_at: { ...time, label: "Not before" },
  priority: {
    ...number,
    label: "Priority",
    hint: "−100 to 100; higher comes first.",
    min: -100,
    max: 100,
    required: true,
  },
}

/** Queues a job by hand. */
const CreateJob = ({ onClose }: { readonly onClose: () => void }) => {
  const orgId = useOrg()
  const call = useCall()
  const { changes, fields, isValid } = useFields(newJob, { priority: 0 })
  const create = async () => {
    const { job_id } = await call("jobs.create", changes as Args<"jobs.create">, { isOnce: true })
    navigate(orgPath(orgId, `/jobs/${job_id}`))
  }
  return (
    <FormDialog title="Create a job" submit="Create job" isReady={isValid} onSubmit={create} onClose={onClose}>
      {fields("workflow", "input")}
      <div class="grid-3">{fields("run_at", "priority")}</div>
    </FormDialog>
  )
}
