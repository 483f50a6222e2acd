import { useState } from "preact/hooks"
import { State } from "../../components/Badge.tsx"
import { Button } from "../../components/Button.tsx"
import { Json } from "../../components/Code.tsx"
import { Copyable } from "../../components/Copy.tsx"
import { Confirm } from "../../components/Dialog.tsx"
import { ErrorBox } from "../../components/ErrorBox.tsx"
import { Card, Facts, Page } from "../../components/Page.tsx"
import { Skeleton } from "../../components/Skeleton.tsx"
import { durationText, Time } from "../../components/Time.tsx"
import { toast } from "../../components/Toasts.tsx"
import { useCall, useData, usePages } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { useOrg } from "../../navigation/org.ts"
import { orgPath, useParam } from "../../navigation/router.tsx"
import { isOpen, type Job } from "./job.ts"
import { JobLife } from "./JobLife.tsx"

const About = ({ job }: { readonly job: Job }) => (
  <Facts
    of={{
      Id: <Copyable text={job.job_id} label="Copy the id" />,
      Priority: job.priority,
      Attempts: `${job.attempt} of ${job.max_attempts}`,
      "Delay before a retry": `${durationText(job.retry_delay_seconds * 1000)}, then twice as long each time`,
      Deployment: job.deployment_id ?? undefined,
      Callback: job.callback_url === null ? undefined : <span class="anywhere">{job.callback_url}</span>,
      "Not before": job.run_at === null ? undefined : <Time at={job.run_at} />,
      Created: <Time at={job.created_at} />,
      Changed: <Time at={job.updated_at} />,
    }}
  />
)

const CancelJob = ({ id, onClose }: { readonly id: string; readonly onClose: () => void }) => {
  const call = useCall()
  return (
    <Confirm
      title="Cancel this job?"
      action="Cancel the job"
      isDangerous
      onClose={onClose}
      onConfirm={async () => {
        await call("jobs.cancel", { job_id: id })
        toast("The job is canceled.")
      }}
    >
      <p>It ends without an outcome, and no webhook is sent. Its worker hears of it at its next report.</p>
    </Confirm>
  )
}

/** One job: its life, what it was given, and what came out. */
export default () => {
  const id = useParam("jobId")
  const orgId = useOrg()
  const may = useMay()
  const [isCanceling, setCanceling] = useState(false)
  const { data: job, error, refetch } = useData("jobs.get", { job_id: id })
  const { rows } = usePages("deliveries.list", { job_id: id, limit: 50 }, ({ deliveries }) => deliveries)
  const crumbs = [{ to: orgPath(orgId, "/jobs"), label: "Jobs" }]
  if (job === undefined && error !== null) {
    return (
      <Page title="Job" crumbs={crumbs}>
        <ErrorBox error={error} onRetry={refetch} />
      </Page>
    )
  }
  return (
    <Page
      title={job?.workflow ?? "Job"}
      crumbs={crumbs}
      state={job && <State of={job.status} />}
      actions={
        job !== undefined &&
        isOpen(job) &&
        may("jobs.cancel") && (
          <Button icon="close" onClick={() => setCanceling(true)}>
            Cancel job
          </Button>
        )
      }
    >
      {job === undefined ? (
        <Skeleton lines={3} />
      ) : (
        <>
          <div class="grid-2">
            <Card title="Life">
              <JobLife job={job} deliveries={rows} />
            </Card>
            <Card title="About">
              <About job={job} />
            </Card>
          </div>
          <div class="grid-2">
            <Card title="In">
              <Json title="Input" value={job.input} none="The job has no input." />
            </Card>
            <Card title="Out">
              <Json
                title="Result"
                value={job.result}
                none={isOpen(job) ? "The job is not finished." : "The job has no result."}
              />
              {job.mapped_stack !== null && <Json title="Stack" value={job.mapped_stack} none="" />}
            </Card>
          </div>
        </>
      )}
      {isCanceling && <CancelJob id={id} onClose={() => setCanceling(false)} />}
    </Page>
  )
}
