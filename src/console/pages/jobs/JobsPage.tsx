import { useState } from "preact/hooks"
import { useCall, usePages } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { State } from "../../components/Badge.tsx"
import { Button } from "../../components/Button.tsx"
import { parseJson } from "../../components/Code.tsx"
import { Dialog } from "../../components/Dialog.tsx"
import { Field, Form, Input, Select, TextArea } from "../../components/Form.tsx"
import { Card, Empty, Page } from "../../components/Page.tsx"
import { Table } from "../../components/Table.tsx"
import { DateTime, Time } from "../../components/Time.tsx"
import { Beside } from "../../navigation/Beside.tsx"
import { useOrg } from "../../navigation/org.ts"
import { Link, navigate, orgPath, useSearch, useLocation } from "../../navigation/router.tsx"
import { type Job, type JobStatus, jobStatuses } from "./job.ts"

const isStatus = (text: string | undefined): text is JobStatus => jobStatuses.some((status) => status === text)
const capitalized = (text: string) => text.slice(0, 1).toUpperCase() + text.slice(1)

/** How far a job is, in a few words. */
const Detail = ({ job }: { readonly job: Job }) => {
  if (job.status === "running") {
    const progress = job.progress === null ? "" : `${Math.round(job.progress * 100)} %`
    return <span class="truncate-2">{[progress, job.note].filter(Boolean).join(" · ") || "–"}</span>
  }
  return <span class="truncate-2">{job.error ?? "–"}</span>
}

/** The jobs of an org, as they change. */
export default () => {
  const orgId = useOrg()
  const may = useMay()
  const [status, setStatus] = useSearch("status")
  const [workflow, setWorkflow] = useSearch("workflow")
  const [isCreating, setCreating] = useState(useLocation().search.has("new"))
  const filters = { ...(isStatus(status) && { status }), ...(workflow !== undefined && { workflow }) }
  const pages = usePages("jobs.list", { ...filters, limit: 50 }, ({ jobs }) => jobs, {
    keepsPrevious: true,
    rowKey: ({ job_id }) => job_id,
  })
  const create = may("jobs.create") && (
    <Button look="primary" icon="plus" onClick={() => setCreating(true)}>
      Create job
    </Button>
  )
  return (
    <Page
      title="Jobs"
      intro="Work that a worker claims. The end of a job makes an event, which goes to the endpoints; j opens a job beside the list."
      actions={create}
    >
      <div class="filters">
        <Field label="Status">
          <Select
            value={status ?? ""}
            onInput={setStatus}
            options={[
              { value: "", label: "All" },
              ...jobStatuses.map((value) => ({ value, label: capitalized(value) })),
            ]}
          />
        </Field>
        <Field label="Workflow">
          <Input value={workflow ?? ""} onInput={setWorkflow} placeholder="Its exact name" autocomplete="off" />
        </Field>
      </div>
      <Beside list={pages} noun="job" rowKey={({ job_id }) => job_id} pathOf={(id) => orgPath(orgId, `/jobs/${id}`)}>
        {(opened) => (
          <Card isPadded={false}>
            <Table
              caption="Jobs"
              {...pages}
              {...opened}
              rowKey={({ job_id }) => job_id}
              empty={
                <Empty icon="gear" title={Object.keys(filters).length > 0 ? "No job matches" : "No job yet"}>
                  <p>Your service creates jobs, a schedule does, or you do here. A worker claims and finishes them.</p>
                  {create}
                </Empty>
              }
              columns={[
                {
                  title: "Workflow",
                  cell: ({ job_id, workflow }) => (
                    <Link class="main" to={orgPath(orgId, `/jobs/${job_id}`)}>
                      {workflow}
                    </Link>
                  ),
                },
                { title: "Status", align: "fit", cell: ({ status }) => <State of={status} /> },
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
          </Card>
        )}
      </Beside>
      {isCreating && (
        <CreateJob
          onClose={() => setCreating(false)}
          onCreated={(jobId) => navigate(orgPath(orgId, `/jobs/${jobId}`))}
        />
      )}
    </Page>
  )
}

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
