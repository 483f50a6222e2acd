import { Effect, Layer, Result } from "effect"
import { group } from "./group.ts"
import { counted } from "../../domain/plural.ts"
import { type CompletedJob, type FailJob, JobDetail, type JobStatus } from "../../domain/jobs/Job.ts"
import type { CreatedJob, ReportResult } from "../../domain/jobs/JobRepository.ts"
import type { ChangedJobs } from "../../domain/jobs/JobSweep.ts"
import { JobScheduleDetail } from "../../domain/jobs/JobSchedule.ts"
import { JobSchedules } from "../../domain/jobs/JobSchedules.ts"
import { Jobs } from "../../domain/jobs/Jobs.ts"
import { Api } from "../api/Api.ts"
import { ClaimedJobs, JobPage, JobSchedulePage } from "../api/jobsApi.ts"
import { done } from "../api/responses.ts"
import { jsonResponse } from "./jsonResponse.ts"

const created = ({ created, jobId }: CreatedJob) => ({
  ...done(created ? "The job is queued." : "A job with this key already exists: nothing else is queued."),
  job_id: jobId,
  created,
})

const completed = (status: JobStatus | null) =>
  status === null ? "The job was completed before; nothing changed." : "The job is completed."

const completedJob = (job_id: string, result: ReportResult): CompletedJob =>
  Result.isSuccess(result)
    ? { job_id, success: true, message: completed(result.success.status) }
    : { job_id, success: false, message: result.failure.error, code: result.failure.code }

/** The response of a change of one job, or of those that a filter selects. */
const changed = (one: string, what: string) => (jobs: ChangedJobs | null) => {
  if (jobs === null) return done(one)
  const { count, isAll, sweepId } = jobs
  const verb = sweepId === null ? "would be" : count === 1 ? "is" : "are"
  const many = `${isAll ? "" : "At least "}${counted(count, "job")} ${verb} ${what}.`
  return { ...done(many), count, is_all: isAll, sweep_id: sweepId }
}

const failed = (status: JobStatus | null, { retry }: typeof FailJob.Type) => {
  if (status === null) return "The job was queued again or failed before; nothing changed."
  if (status === "queued") return "The job is queued again."
  return retry === true
    ? "The job is failed: it has no attempt to retry, or a newer job has its unique key."
    : "The job is failed."
}

const claimedResponse = jsonResponse(ClaimedJobs, true)
const jobResponse = jsonResponse(JobDetail)
const jobPageResponse = jsonResponse(JobPage)
const scheduleResponse = jsonResponse(JobScheduleDetail)
const schedulePageResponse = jsonResponse(JobSchedulePage)

const jobs = group(Api, "jobs", (handlers) =>
  Effect.map(Jobs, (jobs) =>
    handlers.handleAll({
      create: ({ payload }) => Effect.map(jobs.create(payload), created),
      createBatch: ({ payload }) =>
        Effect.map(jobs.createBatch(payload), (job_ids) => ({
          ...done("The jobs are queued, or already exist with their idempotency_key."),
          job_ids,
        })),
      claim: ({ payload }) => Effect.map(jobs.claim(payload), (claimed) => ({ jobs: claimed })).pipe(claimedResponse),
      heartbeat: ({ payload }) => Effect.as(jobs.heartbeat(payload), done("The lease starts again.")),
      log: ({ payload }) => Effect.as(jobs.log(payload), done("The lines are kept.")),
      logs: ({ payload }) => Effect.map(jobs.lines(payload.job_id), (lines) => ({ lines })),
      step: ({ payload }) => Effect.as(jobs.step(payload), done("The result of the step is kept.")),
      complete: ({ payload }) => Effect.map(jobs.complete(payload), (status) => done(completed(status))),
      completeBatch: ({ payload }) =>
        Effect.map(jobs.completeBatch(payload), (outcomes) => {
          const all = outcomes.map((outcome, n) => completedJob(payload.jobs[n]!.job_id, outcome))
          const count = all.filter(({ success }) => success).length
          return {
            ...done(`${count} of ${counted(all.length, "job")} ${count === 1 ? "is" : "are"} completed.`),
            jobs: all,
          }
        }),
      fail: ({ payload }) => Effect.map(jobs.fail(payload), (status) => done(failed(status, payload))),
      cancel: ({ payload }) =>
        Effect.map(jobs.cancel(payload), changed("The job is canceled: stop the work.", "canceled")),
      retry: ({ payload }) => Effect.map(jobs.retry(payload), changed("The job is queued again.", "queued again")),
      sweeps: () => Effect.map(jobs.sweeps, (sweeps) => ({ sweeps })),
      endSweep: ({ payload }) =>
        Effect.as(
          jobs.endSweep(payload.sweep_id),
          done("The change is stopped. Jobs that it has not reached stay as they are."),
        ),
      causes: ({ payload }) => Effect.map(jobs.causes(payload), (causes) => ({ causes })),
      queue: () => jobs.queue,
      get: ({ payload }) => jobs.get(payload.job_id).pipe(jobResponse),
      list: ({ payload }) => jobs.list(payload).pipe(jobPageResponse),
    }),
  ),
)

const schedules = group(Api, "schedules", (handlers) =>
  Effect.map(JobSchedules, (schedules) =>
    handlers.handleAll({
      create: ({ payload }) =>
        Effect.map(schedules.create(payload), (schedule_id) => ({
          ...done("The schedule is created."),
          schedule_id,
        })),
      list: ({ payload }) => schedules.list(payload).pipe(schedulePageResponse),
      get: ({ payload }) => schedules.get(payload.schedule_id).pipe(scheduleResponse),
      update: ({ payload }) => Effect.as(schedules.update(payload), done("The schedule is changed.")),
      run: ({ payload }) =>
        Effect.map(schedules.run(payload.schedule_id), (job_id) => ({ ...done("The job is queued."), job_id })),
      delete: ({ payload }) => Effect.as(schedules.remove(payload.schedule_id), done("The schedule is deleted.")),
    }),
  ),
)

const workflows = group(Api, "workflows", (handlers) =>
  Effect.map(Jobs, (jobs) =>
    handlers.handleAll({
      set: ({ payload }) => Effect.as(jobs.setWorkflow(payload), done("The limits hold from now on.")),
      get: ({ payload }) => jobs.workflow(payload.workflow),
      list: () => Effect.map(jobs.workflows, (workflows) => ({ workflows })),
      delete: ({ payload }) =>
        Effect.as(jobs.deleteWorkflow(payload.workflow), done("The workflow has no limits any more.")),
    }),
  ),
)

export const layer = Layer.mergeAll(jobs, schedules, workflows)
