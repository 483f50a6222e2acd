import type { Args, ResponseBody } from "../../client/Operations.ts"
import { useCall } from "../../client/queries.ts"
import { Button } from "../../components/Button.tsx"
import { readersZone } from "../../components/Chart.tsx"
import { FormDialog } from "../../components/Dialog.tsx"
import { flag, json, text, useFields } from "../../components/Fields.tsx"
import { cronText } from "./cronText.ts"

export type Schedule = ResponseBody<"schedules.get">

const settings = {
  workflow: {
    ...text,
    label: "Workflow",
    hint: "The workflow of the jobs that it creates.",
    required: true,
    maxLength: 255,
    placeholder: "nightly-report",
  },
  cron: {
    ...text,
    label: "Times",
    class: "input mono",
    required: true,
    maxLength: 255,
    placeholder: "0 4 * * *",
    spellcheck: false,
  },
  timezone: { ...text, label: "Time zone", required: true, maxLength: 64, spellcheck: false },
  input: { ...json, label: "Input of the jobs", hint: "Any JSON. Empty: none." },
  skips: { ...flag, label: "Skip a time while the last job of this schedule is queued or running." },
}

const examples = [
  ["*/15 * * * *", "Every 15 minutes"],
  ["0 * * * *", "Every hour"],
  ["0 4 * * *", "Every night at 4"],
  ["30 7 * * 1-5", "On weekdays at 7:30"],
  ["0 6 1 * *", "On the 1st at 6"],
] as const

const timesHint = "A cron expression: minute, hour, day, month, weekday. Six fields begin with the second."

interface ScheduleFormProps {
  /** Absent: a new one. */
  readonly schedule?: Schedule
  readonly onClose: () => void
  /** Called with the id of a new one. */
  readonly onDone?: (id: string) => void
}

/** Creates a schedule, or changes one. */
export const ScheduleForm = ({ onClose, onDone, schedule }: ScheduleFormProps) => {
  const call = useCall()
  const stored = schedule && { ...schedule, skips: schedule.overlap === "skip" }
  const form = useFields(settings, { timezone: readersZone, ...stored })
  const save = async () => {
    const { changes, values } = form
    // Of a change only what differs: somebody else may have changed the rest.
    const { input: _, skips, ...given } = schedule === undefined ? values : changes
    const overlap = skips !== undefined && { overlap: skips ? ("skip" as const) : ("allow" as const) }
    const input = "input" in changes && { input: values.input ?? null }
    const body = { ...given, ...input, ...overlap }
    if (schedule === undefined) {
      onDone?.((await call("schedules.create", body as Args<"schedules.create">, { isOnce: true })).schedule_id)
    } else {
      const change = { ...body, schedule_id: schedule.schedule_id } as Args<"schedules.update">
      await call("schedules.update", change, { said: "The schedule is changed." })
    }
  }
  return (
    <FormDialog
      title={schedule === undefined ? "Create a schedule" : "Edit the schedule"}
      submit={schedule === undefined ? "Create schedule" : "Save"}
      isWide
      isReady={form.isValid && (schedule === undefined || Object.keys(form.changes).length > 0)}
      onClose={onClose}
      onSubmit={save}
    >
      {form.field("workflow")}
      <div class="stack tight">
        {form.field("cron", { hint: cronText(form.texts.cron) ?? timesHint })}
        <div class="row">
          {examples.map(([cron, label]) => (
            <Button key={cron} isSmall onClick={() => form.set({ cron })}>
              {label}
            </Button>
          ))}
        </div>
      </div>
      {form.fields("timezone", "input", "skips")}
    </FormDialog>
  )
}
