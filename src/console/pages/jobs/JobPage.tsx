import type { ComponentChildren } from "preact"
import { useState } from "preact/hooks"
import { useCall, useData, usePages } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { State } from "../../components/Badge.tsx"
import { Button, Copyable } from "../../components/Button.tsx"
import { Code, Json } from "../../components/Code.tsx"
import { Confirm } from "../../components/Dialog.tsx"
import { ErrorBox } from "../../components/ErrorBox.tsx"
import { useAction } from "../../components/Form.tsx"
import { Card, Facts, Page } from "../../components/Page.tsx"
import { Skeleton } from "../../components/Table.tsx"
import { durationText, Time } from "../../components/Time.tsx"
import { toast } from "../../components/Toasts.tsx"
import { counted } from "../../components/numbers.ts"
import { useOrg } from "../../navigation/org.ts"
import { Link, navigate, orgPath, useParam } from "../../navigation/router.tsx"
import { type Delivery, shownState } from "../deliveries/DeliveryTable.tsx"
import { shortUrl, useEndpoints } from "../webhooks/endpoints.ts"
import { isDelayed, isOpen, type Job } from "./job.ts"

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

/** Queues a copy of a finished job. One with a callback URL is not offered: nobody can read its secret to copy it. */
const Replay = ({ job }: { readonly job: Job }) => {
  const orgId = useOrg()
  const call = useCall()
  const { error, isRunning, run } = useAction()
  const { deployment_id, input, max_attempts, priority, retry_delay_seconds, skip_callbacks, workflow } = job
  const replay = () =>
    run(async () => {
      const copy = { workflow, input, priority, max_attempts, retry_delay_seconds, skip_callbacks }
      const { job_id } = await call("jobs.create", { ...copy, ...(deployment_id !== null && { deployment_id }) })
      toast("A copy of the job is queued.")
      navigate(orgPath(orgId, `/jobs/${job_id}`))
    })
  return (
    <div class="stack tight">
      <Button icon="repeat" onClick={replay} disabled={isRunning}>
        Replay
      </Button>
      <ErrorBox error={error} />
    </div>
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
        job !== undefined && (
          <>
            {isOpen(job) && may("jobs.cancel") && (
              <Button icon="close" onClick={() => setCanceling(true)}>
                Cancel job
              </Button>
            )}
            {!isOpen(job) && job.callback_url === null && may("jobs.create") && <Replay job={job} />}
          </>
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
              {job.mapped_stack !== null && <Code title="Stack" text={stackText(job.mapped_stack)} />}
            </Card>
          </div>
        </>
      )}
      {isCanceling && <CancelJob id={id} onClose={() => setCanceling(false)} />}
    </Page>
  )
}

/** A stack as people read it: a text as it is, and a line for each frame of a list. */
const stackText = (stack: unknown): string => {
  if (typeof stack === "string") return stack
  if (Array.isArray(stack)) return stack.map(stackText).join("\n")
  const frame = (stack ?? {}) as Readonly<Record<string, unknown>>
  const place = [frame["file"] ?? frame["source"] ?? frame["filename"], frame["line"], frame["column"]]
  if (place[0] === undefined) return JSON.stringify(stack, null, 2)
  return `at ${String(frame["function"] ?? frame["name"] ?? "?")} (${place.filter((part) => part != null).join(":")})`
}

type Tone = "done" | "now" | "bad" | "open"

interface StepProps {
  readonly tone: Tone
  readonly title: ComponentChildren
  readonly at?: string | null
  /** The time since the step before, in milliseconds. */
  readonly after?: number | undefined
  readonly children?: ComponentChildren
}

const Step = ({ after, at, children, title, tone }: StepProps) => (
  <li class={`step ${tone}`} aria-current={tone === "now" ? "step" : undefined}>
    <div class="row between">
      <strong>{title}</strong>
      <span class="quiet small">
        {at !== null && at !== undefined && <Time at={at} isRelative />}
        {after !== undefined && ` · after ${durationText(after)}`}
      </span>
    </div>
    {children}
  </li>
)

const Claims = ({ job }: { readonly job: Job }) => {
  const { attempt, lease_expires_at, max_attempts, note, progress, status } = job
  if (status === "queued") {
    return isDelayed(job) ? (
      <Step tone="now" title="Waits for its time">
        <span>
          No worker gets it before <Time at={job.run_at} />.
        </span>
      </Step>
    ) : (
      <Step tone="now" title="Waits for a worker">
        <span class="quiet">
          {attempt === 0
            ? `A worker claims jobs of ${job.workflow}.`
            : `Attempt ${attempt} of ${max_attempts} ended without an outcome.`}
        </span>
      </Step>
    )
  }
  if (status === "running") {
    return (
      <Step tone="now" title={`Runs: attempt ${attempt} of ${max_attempts}`}>
        {progress !== null && <meter class="bar" min={0} max={1} value={progress} aria-label="Progress" />}
        <span>{note ?? <span class="quiet">The worker has sent no note.</span>}</span>
        <span class="quiet small">
          The lease ends <Time at={lease_expires_at} isRelative />; then the job is queued again.
        </span>
      </Step>
    )
  }
  return <Step tone="done" title={attempt === 0 ? "Finished without a claim" : `Claimed ${counted(attempt, "time")}`} />
}

const endTitles = { completed: "Completed", failed: "Failed", canceled: "Canceled" } as const

const End = ({ job }: { readonly job: Job }) => {
  const { created_at, error, finished_at, status } = job
  if (status === "queued" || status === "running") return <Step tone="open" title="Finished" />
  const end = finished_at ?? job.updated_at
  return (
    <Step
      tone={status === "failed" ? "bad" : "done"}
      title={endTitles[status]}
      at={end}
      after={Date.parse(end) - Date.parse(created_at)}
    >
      {error !== null && <span class="anywhere">{error}</span>}
    </Step>
  )
}

const Delivered = ({ delivery, job }: { readonly delivery: Delivery; readonly job: Job }) => {
  const orgId = useOrg()
  const { byId } = useEndpoints()
  const { attempts, delivery_id, state, updated_at, webhook_endpoint_id } = delivery
  const endpoint = byId.get(webhook_endpoint_id ?? "")
  const name =
    webhook_endpoint_id === null
      ? "the callback URL"
      : endpoint === undefined
        ? "a deleted endpoint"
        : shortUrl(endpoint.url)
  const tone = state === "delivered" ? "done" : state === "failed" ? "bad" : state === "pending" ? "now" : "open"
  const after =
    state === "delivered" && job.finished_at !== null ? Date.parse(updated_at) - Date.parse(job.finished_at) : 0
  return (
    <Step tone={tone} title={<Link to={orgPath(orgId, `/deliveries/${delivery_id}`)}>To {name}</Link>}>
      <span class="row small">
        <State of={shownState(delivery)} />
        <span class="quiet">
          {counted(attempts, "attempt")} · <Time at={updated_at} isRelative />
          {after > 0 && ` · ${durationText(after)} after the job`}
        </span>
      </span>
    </Step>
  )
}

const Deliveries = ({ deliveries, job }: LifeProps) => {
  if (job.status === "canceled") return <Step tone="open" title="No event: the job was canceled" />
  if (job.finished_at === null) return <Step tone="open" title="Event and webhooks" />
  if (job.skip_callbacks) return <Step tone="done" title="No webhooks: the job skips them" />
  if (deliveries === undefined) return <Step tone="open" title="Webhooks…" />
  if (deliveries.length === 0) return <Step tone="done" title="No webhooks: no endpoint wanted the event" />
  return (
    <>
      {deliveries.map((delivery) => (
        <Delivered key={delivery.delivery_id} delivery={delivery} job={job} />
      ))}
    </>
  )
}

interface LifeProps {
  readonly job: Job
  readonly deliveries: ReadonlyArray<Delivery> | undefined
}

/** The life of a job in one picture: from its creation to each webhook. */
export const JobLife = ({ deliveries, job }: LifeProps) => (
  <ol class="life" aria-label="Life of the job">
    <Step tone="done" title="Created" at={job.created_at} />
    <Claims job={job} />
    <End job={job} />
    <Deliveries job={job} deliveries={deliveries} />
  </ol>
)
