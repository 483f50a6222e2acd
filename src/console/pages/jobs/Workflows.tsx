import { useState } from "preact/hooks"
import type { ResponseBody } from "../../client/Operations.ts"
import { useCall, useData } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { Button } from "../../components/Button.tsx"
import { DeleteButton, FormDialog } from "../../components/Dialog.tsx"
import { number, text, useFields } from "../../components/Fields.tsx"
import { linesOf } from "../../components/Form.tsx"
import { ListCard } from "../../components/Table.tsx"
import { durationText } from "../../components/Time.tsx"
import { counted, numberText } from "../../components/numbers.ts"
import { useOrg } from "../../navigation/org.ts"
import { orgPath } from "../../navigation/router.tsx"
import { useQueue } from "./Queue.tsx"

type Workflow = ResponseBody<"workflows.get">
type Settings = Pick<Workflow, "concurrency" | "concurrency_per_key" | "rate" | "retry" | "expires_in_seconds">

const secondsText = (seconds: number) => durationText(seconds * 1_000)

const rateText = ({ limit, window_seconds }: NonNullable<Settings["rate"]>) =>
  `${numberText(limit)} starts per ${secondsText(window_seconds)}`

const retryText = ({ attempts, base_seconds, delays, max_seconds }: NonNullable<Settings["retry"]>) => {
  const waits =
    delays === undefined
      ? base_seconds !== undefined &&
        `from ${secondsText(base_seconds)} to ${secondsText(max_seconds ?? 3_600)}, doubling`
      : `after ${delays.map(secondsText).join(", ")}`
  return [counted(attempts, "attempt"), waits].filter(Boolean).join(", ")
}

/** A number of jobs, or at least so many. */
const countText = (count: number, isAll = true) => `${isAll || count === 0 ? "" : "at least "}${numberText(count)}`

const none = { concurrency: null, concurrency_per_key: null, rate: null, retry: null, expires_in_seconds: null }

/** Workflows that are shown at first. */
const shownAtOnce = 20

interface WorkflowsProps {
  /** The one that the jobs are filtered by. */
  readonly workflow: string | undefined
  /** Whether it has jobs: what somebody has half typed has none. */
  readonly hasJobs: boolean
}

/** The jobs that wait and run, and the limits, of the workflow of a list; without one, of all that have some. */
export const Workflows = ({ hasJobs, workflow }: WorkflowsProps) => {
  const orgId = useOrg()
  const may = useMay()
  const call = useCall()
  const { data } = useData("workflows.list", {}, { enabled: may("workflows.list") })
  const queue = useQueue()
  const [isSetting, setSetting] = useState(false)
  const [count, setCount] = useState(shownAtOnce)
  const all = data?.workflows ?? []
  const found = all.find((one) => one.workflow === workflow)
  const named = workflow === undefined ? undefined : { ...none, workflow, ...found }
  const actions = (
    <>
      {may("workflows.set") && (
        <Button onClick={() => setSetting(true)}>{named === undefined ? "Limit a workflow…" : "Set limits…"}</Button>
      )}
      {found !== undefined && may("workflows.delete") && (
        <DeleteButton
          label="Delete the limits"
          title={`Delete the limits of ${workflow}?`}
          submit="Delete limits"
          onConfirm={() => call("workflows.delete", { workflow: workflow! })}
        >
          <p>Its jobs stay. From now on, as many run at once as workers claim.</p>
        </DeleteButton>
      )}
    </>
  )
  const waiting = new Map(queue?.workflows.map((one) => [one.workflow, one]))
  const limited = new Map(all.map((one) => [one.workflow, one]))
  const names = [...new Set([...waiting.keys(), ...limited.keys()])]
  const rows: ReadonlyArray<Settings & Pick<Workflow, "workflow">> =
    named === undefined
      ? names.slice(0, count).map((name) => ({ ...none, workflow: name, ...limited.get(name) }))
      : [named]
  const noJobs = queue?.is_all === true ? { queued: 0, delayed: 0, running: 0, is_all: true } : undefined
  const jobsOf = (name: string) => waiting.get(name) ?? noJobs
  const setting = isSetting && <SetLimits workflow={workflow} of={found ?? none} onClose={() => setSetting(false)} />
  if (data === undefined || (named !== undefined && found === undefined && !hasJobs)) return null
  if (named === undefined && names.length === 0) {
    return (
      <div>
        {actions}
        {setting}
      </div>
    )
  }
  return (
    <>
      <ListCard
        title={named === undefined ? "Workflows" : "Limits"}
        actions={actions}
        caption="Workflows"
        rows={rows}
        rowKey={({ workflow }) => workflow}
        empty={null}
        more={named === undefined && names.length > count ? () => setCount(count + shownAtOnce) : undefined}
        columns={[
          {
            title: "Workflow",
            link: ({ workflow }) => [orgPath(orgId, `/jobs?workflow=${encodeURIComponent(workflow)}`), workflow],
          },
          {
            title: "Waiting",
            cell: ({ workflow }) => {
              const jobs = jobsOf(workflow)
              if (jobs === undefined) return "–"
              const { delayed, is_all, queued } = jobs
              return `${countText(queued, is_all)}${delayed === 0 ? "" : `, ${countText(delayed, is_all)} later`}`
            },
          },
          {
            title: "Running",
            cell: ({ concurrency, workflow }) => {
              const jobs = jobsOf(workflow)
              const running = jobs === undefined ? "–" : countText(jobs.running, jobs.is_all)
              return concurrency === null ? running : `${running} of ${numberText(concurrency)}`
            },
          },
          { title: "For each key", align: "end", cell: (one) => one.concurrency_per_key ?? "–" },
          { title: "Rate", align: "words", cell: ({ rate }) => (rate === null ? "–" : rateText(rate)) },
          { title: "Retries", align: "words", cell: ({ retry }) => (retry === null ? "–" : retryText(retry)) },
          {
            title: "Expiry",
            align: "fit",
            isExtra: true,
            cell: ({ expires_in_seconds: after }) => (after === null ? "–" : secondsText(after)),
          },
        ]}
      />
      {setting}
    </>
  )
}

const count = { ...number, min: 1, step: 1 }
const seconds = { ...count, hint: "Seconds." }

/** The limits of a workflow. */
const limits = {
  workflow: { ...text, label: "Workflow", hint: "Its exact name.", required: true, maxLength: 255 },
  concurrency: { ...count, label: "Jobs at once" },
  concurrency_per_key: { ...count, label: "At once for each key" },
  limit: { ...count, label: "Starts" },
  window_seconds: {
    ...count,
    label: "per … seconds",
    read: (value: number | null | undefined) => String(value ?? 60),
  },
  attempts: { ...count, label: "Attempts" },
  base_seconds: { ...seconds, label: "First wait", hint: "Seconds; it doubles." },
  max_seconds: { ...seconds, label: "Longest wait" },
  expires_in_seconds: { ...seconds, label: "Expiry", hint: "Seconds without a claim." },
  delays: {
    label: "Waits before retries",
    hint: "Seconds, with commas; the last one repeats. In place of the first wait.",
    placeholder: "5, 60, 600",
    read: (value: ReadonlyArray<number> | null | undefined) => value?.join(", ") ?? "",
    write: (text: string) => (text.trim() === "" ? null : linesOf(text).map(Number)),
  },
}

const given = (fields: object) => Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null))

const SetLimits = ({ of, onClose, workflow }: { of: Settings; onClose: () => void; workflow: string | undefined }) => {
  const call = useCall()
  const { field, fields, values } = useFields(limits, { ...of, ...of.rate, ...of.retry, workflow })
  const { attempts, base_seconds, delays, limit, max_seconds, window_seconds, workflow: name, ...others } = values
  const retry = given({ attempts, base_seconds, max_seconds, delays })
  const settings = given({
    ...others,
    rate: limit === null ? null : given({ limit, window_seconds }),
    retry: Object.keys(retry).length === 0 ? null : retry,
  })
  return (
    <FormDialog
      title={workflow === undefined ? "Limit a workflow" : `Limits of ${workflow}`}
      submit="Set limits"
      isReady={Object.keys(settings).length > 0}
      why="Set at least one limit."
      onSubmit={() => call("workflows.set", { workflow: name, ...settings })}
      onClose={onClose}
    >
      <p class="quiet">
        They hold from now on, over all replicas, and for queued jobs too. An empty field is unlimited.
      </p>
      {workflow === undefined && field("workflow")}
      <div class="grid-fields">
        {fields("concurrency", "concurrency_per_key", "limit", "window_seconds")}
        {fields("attempts", "base_seconds", "max_seconds", "expires_in_seconds")}
      </div>
      {field("delays")}
    </FormDialog>
  )
}
