import { tenantGroup } from "./flags.ts"
import { op } from "./operation.ts"
import { columns, table } from "./output.ts"
import { withCallback } from "./secretInput.ts"

const one = { args: { schedule: "schedule_id" } } as const

export const schedules = tenantGroup("schedules", "Schedules, which create jobs", [
  op("schedules.create", {
    args: { workflow: "workflow", cron: "cron" },
    examples: ['schedules create nightly-report "0 4 * * *" --timezone Europe/Berlin'],
    omit: ["callback_secret"],
    run: withCallback,
    show: ({ schedule_id }) => ({ out: schedule_id, note: "The schedule is created." }),
  }),
  op("schedules.list", {
    show: ({ schedules }) =>
      columns(schedules, {
        SCHEDULE: "schedule_id",
        WORKFLOW: "workflow",
        CRON: "cron",
        TIMEZONE: "timezone",
        NEXT: ({ active, next_at }) => (active ? next_at : "paused"),
      }),
  }),
  op("schedules.get", {
    ...one,
    show: ({ active, cron, last_job, next_times, overlap, timezone, workflow }) =>
      table(
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
  op("schedules.update", {
    ...one,
    omit: ["callback_secret"],
    run: withCallback,
    show: (_, { schedule_id }) => `The schedule ${schedule_id} is changed.`,
  }),
  op("schedules.run", { ...one, show: ({ job_id }) => ({ out: job_id, note: "The job is queued." }) }),
  op("schedules.delete", {
    ...one,
    show: (_, { schedule_id }) => `The schedule ${schedule_id} is deleted. Its jobs stay.`,
  }),
])
