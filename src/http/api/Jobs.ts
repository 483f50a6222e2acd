import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import {
  ClaimedJob,
  ClaimJobs,
  CompleteJob,
  CreateJob,
  FailJob,
  HeartbeatJob,
  Job,
  JobStatus,
  WorkflowName,
} from "../../domain/jobs/Job.ts"
import { CreateJobSchedule, JobSchedule } from "../../domain/jobs/JobSchedule.ts"
import { NextCursor, NextCursorIfMore, pageQuery, wholeListFields } from "../../domain/Page.ts"
import { Id } from "../../domain/Schemas.ts"
import { idempotencyKey } from "./idempotencyKey.ts"
import { KeyAuthorization, WebhookIdempotent, WebhookRequestErrors } from "./middleware.ts"
import { access } from "./security.ts"
import { Conflict, LimitReached, NotFound } from "./webhookErrors.ts"
import { Done } from "./webhookResponses.ts"

export const ClaimedJobs = Schema.Struct({ jobs: Schema.Array(ClaimedJob) }).annotate({ identifier: "ClaimedJobs" })
export const JobPage = Schema.Struct({ jobs: Schema.Array(Job), next_cursor: NextCursor }).annotate({
  identifier: "JobPage",
})
export const JobSchedulePage = Schema.Struct({
  schedules: Schema.Array(JobSchedule),
  next_cursor: NextCursorIfMore,
}).annotate({ identifier: "JobSchedules" })

export class JobsGroup extends HttpApiGroup.make("jobs")
  .add(
    HttpApiEndpoint.post("create", "/v1/jobs/create", {
      payload: CreateJob,
      success: Schema.Struct({ ...Done.fields, job_id: Id }).annotate({ identifier: "JobCreated" }),
      error: LimitReached,
    })
      .middleware(WebhookIdempotent)
      .annotateMerge(idempotencyKey)
      .annotate(OpenApi.Summary, "Create a job")
      .annotate(OpenApi.Description, "It is queued for a worker to claim, or for its creator to complete or fail."),
    HttpApiEndpoint.post("claim", "/v1/jobs/claim", {
      payload: ClaimJobs,
      success: ClaimedJobs,
      error: LimitReached,
    })
      .annotate(OpenApi.Summary, "Claim jobs")
      .annotate(
        OpenApi.Description,
        "Oldest first, up to limit jobs or 4 MiB of input, and at least one if there is one. They are the caller's until the lease runs out; then they are queued again, and fail after the third time. Which worker speaks for a job is not checked: the first outcome that is said stays, also when its lease had run out.",
      ),
    HttpApiEndpoint.post("heartbeat", "/v1/jobs/heartbeat", {
      payload: HeartbeatJob,
      success: Done,
      error: [NotFound, Conflict],
    })
      .annotate(OpenApi.Summary, "Keep a claimed job")
      .annotate(OpenApi.Description, "Starts its lease anew from now."),
    HttpApiEndpoint.post("complete", "/v1/jobs/complete", {
      payload: CompleteJob,
      success: Done,
      error: [NotFound, Conflict],
    })
      .annotate(OpenApi.Summary, "Complete a job")
      .annotate(
        OpenApi.Description,
        "Its job.completed event is on its way with this answer. Said again it changes nothing, and the first result stays; a failed job is a 409.",
      ),
    HttpApiEndpoint.post("fail", "/v1/jobs/fail", { payload: FailJob, success: Done, error: [NotFound, Conflict] })
      .annotate(OpenApi.Summary, "Fail a job")
      .annotate(
        OpenApi.Description,
        "Its job.failed event is on its way with this answer. Said again it changes nothing, and the first error stays; a completed job is a 409.",
      ),
    HttpApiEndpoint.post("get", "/v1/jobs/get", {
      payload: Schema.Struct({ job_id: Id }).annotate({ identifier: "GetJob" }),
      success: Job,
      error: NotFound,
    })
      .annotate(OpenApi.Summary, "Get a job")
      .annotate(OpenApi.Description, "As it stands, without its callback_secret."),
    HttpApiEndpoint.post("list", "/v1/jobs/list", {
      payload: Schema.Struct({
        status: Schema.optionalKey(JobStatus),
        workflow: Schema.optionalKey(WorkflowName),
        ...pageQuery,
      }).annotate({ identifier: "ListJobs" }),
      success: JobPage,
    })
      .annotate(OpenApi.Summary, "List jobs")
      .annotate(
        OpenApi.Description,
        "Newest first: all, or those in a status or of a workflow. A page ends at limit jobs or 4 MiB.",
      ),
  )
  .middleware(KeyAuthorization)
  .middleware(WebhookRequestErrors)
  .annotateEndpointsMerge(access.tenant)
  .annotateMerge(OpenApi.annotations({ title: "Jobs", description: "Work whose end is told by webhook." })) {}

export class SchedulesGroup extends HttpApiGroup.make("schedules")
  .add(
    HttpApiEndpoint.post("create", "/v1/schedules/create", {
      payload: CreateJobSchedule,
      success: Schema.Struct({ ...Done.fields, schedule_id: Id }).annotate({ identifier: "JobScheduleCreated" }),
      error: LimitReached,
    })
      .middleware(WebhookIdempotent)
      .annotateMerge(idempotencyKey)
      .annotate(OpenApi.Summary, "Create a schedule")
      .annotate(
        OpenApi.Description,
        "Each firing creates one job, however many replicas run. Firings missed while none ran come as one.",
      ),
    HttpApiEndpoint.post("list", "/v1/schedules/list", {
      payload: [Schema.Struct(wholeListFields).annotate({ identifier: "ListJobSchedules" }), Schema.Undefined],
      success: JobSchedulePage,
    })
      .annotate(OpenApi.Summary, "List schedules")
      .annotate(
        OpenApi.Description,
        "All of the tenant's, oldest first, up to 1,000 or 4 MiB; next_cursor goes on where there are more.",
      ),
    HttpApiEndpoint.post("delete", "/v1/schedules/delete", {
      payload: Schema.Struct({ schedule_id: Id }).annotate({ identifier: "DeleteJobSchedule" }),
      success: Done,
      error: NotFound,
    })
      .annotate(OpenApi.Summary, "Delete a schedule")
      .annotate(OpenApi.Description, "Jobs that it has created stay."),
  )
  .middleware(KeyAuthorization)
  .middleware(WebhookRequestErrors)
  .annotateEndpointsMerge(access.tenant)
  .annotateMerge(OpenApi.annotations({ title: "Schedules", description: "Jobs created by the clock." })) {}
