import { Effect, Option, Struct } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { ClaimJobs, CompleteJob, CreateJob, FailJob, HeartbeatJob, JobStatus } from "../domain/jobs/Job.ts"
import { table, usage } from "./output.ts"
import { actFor, actForFlag, given, page, payloadFlags } from "./flags.ts"
import { call, callPages } from "./call.ts"
import { withCallback } from "./secretInput.ts"

/** Claims jobs. */
const claim = Command.make(
  "claim",
  {
    ...payloadFlags(Struct.omit(ClaimJobs.fields, ["workflows"]), { lease_seconds: "lease", wait_seconds: "wait" }),
  },
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

/** Extends the lease of a job. */
const heartbeat = Command.make(
  "heartbeat",
  {
    job: Argument.String("job").pipe(Argument.withDescription("The job's id")),
    ...payloadFlags(Struct.omit(HeartbeatJob.fields, ["job_id"]), { lease_seconds: "lease" }),
  },
  ({ job, ...flags }) =>
    call(
      (gatehouse) => gatehouse.jobs.heartbeat({ payload: { job_id: job, ...given(flags) } }),
      () => ({ out: "", note: `The lease of the job ${job} is extended.` }),
    ),
).pipe(Command.withDescription("Extend the lease of a claimed job"))

const job = Argument.String("job").pipe(Argument.withDescription("The job's id"))

/** Lists jobs. */
const list = Command.make(
  "list",
  {
    status: Flag.Literals("status", JobStatus.literals).pipe(
      Flag.withDescription("Only jobs with this status"),
      Flag.optional,
    ),
    workflow: Flag.String("workflow").pipe(Flag.withDescription("Only jobs of this workflow"), Flag.optional),
    ...page,
  },
  ({ status, workflow, ...page }) =>
    callPages(
      page,
      (gatehouse, payload) => gatehouse.jobs.list({ payload: { ...payload, ...given({ status, workflow }) } }),
      ({ jobs, next_cursor }) => ({
        table: table(
          ["JOB", "WORKFLOW", "STATUS", "ATTEMPT", "PROGRESS", "ERROR", "CREATED"],
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

/** Shows a job. */
const get = Command.make("get", { job }, ({ job }) =>
  call(
    (gatehouse) => gatehouse.jobs.get({ payload: { job_id: job } }),
    (found) => ({
      out: table(
        ["FIELD", "VALUE"],
        [
          ["status", found.status],
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
          ["created", found.created_at],
          ["finished", found.finished_at],
        ],
      ),
    }),
  ),
).pipe(Command.withDescription("Show a job"))

/** Cancels a job. */
const cancel = Command.make("cancel", { job }, ({ job }) =>
  call(
    (gatehouse) => gatehouse.jobs.cancel({ payload: { job_id: job } }),
    () => ({ out: "", note: `The job ${job} is canceled. It makes no event.` }),
  ),
).pipe(Command.withDescription("Cancel a queued or running job, without an event"))

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
        ({ job_id }) => ({ out: job_id, note: `The job is queued. To finish it: gatehouse jobs finish ${job_id}` }),
      ),
    ),
).pipe(
  Command.withDescription("Create a job; a worker claims it, or you finish it"),
  Command.withExamples([{ command: "gatehouse jobs create nightly-report" }]),
)

const finish = Command.make(
  "finish",
  {
    job: Argument.String("job").pipe(Argument.withDescription("The job's id")),
    ...payloadFlags({
      ...Struct.omit(CompleteJob.fields, ["job_id"]),
      ...Struct.omit(FailJob.fields, ["job_id"]),
    }),
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
  Command.withSubcommands([create, list, get, claim, heartbeat, finish, cancel]),
  actFor,
)
