import { Effect, Option } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { actFor, actForFlag } from "./actFor.ts"
import { Timestamp } from "../domain/Schemas.ts"
import { call } from "./call.ts"
import { usage } from "./CommandFailed.ts"
import { given, JsonText } from "./flags.ts"
import { claim, heartbeat } from "./jobClaims.ts"
import { cancel, get, list } from "./jobQueries.ts"

const create = Command.make(
  "create",
  {
    workflow: Argument.String("workflow").pipe(Argument.withDescription("The name of the kind of work")),
    input: Flag.String("input").pipe(
      Flag.withDescription("The input for the worker, as JSON"),
      Flag.withSchema(JsonText),
      Flag.optional,
    ),
    priority: Flag.Int("priority").pipe(
      Flag.withDescription("Claims take a higher priority first, -100 to 100 (default: 0)"),
      Flag.optional,
    ),
    maxAttempts: Flag.Int("max-attempts").pipe(
      Flag.withDescription("How often the job is claimed at most, 1 to 20 (default: 3)"),
      Flag.optional,
    ),
    runAt: Flag.String("run-at").pipe(
      Flag.withDescription("Not before this time, for example 2027-01-31T00:00:00Z (default: now)"),
      Flag.withSchema(Timestamp),
      Flag.optional,
    ),
  },
  ({ maxAttempts, runAt, workflow, ...flags }) =>
    call(
      (gatehouse) =>
        gatehouse.jobs.create({
          payload: { workflow, ...given({ ...flags, max_attempts: maxAttempts, run_at: runAt }) },
        }),
      ({ job_id }) => ({ out: job_id, note: `The job is queued. To finish it: gatehouse jobs finish ${job_id}` }),
    ),
).pipe(
  Command.withDescription("Create a job; a worker claims it, or you finish it"),
  Command.withExamples([{ command: "gatehouse jobs create nightly-report" }]),
)

const finish = Command.make(
  "finish",
  {
    job: Argument.String("job").pipe(Argument.withDescription("The job's id")),
    result: Flag.String("result").pipe(
      Flag.withDescription("The result, as JSON"),
      Flag.withSchema(JsonText),
      Flag.optional,
    ),
    error: Flag.String("error").pipe(Flag.withDescription("Why the job failed, in words"), Flag.optional),
  },
  Effect.fnUntraced(function* ({ error, job, result }) {
    if (Option.isSome(error) && Option.isSome(result)) {
      return yield* usage("Use --result or --error, not both")
    }
    yield* call(
      (gatehouse) =>
        Option.isSome(error)
          ? gatehouse.jobs.fail({ payload: { job_id: job, error: error.value } })
          : gatehouse.jobs.complete({ payload: { job_id: job, ...given({ result }) } }),
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
