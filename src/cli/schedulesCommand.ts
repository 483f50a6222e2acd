import { Effect, Struct } from "effect"
import { Argument, Command } from "effect/cli"
import { CreateJobSchedule, UpdateJobSchedule } from "../domain/jobs/JobSchedule.ts"
import { actFor, actForFlag, clearFlag, given, payloadFlags, wholeList } from "./flags.ts"
import { call } from "./call.ts"
import { withCallback } from "./secretInput.ts"
import { more, table, usage } from "./output.ts"

const schedule = Argument.String("schedule").pipe(Argument.withDescription("The schedule's id"))

const create = Command.make(
  "create",
  {
    workflow: Argument.String("workflow").pipe(Argument.withDescription("The workflow of the jobs")),
    cron: Argument.String("cron").pipe(Argument.withDescription("The cron expression, in quotes")),
    ...payloadFlags(Struct.omit(CreateJobSchedule.fields, ["workflow", "cron", "callback_secret"])),
  },
  ({ callback_url, cron, workflow, ...flags }) =>
    withCallback(callback_url, (callback) =>
      call(
        (gatehouse) => gatehouse.schedules.create({ payload: { workflow, cron, ...given(flags), ...callback } }),
        ({ schedule_id }) => ({ out: schedule_id, note: "The schedule is created." }),
      ),
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
).pipe(Command.withDescription("Show a schedule, its next five runs and its last job"))

const changed = Struct.omit(UpdateJobSchedule.fields, ["schedule_id", "callback_secret"])

const update = Command.make(
  "update",
  { schedule, ...payloadFlags(changed), clear: clearFlag(changed) },
  Effect.fnUntraced(function* ({ clear, schedule, ...flags }) {
    const changes = { ...clear, ...given(flags) }
    if (Object.keys(changes).length === 0) {
      return yield* usage("Nothing to change: set --cron, --timezone, --no-active or another setting")
    }
    yield* withCallback(flags.callback_url, (callback) =>
      call(
        (gatehouse) => gatehouse.schedules.update({ payload: { schedule_id: schedule, ...changes, ...callback } }),
        () => ({ out: "", note: `The schedule ${schedule} is changed.` }),
      ),
    )
  }),
).pipe(Command.withDescription("Change a schedule, pause it or activate it"))

const run = Command.make("run", { schedule }, ({ schedule }) =>
  call(
    (gatehouse) => gatehouse.schedules.run({ payload: { schedule_id: schedule } }),
    ({ job_id }) => ({ out: job_id, note: "The job is queued." }),
  ),
).pipe(Command.withDescription("Create a job of a schedule now, in addition to its runs"))

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
