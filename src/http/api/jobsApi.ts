import { ByteSize, Schema } from "effect"
import { HttpIncomingMessage } from "effect/http"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import {
  ClaimedJob,
  ClaimJobs,
  CompletedJob,
  CompleteJob,
  CompleteJobs,
  CreateJob,
  CreateJobs,
  FailJob,
  HeartbeatJob,
  Job,
  JobDetail,
  JobLine,
  JobStatus,
  LogJob,
  StepJob,
  WorkflowName,
} from "../../domain/jobs/Job.ts"
import { JobQueue } from "../../domain/jobs/JobCounts.ts"
import { CreateJobSchedule, JobSchedule, JobScheduleDetail, UpdateJobSchedule } from "../../domain/jobs/JobSchedule.ts"
import { SetWorkflow, Workflow } from "../../domain/jobs/WorkflowSettings.ts"
import { CancelJobs, JobCause, JobSweep, RetryFilter, RetryJobs } from "../../domain/jobs/JobSweep.ts"
import { NextCursor, NextCursorIfMore, pageQuery, wholeListFields } from "../../domain/Page.ts"
import { maxFilterSweeps } from "../../domain/sweeps/maxFilterSweeps.ts"
import { Id, JobId, JobSweepId, ScheduleId } from "../../domain/Schemas.ts"
import { Conflict, Done, LimitReached, NotFound, noFields } from "./responses.ts"
import { about, access, WebhookAuthorization, WebhookIdempotent, WebhookRequestErrors } from "./access.ts"

export const ClaimedJobs = Schema.Struct({
  jobs: Schema.Array(ClaimedJob).annotate({ description: "The claimed jobs, the highest priority first." }),
}).annotate({ identifier: "ClaimedJobs" })
const ChangedJobs = Schema.Struct({
  ...Done.fields,
  count: Schema.optionalKey(Schema.Int).annotate({
    description: "With filter: how many jobs it selects.",
    examples: [17],
  }),
  is_all: Schema.optionalKey(Schema.Boolean).annotate({
    description: "With filter. false: count is a lower bound, because it reads at most 10,000 jobs.",
    examples: [true],
  }),
  sweep_id: Schema.optionalKey(Schema.NullOr(Id)).annotate({
    description: "With filter: the change that runs now in the background. null: nothing changes.",
    examples: ["01KAHBMKZ3D2X7S5QN8W4V6R9T"],
  }),
}).annotate({ identifier: "ChangedJobs" })
export const JobPage = Schema.Struct({
  jobs: Schema.Array(Job).annotate({ description: "The jobs of this page, the newest first." }),
  next_cursor: NextCursor,
}).annotate({
  identifier: "JobPage",
})
export const JobSchedulePage = Schema.Struct({
  schedules: Schema.Array(JobSchedule).annotate({ description: "The schedules, the oldest first." }),
  next_cursor: NextCursorIfMore,
}).annotate({ identifier: "JobSchedules" })

/** The end of the text of a change by a filter. */
const ofSweeps =
  "jobs/sweeps shows how far it is, and jobs/sweeps/cancel ends it. An org has at most " +
  `${maxFilterSweeps} retries and cancellations by a filter at a time; another is a 409.`

export class JobsGroup extends HttpApiGroup.make("jobs")
  .add(
    HttpApiEndpoint.post("create", "/v1/jobs/create", {
      payload: CreateJob,
      success: Schema.Struct({
        ...Done.fields,
        job_id: JobId,
        created: Schema.Boolean.annotate({ description: "false: the job existed before.", examples: [true] }),
      }).annotate({ identifier: "JobCreated" }),
      error: LimitReached,
    })
      .middleware(WebhookIdempotent)
      .annotateMerge(
        about.change("Create a job", "Queues a job. A worker claims it, or its creator completes or fails it."),
      ),
    HttpApiEndpoint.post("createBatch", "/v1/jobs/create-batch", {
      payload: CreateJobs,
      success: Schema.Struct({
        ...Done.fields,
        job_ids: Schema.Array(JobId).annotate({ description: "The ids of the jobs, in the order of the request." }),
      }).annotate({ identifier: "JobsCreated" }),
      error: LimitReached,
    })
      .middleware(WebhookIdempotent)
      .annotate(HttpIncomingMessage.MaxBodySize, ByteSize.mebibytes(8))
      .annotateMerge(
        about.change(
          "Create several jobs",
          "Queues 1 to 1,000 jobs in one statement, all or none. job_ids has their ids in the order of the " +
            "request. A job that breaks a rule refuses the whole batch with a 400 that names its place. The body " +
            "has at most 8 MiB.",
        ),
      ),
    HttpApiEndpoint.post("claim", "/v1/jobs/claim", {
      payload: ClaimJobs,
      success: ClaimedJobs,
      error: LimitReached,
    }).annotateMerge(
      about.change(
        "Claim jobs",
        "Returns queued jobs, the highest priority first, then the oldest: up to limit jobs or 4 MiB of input, " +
          "and at least one if there is one. The claim lasts until the lease expires. Then the job is queued again; " +
          "after max_attempts leases it fails. Send the attempt of the claim with heartbeat, complete and fail: " +
          "then a worker whose lease has expired cannot change a job that another worker has claimed since. At a " +
          "replica, at most LIMIT_WAITING_CLAIMS claims of an org wait; another one is refused.",
      ),
    ),
    HttpApiEndpoint.post("heartbeat", "/v1/jobs/heartbeat", {
      payload: HeartbeatJob,
      success: Done,
      error: [NotFound, Conflict, LimitReached],
    }).annotateMerge(
      about.change(
        "Extend the lease of a job",
        "The lease starts again from now. It takes lines along, as jobs/log does. A 409 tells the worker to stop: " +
          "the job is canceled or finished, or another attempt runs.",
      ),
    ),
    HttpApiEndpoint.post("log", "/v1/jobs/log", {
      payload: LogJob,
      success: Done,
      error: [NotFound, Conflict, LimitReached],
    }).annotateMerge(
      about.change(
        "Log lines of a job",
        "Keeps lines of the running attempt with the job, which keeps the newest 64 KiB of all its attempts. The " +
          "lease stays as it is. An attempt that is not running is a 409.",
      ),
    ),
    HttpApiEndpoint.post("logs", "/v1/jobs/logs", {
      payload: Schema.Struct({ job_id: JobId }).annotate({ identifier: "GetJobLogs" }),
      success: Schema.Struct({
        lines: Schema.Array(JobLine).annotate({ description: "The lines, the oldest first." }),
      }).annotate({ identifier: "JobLines" }),
      error: NotFound,
    }).annotateMerge(
      about.read("Read the lines of a job", "The newest 64 KiB that its workers have logged, oldest first."),
    ),
    HttpApiEndpoint.post("step", "/v1/jobs/step", {
      payload: StepJob,
      success: Done,
      error: [NotFound, Conflict, LimitReached],
    }).annotateMerge(
      about.change(
        "Finish a step of a job",
        "Keeps the result of a step with the job, so that another attempt need not do it again: jobs/get has the " +
          "steps. A step that is there stays as it is. An attempt that is not running is a 409. The steps of a job " +
          "have at most 256 KiB of JSON together.",
      ),
    ),
    HttpApiEndpoint.post("complete", "/v1/jobs/complete", {
      payload: CompleteJob,
      success: Done,
      error: [NotFound, Conflict, LimitReached],
    }).annotateMerge(
      about.change(
        "Complete a job",
        "Queues the event job.completed. Completing the job again changes nothing: the first result stays. The " +
          "response is 409 if the job failed or was canceled, or if the attempt is not running and has not completed " +
          "the job before. When the org has no stored bytes left, a result of more than 1,000 bytes is a 409 " +
          "limit_reached; the job stays as it is.",
      ),
    ),
    HttpApiEndpoint.post("completeBatch", "/v1/jobs/complete-batch", {
      payload: CompleteJobs,
      success: Schema.Struct({
        ...Done.fields,
        jobs: Schema.Array(CompletedJob).annotate({
          description: "What became of each job, in the order of the request.",
        }),
      }).annotate({
        identifier: "JobsCompleted",
      }),
    })
      .annotate(HttpIncomingMessage.MaxBodySize, ByteSize.mebibytes(8))
      .annotateMerge(
        about.change(
          "Complete several jobs",
          "Completes 1 to 1,000 jobs, each as jobs/complete does by itself: one that is lost, canceled or unknown " +
            "does not stop the others. jobs says what became of each, in the order of the request. A field that " +
            "breaks a rule refuses the whole batch with a 400 that names its place. The body has at most 8 MiB.",
        ),
      ),
    HttpApiEndpoint.post("fail", "/v1/jobs/fail", {
      payload: FailJob,
      success: Done,
      error: [NotFound, Conflict, LimitReached],
    }).annotateMerge(
      about.change(
        "Fail a job",
        "Queues the event job.failed. Failing the job again changes nothing: the first error stays. With retry, " +
          "the job is queued again after retry_delay_seconds, twice as long after each attempt and an hour at most, " +
          "until max_attempts, or as the retry of its workflow says; only the last failure makes an event. The " +
          "response is 409 if the job was completed or canceled, or if the attempt is not running and has not " +
          "reported the same before. When the org has no stored bytes left, an error of more than 1,000 bytes is a " +
          "409 limit_reached; the job stays as it is.",
      ),
    ),
    HttpApiEndpoint.post("cancel", "/v1/jobs/cancel", {
      payload: CancelJobs,
      success: ChangedJobs,
      error: [NotFound, Conflict],
    }).annotateMerge(
      about.change(
        "Cancel jobs",
        "Ends a queued or running job without an event. Its worker gets a 409 at its next heartbeat, complete or " +
          "fail. Canceling the job again changes nothing. A finished job is a 409. " +
          "With a filter in place of job_id: counts the jobs that it selects, and cancels them in the background, " +
          `oldest first. ${ofSweeps}`,
      ),
    ),
    HttpApiEndpoint.post("retry", "/v1/jobs/retry", {
      payload: RetryJobs,
      success: ChangedJobs,
      error: [NotFound, Conflict, LimitReached],
    }).annotateMerge(
      about.resend(
        "Retry failed jobs",
        "Queues a failed job again, with as many further attempts as it had. Its attempt goes on counting, and " +
          "its history and its event stay; its next end makes another event. The response is 409 if the job has not " +
          "failed, or an unfinished job has its unique key; and a 409 limit_reached if the org has too many unfinished " +
          "jobs, or no stored bytes left for a larger input. " +
          "With a filter in place of job_id: counts the failed jobs that it selects, and queues them again in the " +
          `background, newest first. ${ofSweeps}`,
      ),
    ),
    HttpApiEndpoint.post("sweeps", "/v1/jobs/sweeps", {
      payload: noFields,
      success: Schema.Struct({
        sweeps: Schema.Array(JobSweep).annotate({
          description: "The running retries and cancellations, the newest first.",
        }),
      }).annotate({ identifier: "JobSweeps" }),
    }).annotateMerge(
      about.read("List running retries and cancellations", "Those by a filter that are not finished, newest first."),
    ),
    HttpApiEndpoint.post("endSweep", "/v1/jobs/sweeps/cancel", {
      payload: Schema.Struct({ sweep_id: JobSweepId }).annotate({ identifier: "CancelJobSweep" }),
      success: Done,
      error: NotFound,
    }).annotateMerge(
      about.resend(
        "Cancel the rest of a retry or cancellation",
        "Jobs that it has changed stay so; the others stay as they are.",
      ),
    ),
    HttpApiEndpoint.post("causes", "/v1/jobs/causes", {
      payload: Schema.Struct({
        workflow: RetryFilter.fields.workflow,
        since: RetryFilter.fields.since,
        until: RetryFilter.fields.until,
      }).annotate({ identifier: "ListJobCauses" }),
      success: Schema.Struct({
        causes: Schema.Array(JobCause).annotate({ description: "The causes, the most frequent first." }),
      }).annotate({ identifier: "JobCauses" }),
    }).annotateMerge(
      about.read(
        "Group failed jobs by their cause",
        "Groups the newest 10,000 failed jobs by their workflow and the first 200 characters of their error. The " +
          "most frequent 20, the most first.",
      ),
    ),
    HttpApiEndpoint.post("queue", "/v1/jobs/queue", { payload: noFields, success: JobQueue }).annotateMerge(
      about.read(
        "Read what waits and runs",
        "Counts the unfinished jobs of the org by workflow and state. Also returns the time of the oldest due " +
          "job, the number of jobs that were created in the last five minutes, and the concurrency keys with most " +
          "waiting jobs. Reads at most 10,000 jobs of each state. If there are more, the numbers are lower bounds " +
          "and is_all is false. GET /api/v0/overview has how many jobs finished in each minute.",
      ),
    ),
    HttpApiEndpoint.post("get", "/v1/jobs/get", {
      payload: Schema.Struct({ job_id: JobId }).annotate({ identifier: "GetJob" }),
      success: JobDetail,
      error: NotFound,
    }).annotateMerge(
      about.read(
        "Get a job",
        "Returns the job without its callback_secret, with its last 20 attempts that have ended and its finished " +
          "steps.",
      ),
    ),
    HttpApiEndpoint.post("list", "/v1/jobs/list", {
      payload: Schema.Struct({
        status: Schema.optionalKey(JobStatus.annotate({ description: "Only jobs in this state." })),
        workflow: Schema.optionalKey(WorkflowName),
        error: RetryFilter.fields.error,
        since: RetryFilter.fields.since,
        until: RetryFilter.fields.until,
        ...pageQuery,
      }).annotate({ identifier: "ListJobs", examples: [{ status: "failed", workflow: "nightly-report", limit: 50 }] }),
      success: JobPage,
    }).annotateMerge(
      about.read(
        "List jobs",
        "Newest first. Filter by status, workflow, time and, for failed jobs, error. A page ends at limit jobs or " +
          "4 MiB. With error a page may be short or empty although next_cursor continues the list: it reads at most " +
          "10,000 jobs.",
      ),
    ),
  )
  .middleware(WebhookAuthorization)
  .middleware(WebhookRequestErrors)
  .annotateEndpointsMerge(access.tenant.ofGroup)
  .annotateMerge(
    OpenApi.annotations({ title: "Jobs", description: "Background jobs. The end of a job sends a webhook." }),
  ) {}

export class SchedulesGroup extends HttpApiGroup.make("schedules")
  .add(
    HttpApiEndpoint.post("create", "/v1/schedules/create", {
      payload: CreateJobSchedule,
      success: Schema.Struct({ ...Done.fields, schedule_id: ScheduleId }).annotate({
        identifier: "JobScheduleCreated",
      }),
      error: LimitReached,
    })
      .middleware(WebhookIdempotent)
      .annotateMerge(
        about.change(
          "Create a schedule",
          "Each run creates one job, for any number of replicas. Runs that were missed while no replica ran are " +
            "one job.",
        ),
      ),
    HttpApiEndpoint.post("list", "/v1/schedules/list", {
      payload: [Schema.Struct(wholeListFields).annotate({ identifier: "ListJobSchedules" }), Schema.Undefined],
      success: JobSchedulePage,
    }).annotateMerge(
      about.read(
        "List schedules",
        "All schedules of the org, oldest first, up to 1,000 or 4 MiB. If there are more, next_cursor continues " +
          "the list.",
      ),
    ),
    HttpApiEndpoint.post("get", "/v1/schedules/get", {
      payload: Schema.Struct({ schedule_id: ScheduleId }).annotate({ identifier: "GetJobSchedule" }),
      success: JobScheduleDetail,
      error: NotFound,
    }).annotateMerge(about.read("Get a schedule", "Returns the schedule with its next five runs and its last job.")),
    HttpApiEndpoint.post("update", "/v1/schedules/update", {
      payload: UpdateJobSchedule,
      success: Done,
      error: [NotFound, LimitReached],
    }).annotateMerge(
      about.change(
        "Update a schedule",
        "Changes the given fields. active: false pauses the schedule. A schedule that is activated, or has " +
          "another cron or timezone, runs next after now.",
      ),
    ),
    HttpApiEndpoint.post("run", "/v1/schedules/run", {
      payload: Schema.Struct({ schedule_id: ScheduleId }).annotate({ identifier: "RunJobSchedule" }),
      success: Schema.Struct({ ...Done.fields, job_id: JobId }).annotate({ identifier: "JobScheduleRun" }),
      error: [NotFound, Conflict, LimitReached],
    }).annotateMerge(
      about.change(
        "Run a schedule now",
        "Creates a job of the schedule now, in addition to its runs. This also works while the schedule is " +
          "paused. With overlap skip, the response is 409 while the last job is queued or running.",
      ),
    ),
    HttpApiEndpoint.post("delete", "/v1/schedules/delete", {
      payload: Schema.Struct({ schedule_id: ScheduleId }).annotate({ identifier: "DeleteJobSchedule" }),
      success: Done,
      error: NotFound,
    }).annotateMerge(about.change("Delete a schedule", "The jobs of the schedule stay.")),
  )
  .middleware(WebhookAuthorization)
  .middleware(WebhookRequestErrors)
  .annotateEndpointsMerge(access.tenant.ofGroup)
  .annotateMerge(OpenApi.annotations({ title: "Schedules", description: "Jobs that are created at fixed times." })) {}

const named = Schema.Struct({ workflow: WorkflowName })

export class WorkflowsGroup extends HttpApiGroup.make("workflows")
  .add(
    HttpApiEndpoint.post("set", "/v1/workflows/set", {
      payload: SetWorkflow,
      success: Done,
      error: [Conflict, LimitReached],
    }).annotateMerge(
      about.change(
        "Set the limits of a workflow",
        "Replaces all settings of the workflow: an absent limit is none. They hold for queued jobs from the " +
          "answer on, but for `expires_in_seconds`, which a job takes when it is created. Limits hold exactly, over " +
          "all replicas: a claim takes no job that would exceed one. Running jobs stay. A key that is full holds up " +
          "no other, and keys take turns. An org has settings for at most 500 workflows; more are a 409.",
      ),
    ),
    HttpApiEndpoint.post("get", "/v1/workflows/get", {
      payload: named.annotate({ identifier: "GetWorkflow" }),
      success: Workflow,
      error: NotFound,
    }).annotateMerge(about.read("Get the limits of a workflow", "A workflow without settings is a 404.")),
    HttpApiEndpoint.post("list", "/v1/workflows/list", {
      payload: noFields,
      success: Schema.Struct({
        workflows: Schema.Array(Workflow).annotate({
          description: "The workflows that have settings, by their names.",
        }),
      }).annotate({ identifier: "Workflows" }),
    }).annotateMerge(
      about.read("List workflows with limits", "All workflows of the org that have settings, by their names."),
    ),
    HttpApiEndpoint.post("delete", "/v1/workflows/delete", {
      payload: named.annotate({ identifier: "DeleteWorkflow" }),
      success: Done,
      error: NotFound,
    }).annotateMerge(
      about.change("Delete the limits of a workflow", "Its jobs stay, and have no limits from the answer on."),
    ),
  )
  .middleware(WebhookAuthorization)
  .middleware(WebhookRequestErrors)
  .annotateEndpointsMerge(access.tenant.ofGroup)
  .annotateMerge(
    OpenApi.annotations({
      title: "Workflows",
      description: "How many jobs of a workflow run at once, and start in a time.",
    }),
  ) {}
