import { Effect, Option, Schema } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { call } from "./call.ts"
import { usage } from "./CommandFailed.ts"
import { given } from "./flags.ts"

/** Any JSON value, out of a flag's text. */
const JsonText = Schema.fromJsonString(Schema.Unknown)

const create = Command.make(
  "create",
  {
    workflow: Argument.String("workflow").pipe(Argument.withDescription("What the job is a run of")),
    input: Flag.String("input").pipe(
      Flag.withDescription("What a worker that claims it is given, as JSON"),
      Flag.withSchema(JsonText),
      Flag.optional,
    ),
  },
  ({ input, workflow }) =>
    call(
      (gatehouse) => gatehouse.jobs.create({ payload: { workflow, ...given({ input }) } }),
      ({ job_id }) => ({ out: job_id, note: `The job is queued. To end it: gatehouse jobs finish ${job_id}` }),
    ),
).pipe(
  Command.withDescription("Create a job, for a worker to claim or for you to finish"),
  Command.withExamples([{ command: "gatehouse jobs create nightly-report" }]),
)

const finish = Command.make(
  "finish",
  {
    job: Argument.String("job").pipe(Argument.withDescription("The job's id")),
    result: Flag.String("result").pipe(
      Flag.withDescription("What came of it, as JSON"),
      Flag.withSchema(JsonText),
      Flag.optional,
    ),
    error: Flag.String("error").pipe(Flag.withDescription("Why it failed, in words"), Flag.optional),
  },
  Effect.fnUntraced(function* ({ error, job, result }) {
    if (Option.isSome(error) && Option.isSome(result)) {
      return yield* usage("A job has a --result or an --error, not both")
    }
    yield* call(
      (gatehouse) =>
        Option.isSome(error)
          ? gatehouse.jobs.fail({ payload: { job_id: job, error: error.value } })
          : gatehouse.jobs.complete({ payload: { job_id: job, ...given({ result }) } }),
      () => ({
        out: "",
        note: `The job ${job} ${Option.isSome(error) ? "has failed" : "is completed"}; its event is on its way, if it was not before.`,
      }),
    )
  }),
).pipe(
  Command.withDescription("Complete a job, or with --error fail it: its event is on its way then"),
  Command.withExamples([
    { command: `gatehouse jobs finish 01KAHBMKZ3D2X7S5QN8W4V6R9T --result '{"rows":3}'` },
    { command: "gatehouse jobs finish 01KAHBMKZ3D2X7S5QN8W4V6R9T --error 'out of memory'" },
  ]),
)

/** Creates and finishes jobs. */
export const jobs = Command.make("jobs").pipe(
  Command.withDescription("Jobs, whose end is told by webhook; GATEHOUSE_TOKEN must be an API key"),
  Command.withSubcommands([create, finish]),
)
