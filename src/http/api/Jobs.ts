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
import { WebhookAuthorization, WebhookIdempotent, WebhookRequestErrors } from "./middleware.ts"
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
      .annotate(OpenApi.Description, "Queues a job. A worker claims it, or its creator completes or fails it."),
    HttpApiEndpoint.post("claim", "/v1/jobs/claim", {
      payload: ClaimJobs,
      success: ClaimedJobs,
      error: LimitReached,
    })
      .annotate(OpenApi.Summary, "Claim jobs")
      .annotate(
        OpenApi.Description,
        "Returns the oldest queued jobs: up to limit jobs or 4 MiB of input, and at least one if there is one. The claim lasts until the lease expires. Then the job is queued again; after the third lease it fails. Any worker may finish a job: the first outcome stays, also after the lease has expired.",
      ),
    HttpApiEndpoint.post("heartbeat", "/v1/jobs/heartbeat", {
      payload: HeartbeatJob,
      success: Done,
      error: [NotFound, Conflict],
    })
      .annotate(OpenApi.Summary, "Extend the lease of a job")
      .annotate(OpenApi.Description, "The lease starts again from now."),
    HttpApiEndpoint.post("complete", "/v1/jobs/complete", {
      payload: CompleteJob,
      success: Done,
      error: [NotFound, Conflict],
    })
      .annotate(OpenApi.Summary, "Complete a job")
      .annotate(
        OpenApi.Description,
        "Queues the event job.completed. Completing the job again changes nothing: the first result stays. A failed job is a 409.",
      ),
    HttpApiEndpoint.post("fail", "/v1/jobs/fail", { payload: FailJob, success: Done, error: [NotFound, Conflict] })
      .annotate(OpenApi.Summary, "Fail a job")
      .annotate(
        OpenApi.Description,
        "Queues the event job.failed. Failing the job again changes nothing: the first error stays. A completed job is a 409.",
      ),
    HttpApiEndpoint.post("get", "/v1/jobs/get", {
      payload: Schema.Struct({ job_id: Id }).annotate({ identifier: "GetJob" }),
      success: Job,
      error: NotFound,
    })
      .annotate(OpenApi.Summary, "Get a job")
      .annotate(OpenApi.Description, "Returns the job without its callback_secret."),
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
        "Newest first. Filter by status and workflow. A page ends at limit jobs or 4 MiB.",
      ),
  )
  .middleware(WebhookAuthorization)
  .middleware(WebhookRequestErrors)
  .annotateEndpointsMerge(access.tenant)
  .annotateMerge(
    OpenApi.annotations({ title: "Jobs", description: "Background jobs. The end of a job sends a webhook." }),
  ) {}

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
        "Each firing creates one job, for any number of replicas. Firings that were missed while no replica ran are one job.",
      ),
    HttpApiEndpoint.post("list", "/v1/schedules/list", {
      payload: [Schema.Struct(wholeListFields).annotate({ identifier: "ListJobSchedules" }), Schema.Undefined],
      success: JobSchedulePage,
    })
      .annotate(OpenApi.Summary, "List schedules")
      .annotate(
        OpenApi.Description,
        "All schedules of the org, oldest first, up to 1,000 or 4 MiB. If there are more, next_cursor continues the list.",
      ),
    HttpApiEndpoint.post("delete", "/v1/schedules/delete", {
      payload: Schema.Struct({ schedule_id: Id }).annotate({ identifier: "DeleteJobSchedule" }),
      success: Done,
      error: NotFound,
    })
      .annotate(OpenApi.Summary, "Delete a schedule")
      .annotate(OpenApi.Description, "The jobs of the schedule stay."),
  )
  .middleware(WebhookAuthorization)
  .middleware(WebhookRequestErrors)
  .annotateEndpointsMerge(access.tenant)
  .annotateMerge(OpenApi.annotations({ title: "Schedules", description: "Jobs that are created at fixed times." })) {}
