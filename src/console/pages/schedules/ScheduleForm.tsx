import { useState } from "preact/hooks"
import { Button } from "../../components/Button.tsx"
import { FormDialog } from "../../components/Dialog.tsx"
import { readersZone } from "../../components/Chart.tsx"
import { Check, Field, Input, TextArea } from "../../components/Form.tsx"
import { parseJson } from "../../components/Code.tsx"
import { toast } from "../../components/Toasts.tsx"
import { useCall } from "../../client/queries.ts"
import type { ResponseBody } from "../../client/Operations.ts"
import { cronText } from "./cronText.ts"

export type Schedule = ResponseBody<"schedules.get">

interface Fields {
  readonly workflow: string
  readonly cron: string
  readonly timezone: string
  readonly input: string
  readonly skips: boolean
}

const examples = [
  ["*/15 * * * *", "Every 15 minutes"],
  ["0 * * * *", "Every hour"],
  ["0 4 * * *", "Every night at 4"],
  ["30 7 * * 1-5", "On weekdays at 7:30"],
  ["0 6 1 * *", "On the 1st at 6"],
] as const

const ScheduleFields = ({
  error,
  fields,
  set,
}: {
  readonly fields: Fields
  readonly error: string | undefined
  readonly set: (change: Partial<Fields>) => void
}) => (
  <>
    <Field label="Workflow" hint="The workflow of the jobs that it creates.">
      <Input
        value={fields.workflow}
        onInput={(workflow) => set({ workflow })}
        required
        maxLength={255}
        placeholder="nightly-report"
        autocomplete="off"
      />
    </Field>
    <div class="stack tight">
      <Field
        label="Times"
        hint={
          cronText(fields.cron) ??
          "A cron expression: minute, hour, day, month, weekday. Six fields begin with the second."
        }
      >
        <Input
          class="input mono"
          value={fields.cron}
          onInput={(cron) => set({ cron })}
          required
          maxLength={255}
          placeholder="0 4 * * *"
          spellcheck={false}
          autocomplete="off"
        />
      </Field>
      <div class="row">
        {examples.map(([cron, label]) => (
          <Button key={cron} isSmall onClick={() => set({ cron })}>
            {label}
          </Button>
        ))}
      </div>
    </div>
    <Field label="Time zone">
      <Input
        value={fields.timezone}
        onInput={(timezone) => set({ timezone })}
        required
        maxLength={64}
        spellcheck={false}
        autocomplete="off"
      />
    </Field>
    <Field label="Input of the jobs" hint="Any JSON. Empty: none." error={error}>
      <TextArea class="input short" value={fields.input} onInput={(input) => set({ input })} spellcheck={false} />
    </Field>
    <Check isChecked={fields.skips} onChange={(skips) => set({ skips })}>
      Skip a time while the last job of this schedule is queued or running.
    </Check>
  </>
)

interface ScheduleDialogProps {
  readonly title: string
  readonly submit: string
  readonly initial: Fields
  readonly onClose: () => void
  readonly onSubmit: (body: {
    readonly workflow: string
    readonly cron: string
    readonly timezone: string
    readonly overlap: "skip" | "allow"
    readonly input?: unknown
  }) => Promise<unknown>
}

const ScheduleDialog = ({ initial, onClose, onSubmit, submit, title }: ScheduleDialogProps) => {
  const [fields, setFields] = useState(initial)
  const json = fields.input.trim() === "" ? { value: initial.input === "" ? undefined : null } : parseJson(fields.input)
  return (
    <FormDialog
      title={title}
      submit={submit}
      isWide
      isReady={json.error === undefined}
      onClose={onClose}
      onSubmit={() =>
        onSubmit({
          workflow: fields.workflow,
          cron: fields.cron,
          timezone: fields.timezone,
          overlap: fields.skips ? "skip" : "allow",
          ...(json.value === undefined ? {} : { input: json.value }),
        })
      }
    >
      <ScheduleFields
        fields={fields}
        error={json.error}
        set={(change) => setFields((now) => ({ ...now, ...change }))}
      />
    </FormDialog>
  )
}

export const CreateSchedule = ({
  onClose,
  onDone,
}: {
  readonly onClose: () => void
  readonly onDone: (id: string) => void
}) => {
  const call = useCall()
  const [idempotencyKey] = useState(() => crypto.randomUUID())
  return (
    <ScheduleDialog
      title="Create a schedule"
      submit="Create schedule"
      initial={{ workflow: "", cron: "", timezone: readersZone, input: "", skips: false }}
      onClose={onClose}
      onSubmit={async (body) => {
        const { schedule_id } = await call("schedules.create", body, idempotencyKey)
        onDone(schedule_id)
      }}
    />
  )
}

export const EditSchedule = ({ onClose, schedule }: { readonly schedule: Schedule; readonly onClose: () => void }) => {
  const call = useCall()
  const { cron, input, overlap, schedule_id, timezone, workflow } = schedule
  return (
    <ScheduleDialog
      title="Edit the schedule"
      submit="Save"
      initial={{
        workflow,
        cron,
        timezone,
        input: input === null ? "" : JSON.stringify(input, null, 2),
        skips: overlap === "skip",
      }}
      onClose={onClose}
      onSubmit={async (body) => {
        await call("schedules.update", { schedule_id, ...body })
        toast("The schedule is changed.")
      }}
    />
  )
}
