import { Effect, Layer } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { type CreateJob, type FailJob, Job, type JobStatus } from "../../domain/jobs/Job.ts"
import { Jobs } from "../../domain/jobs/Jobs.ts"
import { JobSchedules } from "../../domain/jobs/JobSchedules.ts"
import { JobScheduleDetail } from "../../domain/jobs/JobSchedule.ts"
import { Api } from "../api/Api.ts"
import { ClaimedJobs, JobPage, JobSchedulePage } from "../api/Jobs.ts"
import { jsonAnswer } from "../server/jsonAnswer.ts"
import { done } from "../api/webhookResponses.ts"

const created = ({ idempotency_key }: typeof CreateJob.Type) =>
  idempotency_key === undefined
    ? "The job is queued."
    : "The job is queued, or already exists with this idempotency_key."

const completed = (status: JobStatus | null) =>
  status === null ? "The job was completed before; nothing changed." : "The job is completed."

const failed = (status: JobStatus | null, { retry }: typeof FailJob.Type) => {
  if (status === null) return "The job was queued again or failed before; nothing changed."
  if (status === "queued") return "The job is queued again."
  return retry === true ? "The job is failed: it has no attempt to retry." : "The job is failed."
}

const claimedAnswer = jsonAnswer(ClaimedJobs, true)
const jobAnswer = jsonAnswer(Job)
const jobPageAnswer = jsonAnswer(JobPage)
const scheduleAnswer = jsonAnswer(JobScheduleDetail)
const schedulePageAnswer = jsonAnswer(JobSchedulePage)

const jobs = HttpApiBuilder.group(Api, "jobs", (handlers) =>
  Effect.map(Jobs, (jobs) =>
    handlers.handleAll({
      create: ({ payload }) => Effect.map(jobs.create(payload), (job_id) => ({ ...done(created(payload)), job_id })),
      claim: ({ payload }) => Effect.map(jobs.claim(payload), (claimed) => ({ jobs: claimed })).pipe(claimedAnswer),
      heartbeat: ({ payload }) => Effect.as(jobs.heartbeat(payload), done("The lease starts again.")),
      complete: ({ payload }) => Effect.map(jobs.complete(payload), (status) => done(completed(status))),
      fail: ({ payload }) => Effect.map(jobs.fail(payload), (status) => done(failed(status, payload))),
      cancel: ({ payload }) => Effect.as(jobs.cancel(payload.job_id), done("The job is canceled: stop the work.")),
      get: ({ payload }) => jobs.get(payload.job_id).pipe(jobAnswer),
      list: ({ payload }) => jobs.list(payload).pipe(jobPageAnswer),
    }),
  ),
)

const schedules = HttpApiBuilder.group(Api, "schedules", (handlers) =>
  Effect.map(JobSchedules, (schedules) =>
    handlers.handleAll({
      create: ({ payload }) =>
        Effect.map(schedules.create(payload), (schedule_id) => ({
          ...done("The schedule is created."),
          schedule_id,
        })),
      list: ({ payload }) => schedules.list(payload).pipe(schedulePageAnswer),
      get: ({ payload }) => schedules.get(payload.schedule_id).pipe(scheduleAnswer),
      update: ({ payload }) => Effect.as(schedules.update(payload), done("The schedule is changed.")),
      run: ({ payload }) =>
        Effect.map(schedules.run(payload.schedule_id), (job_id) => ({ ...done("The job is queued."), job_id })),
      delete: ({ payload }) => Effect.as(schedules.remove(payload.schedule_id), done("The schedule is deleted.")),
    }),
  ),
)

export const layer = Layer.merge(jobs, schedules)
