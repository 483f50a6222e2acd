import { useState } from "preact/hooks"
import type { ResponseBody } from "../../client/Operations.ts"
import { useCall, useData } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { Button } from "../../components/Button.tsx"
import { AskButton, FormDialog } from "../../components/Dialog.tsx"
import { Field, Input, linesOf } from "../../components/Form.tsx"
import { Card } from "../../components/Page.tsx"
import { Table } from "../../components/Table.tsx"
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
        <AskButton
          look="danger"
          icon="trash"
          label="Delete the limits"
          isDangerous
          title={`Delete the limits of ${workflow}?`}
          submit="Delete limits"
          onConfirm={() => call("workflows.delete", { workflow: workflow! })}
        >
          <p>Its jobs stay. From now on, as many run at once as workers claim.</p>
        </AskButton>
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
      <Card title={named === undefined ? "Workflows" : "Limits"} isPadded={false} actions={actions}>
        <Table
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
      </Card>
      {setting}
    </>
  )
}

const textOf = (value: number | null | undefined) => (value == null ? "" : String(value))

const textsOf = ({ rate, retry, ...settings }: Settings) => ({
  concurrency: textOf(settings.concurrency),
  perKey: textOf(settings.concurrency_per_key),
  limit: textOf(rate?.limit),
  window: textOf(rate?.window_seconds ?? 60),
  attempts: textOf(retry?.attempts),
  delays: retry?.delays?.join(", ") ?? "",
  base: textOf(retry?.base_seconds),
  max: textOf(retry?.max_seconds),
  expires: textOf(settings.expires_in_seconds),
})
type Texts = ReturnType<typeof textsOf>

/** The settings that a form asks for: an empty field is none. The service says what is wrong with one. */
const settingsOf = (texts: Texts) => {
  const given = <Name extends string>(fields: Readonly<Record<Name, string>>) =>
    Object.fromEntries(
      Object.entries<string>(fields).flatMap(([name, text]) => (text === "" ? [] : [[name, Number(text)] as const])),
    ) as Readonly<Record<Name, number>>
  const delays = linesOf(texts.delays).map(Number)
  const retry = {
    ...given({ attempts: texts.attempts, base_seconds: texts.base, max_seconds: texts.max }),
    ...(delays.length > 0 && { delays }),
  }
  return {
    ...given({ concurrency: texts.concurrency, concurrency_per_key: texts.perKey, expires_in_seconds: texts.expires }),
    ...(texts.limit !== "" && { rate: given({ limit: texts.limit, window_seconds: texts.window }) }),
    ...(Object.keys(retry).length > 0 && { retry }),
  }
}

const SetLimits = ({ of, onClose, workflow }: { of: Settings; onClose: () => void; workflow: string | undefined }) => {
  const call = useCall()
  const [name, setName] = useState(workflow ?? "")
  const [texts, setTexts] = useState(() => textsOf(of))
  const settings = settingsOf(texts)
  const number = (field: keyof Texts, label: string, hint?: string) => (
    <Field label={label} hint={hint}>
      <Input
        type="number"
        min={1}
        step={1}
        value={texts[field]}
        onInput={(text) => setTexts({ ...texts, [field]: text })}
      />
    </Field>
  )
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
      {workflow === undefined && (
        <Field label="Workflow" hint="Its exact name.">
          <Input value={name} onInput={setName} required maxLength={255} autocomplete="off" />
        </Field>
      )}
      <div class="grid-fields">
        {number("concurrency", "Jobs at once")}
        {number("perKey", "At once for each key")}
        {number("limit", "Starts")}
        {number("window", "per … seconds")}
        {number("attempts", "Attempts")}
        {number("base", "First wait", "Seconds; it doubles.")}
        {number("max", "Longest wait", "Seconds.")}
        {number("expires", "Expiry", "Seconds without a claim.")}
      </div>
      <Field
        label="Waits before retries"
        hint="Seconds, with commas; the last one repeats. In place of the first wait."
      >
        <Input
          value={texts.delays}
          onInput={(delays) => setTexts({ ...texts, delays })}
          placeholder="5, 60, 600"
          autocomplete="off"
        />
      </Field>
    </FormDialog>
  )
}
