import { Argument, Command, Flag } from "effect/cli"
import { JobStatus } from "../domain/jobs/Job.ts"
import { call, callPages } from "./call.ts"
import { given, page } from "./flags.ts"
import { table } from "./output.ts"

const job = Argument.String("job").pipe(Argument.withDescription("The job's id"))

/** Lists jobs. */
export const list = Command.make(
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
export const get = Command.make("get", { job }, ({ job }) =>
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
export const cancel = Command.make("cancel", { job }, ({ job }) =>
  call(
    (gatehouse) => gatehouse.jobs.cancel({ payload: { job_id: job } }),
    () => ({ out: "", note: `The job ${job} is canceled. It makes no event.` }),
  ),
).pipe(Command.withDescription("Cancel a queued or running job, without an event"))
