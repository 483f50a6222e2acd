import type { ComponentChildren } from "preact"
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks"
import type { ResponseBody } from "../../client/Operations.ts"
import { useCall, useData, usePages } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { State } from "../../components/Badge.tsx"
import { Button, Copyable } from "../../components/Button.tsx"
import { Code, Json, parseJson } from "../../components/Code.tsx"
import { AskButton, FormDialog } from "../../components/Dialog.tsx"
import { ActionButton, Field, TextArea } from "../../components/Form.tsx"
import { breaks, Card, Facts, Page } from "../../components/Page.tsx"
import { Loaded } from "../../components/Table.tsx"
import { durationText, Time } from "../../components/Time.tsx"
import { counted } from "../../components/numbers.ts"
import { useOrg } from "../../navigation/org.ts"
import { Link, navigate, orgPath, useParam } from "../../navigation/router.tsx"
import { type Delivery, shownState } from "../deliveries/DeliveryTable.tsx"
import { useEndpoints } from "../webhooks/endpoints.ts"
import { isDelayed, isOpen, type Job } from "./job.ts"

type JobDetail = ResponseBody<"jobs.get">

const About = ({ job }: { readonly job: Job }) => (
  <Facts
    of={{
      Id: <Copyable text={job.job_id} label="Copy the id" />,
      Priority: job.priority,
      Attempts: `${job.attempt} of ${job.max_attempts}`,
      "Delay before a retry": `${durationText(job.retry_delay_seconds * 1000)}, then twice as long each time`,
      Deployment: job.deployment_id ?? undefined,
      Callback: job.callback_url === null ? undefined : <span class="anywhere">{breaks(job.callback_url)}</span>,
      "Not before": job.run_at === null ? undefined : <Time at={job.run_at} />,
      Created: <Time at={job.created_at} />,
      Changed: <Time at={job.updated_at} />,
    }}
  />
)

/** Queues a failed job again with another input. */
const ChangeInput = ({ job, onClose }: { readonly job: Job; readonly onClose: () => void }) => {
  const call = useCall()
  const [text, setText] = useState(() => JSON.stringify(job.input, null, 2))
  const { error, value } = parseJson(text)
  const said = "The job is queued again, with the input as you wrote it."
  const retry = () => call("jobs.retry", { job_id: job.job_id, input: value }, { said })
  return (
    <FormDialog title="Retry with another input" submit="Retry" isReady={!error} onSubmit={retry} onClose={onClose}>
      <Field label="Input" hint="Any JSON. It replaces the input of the job." error={error}>
        <TextArea value={text} onInput={setText} spellcheck={false} rows={12} />
      </Field>
    </FormDialog>
  )
}

/** What can be done with a job. */
const Actions = ({ job }: { readonly job: Job }) => {
  const orgId = useOrg()
  const may = useMay()
  const call = useCall()
  const [isChanging, setChanging] = useState(false)
  const { job_id, status } = job
  const cancel = () => call("jobs.cancel", { job_id }, { said: "The job is canceled." })
  const retry = () => call("jobs.retry", { job_id }, { said: "The job is queued again." })
  /** A copy. One with a callback URL is not offered: nobody can read its secret to copy it. */
  const copy = async () => {
    const { deployment_id, input, max_attempts, priority, retry_delay_seconds, skip_callbacks, workflow } = job
    const settings = { workflow, input, priority, max_attempts, retry_delay_seconds, skip_callbacks }
    const copied = { ...settings, ...(deployment_id !== null && { deployment_id }) }
    const made = await call("jobs.create", copied, { said: "A copy of the job is queued." })
    navigate(orgPath(orgId, `/jobs/${made.job_id}`))
  }
  return (
    <>
      {isOpen(job) && may("jobs.cancel") && (
        <AskButton
          icon="close"
          text="Cancel job"
          isDangerous
          title="Cancel this job?"
          submit="Cancel the job"
          onConfirm={cancel}
        >
          <p>It ends without an outcome, and no webhook is sent. Its worker hears of it at its next report.</p>
        </AskButton>
      )}
      {status === "failed" && may("jobs.retry") && (
        <>
          <Button onClick={() => setChanging(true)}>Retry with another input…</Button>
          <ActionButton icon="repeat" look="primary" onPress={retry}>
            Retry
          </ActionButton>
        </>
      )}
      {(status === "completed" || status === "canceled") && job.callback_url === null && may("jobs.create") && (
        <ActionButton icon="repeat" onPress={copy}>
          Retry
        </ActionButton>
      )}
      {isChanging && <ChangeInput job={job} onClose={() => setChanging(false)} />}
    </>
  )
}

/** How often the page reads a job that runs: no live event tells of its progress and its lines. */
const runningMillis = 2_000

/** What the workers of a job have logged. A reader who is at the end stays there. */
const Lines = ({ job: { job_id, status } }: { readonly job: Job }) => {
  const { data } = useData("jobs.logs", { job_id }, status === "running" ? { refetchMillis: runningMillis } : {})
  const list = useRef<HTMLPreElement>(null)
  const isAtEnd = useRef(true)
  useLayoutEffect(() => {
    if (isAtEnd.current) list.current?.scrollTo(0, list.current.scrollHeight)
  }, [data])
  if (data === undefined || data.lines.length === 0) return null
  return (
    <Card title="Logs">
      <pre
        ref={list}
        class="lines"
        tabIndex={0}
        role="log"
        aria-label="Logs of the job"
        onScroll={({ currentTarget: { clientHeight, scrollHeight, scrollTop } }) => {
          isAtEnd.current = scrollTop + clientHeight > scrollHeight - 30
        }}
      >
        {data.lines.map(({ at, level, text }, i) => (
          <span key={i} class={level} title={at}>
            {new Date(at).toLocaleTimeString()} {level === "info" ? "" : `${level} `}
            {text}
            {"\n"}
          </span>
        ))}
      </pre>
    </Card>
  )
}

/** What is done of a job, and is not done again by another attempt. */
const Steps = ({ steps }: { readonly steps: JobDetail["steps"] }) =>
  steps.length === 0 ? null : (
    <Card title="Finished steps">
      {steps.map(({ finished_at, name, result }) => (
        <details key={name}>
          <summary>
            {name}{" "}
            <span class="quiet small">
              <Time at={finished_at} isRelative />
            </span>
          </summary>
          <Json title={`Result of ${name}`} value={result} none="The step has no result." />
        </details>
      ))}
    </Card>
  )

/** One job: its life, what it was given, and what came out. */
export default () => {
  const id = useParam("jobId")
  const orgId = useOrg()
  const [isRunning, setRunning] = useState(false)
  const response = useData("jobs.get", { job_id: id }, isRunning ? { refetchMillis: runningMillis } : {})
  const { rows } = usePages("deliveries.list", { job_id: id, limit: 50 }, ({ deliveries }) => deliveries)
  const job = response.data
  useEffect(() => setRunning(job?.status === "running"), [job?.status])
  return (
    <Page
      title={job?.workflow ?? "Job"}
      crumbs={[{ to: orgPath(orgId, "/jobs"), label: "Jobs" }]}
      state={job && <State of={job.status} />}
      actions={job && <Actions job={job} />}
    >
      <Loaded of={response}>
        {(job) => (
          <>
            <div class="grid-2">
              <Card title="Timeline">
                <JobLife job={job} deliveries={rows} />
              </Card>
              <Card title="About">
                <About job={job} />
              </Card>
            </div>
            <Lines job={job} />
            <Steps steps={job.steps} />
            <div class="grid-2">
              <Card>
                <Json title="Input" value={job.input} none="The job has no input." />
              </Card>
              <Card>
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
      </Loaded>
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
  const parts = place.filter((part) => part != null).map(partText)
  return `at ${partText(frame["function"] ?? frame["name"] ?? "?")} (${parts.join(":")})`
}

const partText = (part: unknown) => (typeof part === "string" ? part : JSON.stringify(part))

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

/** The attempts that have ended before the last one, which the end of the job has. */
const Attempts = ({ job }: { readonly job: JobDetail }) => (
  <>
    {job.attempt_log.map(({ attempt, ended_at, error, note }) =>
      ended_at === job.finished_at ? null : (
        <Step key={attempt} tone="bad" title={`Attempt ${attempt} failed`} at={ended_at}>
          {error !== null && <span class="anywhere">{error}</span>}
          {note !== null && <span class="quiet small">Its last note: {note}</span>}
        </Step>
      ),
    )}
  </>
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
            : `Attempt ${attempt + 1} of ${max_attempts} comes next.`}
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

interface DeliveredProps {
  readonly delivery: Delivery
  readonly job: Job
  /** What its receiver is called. */
  readonly name: string
}

const Delivered = ({ delivery, job, name }: DeliveredProps) => {
  const orgId = useOrg()
  const { attempts, delivery_id, state, updated_at } = delivery
  const tone = state === "delivered" ? "done" : state === "failed" ? "bad" : state === "pending" ? "now" : "open"
  const after =
    state === "delivered" && job.finished_at !== null ? Date.parse(updated_at) - Date.parse(job.finished_at) : 0
  return (
    <Step
      tone={tone}
      title={
        <Link class="truncate-2" to={orgPath(orgId, `/deliveries/${delivery_id}`)}>
          To {breaks(name)}
        </Link>
      }
    >
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
  const { nameOf } = useEndpoints(deliveries?.map(({ webhook_endpoint_id: id }) => id))
  if (job.status === "canceled") return <Step tone="open" title="No event: the job was canceled" />
  if (job.finished_at === null) return <Step tone="open" title="Event and webhooks" />
  if (job.skip_callbacks) return <Step tone="done" title="No webhooks: the job skips them" />
  if (deliveries === undefined) return <Step tone="open" title="Webhooks…" />
  if (deliveries.length === 0) return <Step tone="done" title="No webhooks: no endpoint wanted the event" />
  return (
    <>
      {deliveries.map((delivery) => {
        const { delivery_id, webhook_endpoint_id: to } = delivery
        return (
          <Delivered key={delivery_id} {...{ delivery, job }} name={to === null ? "the callback URL" : nameOf(to)} />
        )
      })}
    </>
  )
}

interface LifeProps {
  readonly job: JobDetail
  readonly deliveries: ReadonlyArray<Delivery> | undefined
}

/** The life of a job in one picture: from its creation to each webhook. */
const JobLife = ({ deliveries, job }: LifeProps) => (
  <ol class="life" aria-label="Timeline of the job">
    <Step tone="done" title="Created" at={job.created_at} />
    <Attempts job={job} />
    <Claims job={job} />
    <End job={job} />
    <Deliveries job={job} deliveries={deliveries} />
  </ol>
)
