import { Argument, Command, Flag } from "effect/cli"
import { call } from "./call.ts"
import { given } from "./flags.ts"
import { table } from "./output.ts"

const lease = Flag.Int("lease").pipe(
  Flag.withDescription("How long the claim lasts, in seconds (default: 60)"),
  Flag.optional,
)

/** Claims jobs. */
export const claim = Command.make(
  "claim",
  {
    workflow: Flag.String("workflow").pipe(Flag.withDescription("Only jobs of this workflow"), Flag.optional),
    limit: Flag.Int("limit").pipe(Flag.withDescription("The maximum number of jobs (default: 1)"), Flag.optional),
    lease,
    wait: Flag.Int("wait").pipe(
      Flag.withDescription("How long to wait for a job, in seconds (default: 0)"),
      Flag.optional,
    ),
  },
  ({ lease, limit, wait, workflow }) =>
    call(
      (gatehouse) =>
        gatehouse.jobs.claim({ payload: given({ workflow, limit, lease_seconds: lease, wait_seconds: wait }) }),
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
export const heartbeat = Command.make(
  "heartbeat",
  { job: Argument.String("job").pipe(Argument.withDescription("The job's id")), lease },
  ({ job, lease }) =>
    call(
      (gatehouse) => gatehouse.jobs.heartbeat({ payload: { job_id: job, ...given({ lease_seconds: lease }) } }),
      () => ({ out: "", note: `The lease of the job ${job} is extended.` }),
    ),
).pipe(Command.withDescription("Extend the lease of a claimed job"))
