import { DateTime, Option, Struct } from "effect"
import { Flag } from "effect/cli"
import { FailJob } from "../domain/jobs/Job.ts"
import { call } from "./callOperation.ts"
import { given, payloadFlags, tenantGroup, textArgument } from "./flags.ts"
import { op } from "./operation.ts"
import { columns, plain, table, usage } from "./output.ts"
import { withCallback } from "./secretInput.ts"

const one = { args: { job: "job_id" } } as const

interface Changed {
  readonly count?: number
  readonly message: string
  readonly sweep_id?: string | null
}
/** Prints what was begun, or counted; of one job that was named, there is nothing to print. */
const showChanged = ({ count, message, sweep_id }: Changed) => ({
  out: sweep_id ?? String(count ?? ""),
  note: message,
})

const finished = ({ message }: { readonly message: string }, { job_id }: { readonly job_id: string }) =>
  `${job_id}: ${message}`

export const jobs = tenantGroup("jobs", "Jobs and their outcomes", [
  op("jobs.create", {
    args: { workflow: "workflow" },
    examples: ["jobs create nightly-report"],
    omit: ["callback_secret"],
    run: withCallback,
    show: ({ created, job_id }) => ({
      out: job_id,
      note: created
        ? `The job is queued. To finish it: gatehouse jobs finish ${job_id}`
        : "A job with this key already exists: nothing else is queued.",
    }),
  }),
  op("jobs.list", {
    show: ({ jobs }) =>
      columns(jobs, {
        JOB: "job_id",
        WORKFLOW: "workflow",
        STATE: "status",
        ATTEMPT: ({ attempt, max_attempts }) => `${attempt}/${max_attempts}`,
        PROGRESS: ({ progress }) => (progress === null ? null : `${Math.round(progress * 100)} %`),
        ERROR: "error",
        CREATED: "created_at",
      }),
  }),
  op("jobs.get", {
    ...one,
    show: (found) =>
      table(
        ["FIELD", "VALUE"],
        [
          ["state", found.status],
          ["workflow", found.workflow],
          ["attempt", `${found.attempt} of ${found.max_attempts}`],
          ["priority", found.priority],
          ["run at", found.run_at],
          ["lease until", found.lease_expires_at],
          ["progress", found.progress],
          ["note", found.note],
          ["input", JSON.stringify(found.input)],
          ["result", JSON.stringify(found.result)],
          ["error", found.error],
          ...found.attempt_log.map((one) => [
            `attempt ${one.attempt}`,
            [DateTime.formatIso(one.ended_at), one.error ?? "completed", one.note]
              .filter((text) => text !== null)
              .join(" · "),
          ]),
          ["created", found.created_at],
          ["finished", found.finished_at],
        ],
      ),
  }),
  op("jobs.claim", {
    omit: ["workflows"],
    flags: { lease_seconds: "lease", wait_seconds: "wait" },
    show: ({ jobs }) => ({
      out: columns(jobs, {
        JOB: "job_id",
        WORKFLOW: "workflow",
        ATTEMPT: "attempt",
        "LEASE ENDS": "lease_expires_at",
        INPUT: ({ input }) => JSON.stringify(input),
      }),
      note: jobs.length === 0 ? "No job is queued." : undefined,
    }),
  }),
  op("jobs.heartbeat", {
    ...one,
    omit: ["lines"],
    flags: { lease_seconds: "lease" },
    show: (_, { job_id }) => `The lease of the job ${job_id} is extended.`,
  }),
  op("jobs.complete", {
    ...one,
    name: "finish",
    about: "Complete a job, or fail it with --error, and queue its event",
    examples: [
      `jobs finish 01KAHBMKZ3D2X7S5QN8W4V6R9T --result '{"rows":3}'`,
      "jobs finish 01KAHBMKZ3D2X7S5QN8W4V6R9T --error 'out of memory'",
    ],
    more: payloadFlags(Struct.pick(FailJob.fields, ["error", "mapped_stack", "retry"])),
    run: (send, fields, { error, ...how }) => {
      const { result, ...job } = fields
      const failure = given(how)
      if (Option.isNone(error)) {
        return Object.keys(failure).length === 0 ? send(fields) : usage("--mapped-stack and --retry need --error")
      }
      if (result !== undefined) return usage("Use --result or --error, not both")
      const payload = { ...job, error: error.value, ...failure }
      return call(
        (gatehouse) => gatehouse.jobs.fail({ payload }),
        (body) => finished(body, job),
      )
    },
    show: finished,
  }),
  op("jobs.cancel", {
    ...one,
    about: "Cancel a queued or running job, or in the background all that the flags select",
    examples: ["jobs cancel --workflow nightly-report --status queued --dry-run"],
    show: showChanged,
  }),
  op("jobs.retry", {
    ...one,
    about: "Queue a failed job again, or in the background all that the flags select",
    examples: [
      "jobs retry 01KAHBMKZ3D2X7S5QN8W4V6R9T",
      "jobs retry --workflow nightly-report --error 'connect ECONNREFUSED' --dry-run",
    ],
    show: showChanged,
  }),
  op("jobs.causes", {
    show: ({ causes }) =>
      columns(causes, {
        JOBS: "jobs",
        WORKFLOW: "workflow",
        ERROR: "error",
        LATEST: ({ latest }) => latest.job_id,
        AT: ({ latest }) => latest.at,
      }),
  }),
  op("jobs.queue", {
    about: "Show how many jobs wait and run, by workflow and concurrency key, and since when",
    show: ({ created, is_all, keys, oldest_due_at, workflows }) => ({
      out: [
        columns(workflows, {
          WORKFLOW: "workflow",
          QUEUED: "queued",
          DELAYED: "delayed",
          RUNNING: "running",
          COUNTED: (one) => (one.is_all ? "all" : "at least"),
        }),
        ...(keys.length === 0
          ? []
          : [columns(keys, { KEY: "concurrency_key", WORKFLOW: "workflow", QUEUED: "queued", RUNNING: "running" })]),
      ],
      note: [
        oldest_due_at === null ? "No job is due." : `The oldest job is due since ${DateTime.formatIso(oldest_due_at)}.`,
        `Created in the last five minutes: ${created < 10_000 ? created : "10,000 or more"}.`,
        ...(is_all ? [] : ["There may be other workflows with unfinished jobs."]),
      ].join(" "),
    }),
  }),
  op("jobs.sweeps", {
    show: ({ sweeps }) =>
      columns(sweeps, {
        SWEEP: "sweep_id",
        WHAT: "kind",
        STARTED: "created_at",
        DONE: "done",
        OF: "count",
        FILTER: "filter",
      }),
  }),
  op("jobs.endSweep", { name: "cancel-sweep", args: { sweep: "sweep_id" } }),
  op("jobs.log", {
    ...one,
    omit: ["lines"],
    more: {
      text: textArgument("text", "The line"),
      level: Flag.Literals("level", ["debug", "info", "warn", "error"]).pipe(
        Flag.withDescription("How important the line is; default info"),
        Flag.optional,
      ),
    },
    run: (send, fields, { level, text }) => send({ ...fields, lines: [{ text, ...given({ level }) }] }),
  }),
  op("jobs.logs", {
    ...one,
    show: ({ lines }) => ({
      out: lines.map(({ at, level, text }) => `${DateTime.formatIso(at)} ${level.padEnd(5)} ${plain(text)}`).join("\n"),
    }),
  }),
  op("jobs.step", { args: { job: "job_id", name: "name" } }),
])
