import { useState } from "preact/hooks"
import { DateTime } from "../../components/DateTime.tsx"
import { Dialog } from "../../components/Dialog.tsx"
import { Field, Form, Input, TextArea } from "../../components/Form.tsx"
import { parseJson } from "../../components/jsonText.ts"
import { useCall } from "../../client/queries.ts"

interface CreateJobProps {
  readonly onClose: () => void
  readonly onCreated: (jobId: string) => void
}

/** Queues a job by hand. */
export const CreateJob = ({ onClose, onCreated }: CreateJobProps) => {
  const call = useCall()
  const [workflow, setWorkflow] = useState("")
  const [input, setInput] = useState("")
  const [priority, setPriority] = useState("0")
  const [runAt, setRunAt] = useState<string>()
  const [idempotencyKey] = useState(() => crypto.randomUUID())
  const json = input.trim() === "" ? {} : parseJson(input)
  return (
    <Dialog title="Create a job" onClose={onClose}>
      <Form
        submit="Create job"
        isReady={json.error === undefined}
        onCancel={onClose}
        onSubmit={async () => {
          const { job_id } = await call(
            "jobs.create",
            {
              workflow,
              priority: Number(priority),
              ...(json.value === undefined ? {} : { input: json.value }),
              ...(runAt === undefined ? {} : { run_at: runAt }),
            },
            idempotencyKey,
          )
          onClose()
          onCreated(job_id)
        }}
      >
        <Field label="Workflow" hint="Workers claim jobs by this name.">
          <Input
            value={workflow}
            onInput={setWorkflow}
            required
            maxLength={255}
            placeholder="nightly-report"
            autocomplete="off"
          />
        </Field>
        <Field label="Input" hint="Any JSON. Empty: none." error={json.error}>
          <TextArea value={input} onInput={setInput} spellcheck={false} placeholder={'{ "shop": "northwind" }'} />
        </Field>
        <div class="grid-3">
          <DateTime label="Not before" value={runAt} onChange={setRunAt} />
          <Field label="Priority" hint="−100 to 100; higher comes first.">
            <Input type="number" min={-100} max={100} required value={priority} onInput={setPriority} />
          </Field>
        </div>
      </Form>
    </Dialog>
  )
}
