import { serviceNow } from "../../client/call.ts"
import type { ResponseBody } from "../../client/Operations.ts"

export type Job = ResponseBody<"jobs.list">["jobs"][number]
export const jobStatuses = ["queued", "running", "completed", "failed", "canceled"] as const
export type JobStatus = (typeof jobStatuses)[number]

export const isOpen = ({ status }: Pick<Job, "status">) => status === "queued" || status === "running"

/** Whether no claim takes the job yet. */
export const isDelayed = ({ run_at, status }: Pick<Job, "run_at" | "status">) =>
  status === "queued" && run_at !== null && Date.parse(run_at) > serviceNow()
