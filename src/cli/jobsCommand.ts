import { DateTime, Effect, Option, Struct } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import {
  ClaimJobs,
  CompleteJob,
  CreateJob,
  FailJob,
  HeartbeatJob,
  JobStatus,
  LogJob,
  StepJob,
} from "../domain/jobs/Job.ts"
import { CancelFilter, RetryFilter, RetryJobs } from "../domain/jobs/JobSweeps.ts"
import { said, table, usage } from "./output.ts"
import { actFor, actForFlag, given, page, payloadFlags } from "./flags.ts"
import { call, callPages } from "./call.ts"
import { withCallback } from "./secretInput.ts"

const job = Argument.String("job").pipe(Argument.withDescription("The job's id"))

const claim = Command.make(
  "claim",
  payloadFlags(Struct.omit(ClaimJobs.fields, ["workflows"]), { lease_seconds: "lease", wait_seconds: "wait" }),
  (flags) =>
    call(
      (gatehouse) => gatehouse.jobs.claim({ payload: given(flags) }),
      ({ jobs }) => ({
        out: table(
          ["JOB", "WORKFLOW", "ATTEMPT", "LEASE ENDS", "INPUT"],
          jobs.map((one) => [one.job_id, one.workflow, one.attempt, one.lease_expires_at, JSON.stringify(one.input)]),
        ),
        note: jobs.length === 0 ? "No job is queued." : undefined,
      }),
    ),
).pipe(Command.withDescription("Claim queued jobs; finish them before the lease ends"))

const heartbeat = Command.make(
  "heartbeat",
  {
    job,
    ...payloadFlags(Struct.omit(HeartbeatJob.fields, ["job_id", "lines"]), { lease_seconds: "lease" }),
  },
  ({ job, ...flags }) =>
    call(
      (gatehouse) => gatehouse.jobs.heartbeat({ payload: { job_id: job, ...given(flags) } }),
      () => ({ out: "", note: `The lease of the job ${job} is extended.` }),
    ),
).pipe(Command.withDescription("Extend the lease of a claimed job"))

const list = Command.make(
  "list",
  {
    status: Flag.Literals("status", JobStatus.literals).pipe(
      Flag.withDescription("Only jobs with this status"),
      Flag.optional,
    ),
    ...payloadFlags(RetryFilter.fields),
    ...page,
  },
  ({ error, since, status, until, workflow, ...page }) =>
    callPages(
      page,
      (gatehouse, payload) =>
        gatehouse.jobs.list({ payload: { ...payload, ...given({ status, workflow, error, since, until }) } }),
      ({ jobs, next_cursor }) => ({
        table: table(
          ["JOB", "WORKFLOW", "STATE", "ATTEMPT", "PROGRESS", "ERROR", "CREATED"],
          jobs.map((one) => [
            one.job_id,
            one.workflow,
            one.status,
            `${one.attempt}/${one.max_attempts}`,
            one.progress === null ? null : `${Math.round(one.progress * 100)} %`,
            one.error,
            one.created_at,
          ]),
        ),
        next: next_cursor,
      }),
    ),
).pipe(Command.withDescription("List jobs, newest first"))

const get = Command.make("get", { job }, ({ job }) =>
  call(
    (gatehouse) => gatehouse.jobs.get({ payload: { job_id: job } }),
    (found) => ({
      out: table(
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
  ),
).pipe(Command.withDescription("Show a job"))

const log = Command.make(
  "log",
  {
    job,
    text: Argument.String("text").pipe(Argument.withDescription("The line")),
    ...payloadFlags(Struct.pick(LogJob.fields, ["attempt"])),
    level: Flag.Literals("level", ["debug", "info", "warn", "error"]).pipe(
      Flag.withDescription("How important the line is; default info"),
      Flag.optional,
    ),
  },
  Effect.fnUntraced(function* ({ attempt, job, level, text }) {
    if (Option.isNone(attempt)) return yield* usage("Use --attempt, the attempt of the claim")
    const lines = [{ text, ...given({ level }) }]
    yield* call((gatehouse) => gatehouse.jobs.log({ payload: { job_id: job, attempt: attempt.value, lines } }), said)
  }),
).pipe(Command.withDescription("Keep a line with a running job"))

const logs = Command.make("logs", { job }, ({ job }) =>
  call(
    (gatehouse) => gatehouse.jobs.logs({ payload: { job_id: job } }),
    ({ lines }) => ({ out: lines.map(({ at, level, text }) => `${at} ${level.padEnd(5)} ${text}`).join("\n") }),
  ),
).pipe(Command.withDescription("Show what the workers of a job have logged"))

const step = Command.make(
  "step",
  {
    job,
    name: Argument.String("name").pipe(Argument.withDescription("The name of the finished step")),
    ...payloadFlags(Struct.pick(StepJob.fields, ["attempt", "result"])),
  },
  Effect.fnUntraced(function* ({ attempt, job, name, result }) {
    if (Option.isNone(attempt)) return yield* usage("Use --attempt, the attempt of the claim")
    yield* call(
      (gatehouse) =>
        gatehouse.jobs.step({ payload: { job_id: job, attempt: attempt.value, name, ...given({ result }) } }),
      said,
    )
  }),
).pipe(Command.withDescription("Keep the result of a finished step with a running job"))

const oneJob = Argument.optional(job)
const dryRun = Flag.Boolean("dry-run").pipe(Flag.withDescription("Only count"), Flag.optional)

/** The payload of a change of one job, or of those that flags select. */
const target = <F extends object>(job: Option.Option<string>, filter: F, dryRun: Option.Option<boolean>) =>
  Option.match(job, {
    onSome: (job_id) => ({ job_id, ...given({ dry_run: dryRun }) }),
    onNone: () => ({ filter, ...given({ dry_run: dryRun }) }),
  })

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

const cancel = Command.make(
  "cancel",
  { job: oneJob, ...payloadFlags(CancelFilter.fields), dryRun },
  ({ dryRun, job, ...filter }) =>
    call((gatehouse) => gatehouse.jobs.cancel({ payload: target(job, given(filter), dryRun) }), showChanged),
).pipe(
  Command.withDescription("Cancel a queued or running job, or in the background all that the flags select"),
  Command.withExamples([{ command: "gatehouse jobs cancel --workflow nightly-report --status queued --dry-run" }]),
)

const retry = Command.make(
  "retry",
  { job: oneJob, ...payloadFlags({ input: RetryJobs.fields.input, ...RetryFilter.fields }), dryRun },
  ({ dryRun, input, job, ...filter }) =>
    call(
      (gatehouse) => gatehouse.jobs.retry({ payload: { ...target(job, given(filter), dryRun), ...given({ input }) } }),
      showChanged,
    ),
).pipe(
  Command.withDescription("Queue a failed job again, or in the background all that the flags select"),
  Command.withExamples([
    { command: "gatehouse jobs retry 01KAHBMKZ3D2X7S5QN8W4V6R9T" },
    { command: "gatehouse jobs retry --workflow nightly-report --error 'connect ECONNREFUSED' --dry-run" },
  ]),
)

const sweeps = Command.make("sweeps", {}, () =>
  call(
    (gatehouse) => gatehouse.jobs.sweeps({ payload: {} }),
    ({ sweeps }) => ({
      out: table(
        ["SWEEP", "WHAT", "STARTED", "DONE", "OF", "FILTER"],
        sweeps.map((one) => [one.sweep_id, one.kind, one.created_at, one.done, one.count, JSON.stringify(one.filter)]),
      ),
    }),
  ),
).pipe(Command.withDescription("List the retries and cancellations by a filter that are running"))

const cancelSweep = Command.make(
  "cancel-sweep",
  { sweep: Argument.String("sweep").pipe(Argument.withDescription("The id of the retry or cancellation")) },
  ({ sweep }) => call((gatehouse) => gatehouse.jobs.endSweep({ payload: { sweep_id: sweep } }), said),
).pipe(Command.withDescription("Cancel the rest of a retry or cancellation by a filter"))

const causes = Command.make(
  "causes",
  payloadFlags(Struct.pick(RetryFilter.fields, ["workflow", "since", "until"])),
  (filter) =>
    call(
      (gatehouse) => gatehouse.jobs.causes({ payload: given(filter) }),
      ({ causes }) => ({
        out: table(
          ["JOBS", "WORKFLOW", "ERROR", "LATEST", "AT"],
          causes.map((one) => [one.jobs, one.workflow, one.error, one.latest.job_id, one.latest.at]),
        ),
      }),
    ),
).pipe(Command.withDescription("Group the newest failed jobs by workflow and message, the most first"))

const queue = Command.make("queue", {}, () =>
  call(
    (gatehouse) => gatehouse.jobs.queue({ payload: {} }),
    ({ created, is_all, keys, oldest_due_at, workflows }) => ({
      out: [
        table(
          ["WORKFLOW", "QUEUED", "DELAYED", "RUNNING", "COUNTED"],
          workflows.map((one) => [one.workflow, one.queued, one.delayed, one.running, one.is_all ? "all" : "at least"]),
        ),
        ...(keys.length === 0
          ? []
          : [
              table(
                ["KEY", "WORKFLOW", "QUEUED", "RUNNING"],
                keys.map((one) => [one.concurrency_key, one.workflow, one.queued, one.running]),
              ),
            ]),
      ],
      note: [
        oldest_due_at === null ? "No job is due." : `The oldest job is due since ${DateTime.formatIso(oldest_due_at)}.`,
        `Created in the last five minutes: ${created < 10_000 ? created : "10,000 or more"}.`,
        ...(is_all ? [] : ["There may be other workflows with unfinished jobs."]),
      ].join(" "),
    }),
  ),
).pipe(Command.withDescription("Show how many jobs wait and run, by workflow and concurrency key, and since when"))

const create = Command.make(
  "create",
  {
    workflow: Argument.String("workflow").pipe(Argument.withDescription("The name of the kind of work")),
    ...payloadFlags(Struct.omit(CreateJob.fields, ["workflow", "callback_secret"])),
  },
  ({ callback_url, workflow, ...flags }) =>
    withCallback(callback_url, (callback) =>
      call(
        (gatehouse) => gatehouse.jobs.create({ payload: { workflow, ...given(flags), ...callback } }),
        ({ created, job_id }) => ({
          out: job_id,
          note: created
            ? `The job is queued. To finish it: gatehouse jobs finish ${job_id}`
            : "A job with this key already exists: nothing else is queued.",
        }),
      ),
    ),
).pipe(
  Command.withDescription("Create a job; a worker claims it, or you finish it"),
  Command.withExamples([{ command: "gatehouse jobs create nightly-report" }]),
)

const finish = Command.make(
  "finish",
  {
    job,
    ...payloadFlags(Struct.omit({ ...CompleteJob.fields, ...FailJob.fields }, ["job_id"])),
  },
  Effect.fnUntraced(function* ({ attempt, error, job, mapped_stack, result, retry }) {
    if (Option.isSome(error) && Option.isSome(result)) {
      return yield* usage("Use --result or --error, not both")
    }
    if (Option.isNone(error) && (Option.isSome(mapped_stack) || Option.isSome(retry))) {
      return yield* usage("--mapped-stack and --retry need --error")
    }
    const report = { job_id: job, ...given({ attempt }) }
    yield* call(
      (gatehouse) =>
        Option.isSome(error)
          ? gatehouse.jobs.fail({ payload: { ...report, error: error.value, ...given({ mapped_stack, retry }) } })
          : gatehouse.jobs.complete({ payload: { ...report, ...given({ result }) } }),
      ({ message }) => ({ out: "", note: `${job}: ${message}` }),
    )
  }),
).pipe(
  Command.withDescription("Complete a job, or fail it with --error, and queue its event"),
  Command.withExamples([
    { command: `gatehouse jobs finish 01KAHBMKZ3D2X7S5QN8W4V6R9T --result '{"rows":3}'` },
    { command: "gatehouse jobs finish 01KAHBMKZ3D2X7S5QN8W4V6R9T --error 'out of memory'" },
  ]),
)

/** Creates, shows and ends jobs. */
export const jobs = Command.make("jobs").pipe(
  Command.withDescription("Jobs and their outcomes: of the API key, or of --org"),
  Command.withSharedFlags(actForFlag),
  Command.withSubcommands([
    create,
    list,
    get,
    claim,
    heartbeat,
    finish,
    cancel,
    retry,
    causes,
    queue,
    sweeps,
    cancelSweep,
    log,
    logs,
    step,
  ]),
  actFor,
)
