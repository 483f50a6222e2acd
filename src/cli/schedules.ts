import { Effect, Option } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { actFor, actForFlag, given, JsonText, wholeList } from "./flags.ts"
import { Overlap } from "../domain/jobs/JobSchedule.ts"
import { call } from "./call.ts"
import { more, table, usage } from "./output.ts"

const schedule = Argument.String("schedule").pipe(Argument.withDescription("The schedule's id"))

/** What a schedule has beside its workflow and cron. */
const fields = {
  timezone: Flag.String("timezone").pipe(
    Flag.withDescription("An IANA time zone, as in Europe/Berlin (default: UTC)"),
    Flag.optional,
  ),
  overlap: Flag.Literals("overlap", Overlap.literals).pipe(
    Flag.withDescription("skip: no job while the last one is unfinished (default: allow)"),
    Flag.optional,
  ),
  input: Flag.String("input").pipe(
    Flag.withDescription("The input of each job, as JSON"),
    Flag.withSchema(JsonText),
    Flag.optional,
  ),
  priority: Flag.Int("priority").pipe(Flag.withDescription("The priority of each job, -100 to 100"), Flag.optional),
}

const create = Command.make(
  "create",
  {
    workflow: Argument.String("workflow").pipe(Argument.withDescription("The workflow of the jobs")),
    cron: Argument.String("cron").pipe(Argument.withDescription("The cron expression, in quotes")),
    ...fields,
  },
  ({ cron, workflow, ...flags }) =>
    call(
      (gatehouse) => gatehouse.schedules.create({ payload: { workflow, cron, ...given(flags) } }),
      ({ schedule_id }) => ({ out: schedule_id, note: "The schedule is created." }),
    ),
).pipe(
  Command.withDescription("Create a schedule, which creates jobs"),
  Command.withExamples([{ command: 'gatehouse schedules create nightly-report "0 4 * * *" --timezone Europe/Berlin' }]),
)

const list = Command.make("list", wholeList, (flags) =>
  call(
    (gatehouse) => gatehouse.schedules.list({ payload: given(flags) }),
    ({ next_cursor = null, schedules }) => ({
      out: table(
        ["SCHEDULE", "WORKFLOW", "CRON", "TIMEZONE", "NEXT"],
        schedules.map((one) => [
          one.schedule_id,
          one.workflow,
          one.cron,
          one.timezone,
          one.active ? one.next_at : "paused",
        ]),
      ),
      note: more(next_cursor),
    }),
  ),
).pipe(Command.withDescription("List the schedules of the org, oldest first"))

const get = Command.make("get", { schedule }, ({ schedule }) =>
  call(
    (gatehouse) => gatehouse.schedules.get({ payload: { schedule_id: schedule } }),
    ({ active, cron, last_job, next_times, overlap, timezone, workflow }) => ({
      out: table(
        ["FIELD", "VALUE"],
        [
          ["state", active ? "active" : "paused"],
          ["workflow", workflow],
          ["cron", cron],
          ["timezone", timezone],
          ["overlap", overlap],
          ...(next_times.length === 0 ? [["next", null]] : next_times.map((time) => ["next", time])),
          ["last job", last_job === null ? null : `${last_job.job_id} ${last_job.status}`],
        ],
      ),
    }),
  ),
).pipe(Command.withDescription("Show a schedule, its next five firings and its last job"))

const update = Command.make(
  "update",
  {
    schedule,
    cron: Flag.String("cron").pipe(Flag.withDescription("The new cron expression"), Flag.optional),
    active: Flag.Boolean("active").pipe(
      Flag.withDescription("Activate the schedule; --no-active pauses it"),
      Flag.optional,
    ),
    ...fields,
  },
  Effect.fnUntraced(function* ({ schedule, ...flags }) {
    if (Object.values(flags).every(Option.isNone)) {
      return yield* usage(
        "Use at least one of --cron, --timezone, --overlap, --input, --priority, --active, --no-active",
      )
    }
    yield* call(
      (gatehouse) => gatehouse.schedules.update({ payload: { schedule_id: schedule, ...given(flags) } }),
      () => ({ out: "", note: `The schedule ${schedule} is changed.` }),
    )
  }),
).pipe(Command.withDescription("Change a schedule, pause it or activate it"))

const run = Command.make("run", { schedule }, ({ schedule }) =>
  call(
    (gatehouse) => gatehouse.schedules.run({ payload: { schedule_id: schedule } }),
    ({ job_id }) => ({ out: job_id, note: "The job is queued." }),
  ),
).pipe(Command.withDescription("Create a job of a schedule now, beside its firings"))

const remove = Command.make("delete", { schedule }, ({ schedule }) =>
  call(
    (gatehouse) => gatehouse.schedules.delete({ payload: { schedule_id: schedule } }),
    () => ({ out: "", note: `The schedule ${schedule} is deleted. Its jobs stay.` }),
  ),
).pipe(Command.withDescription("Delete a schedule; its jobs stay"))

/** Manages schedules. */
export const schedules = Command.make("schedules").pipe(
  Command.withDescription("Schedules, which create jobs: of the API key, or of --org"),
  Command.withSharedFlags(actForFlag),
  Command.withSubcommands([create, list, get, update, run, remove]),
  actFor,
)
