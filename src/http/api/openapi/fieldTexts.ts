import type { JsonSchema } from "./JsonSchema.ts"

/**
 * The default description of a field in the OpenAPI document, by the field's name. A description in the schema replaces it.
 */
const texts: Readonly<Record<string, string>> = {
  id: "The id of the resource, a ULID.",
  orgId: "The id of the org, a ULID.",
  projectId: "The id of the project, a ULID.",
  keyId: "The id of the key, a ULID.",
  deploymentId: "The id of the deployment, a ULID.",
  currentDeploymentId: "The id of the deployment in production. null: none is.",
  webhook_endpoint_id: "The id of the webhook endpoint, a ULID.",
  delivery_id: "The id of the delivery, a ULID.",
  event_id: "The id of the event, a ULID. All deliveries of one event have it.",
  job_id: "The id of the job, a ULID.",
  schedule_id: "The id of the schedule, a ULID.",
  deployment_id: "A deployment of yours that the job belongs to, in any form. null: none.",
  name: "A label for people.",
  prefix: "The first 12 characters of the key.",
  subdomain: "The DNS label of the project. null: none.",
  defaultBranch: "The branch whose deployments become current. null: not known yet.",
  hostOwner: "The owner of the linked repository. null: no repository is linked.",
  hostRepo: "The name of the linked repository. null: no repository is linked.",
  createdAt: "When it was created.",
  updatedAt: "When it was last changed.",
  created_at: "When it was created.",
  updated_at: "When it was last changed.",
  finished_at: "When the job was completed or failed. null: it is not finished.",
  expiresAt: "When the key expires. null: never.",
  at: "When it happened.",
  started_at: "When the attempt began.",
  next_at: "When the schedule fires next.",
  since: "Only what happened from this time on.",
  lease_expires_at: "When the claim of the job ends.",
  url: "The URL that receives the deliveries.",
  description: "A description in your words. null: none.",
  active: "Whether the endpoint receives deliveries.",
  workflow: "The kind of work: a worker asks for jobs by this name.",
  status: "The state of the job.",
  state: "The state of the delivery.",
  event: "What happened: the type of the event.",
  action: "What was done.",
  input: "The input of the job: any JSON value.",
  callback_url: "The URL that receives the event of the job instead of the org's endpoints. null: the endpoints do.",
  skip_callbacks: "Whether nobody receives the event of the job.",
  attempt: "The number of the claim, from 1; 0 before the first claim.",
  attempts: "How many attempts were made.",
  number: "The number of the attempt, from 1.",
  duration_ms: "How long the attempt took, in milliseconds.",
  cron: "The times of the schedule, as a cron expression.",
  timezone: "The IANA time zone of the cron expression.",
  success: "true for every answer with status 200, false for every error.",
  deleted: "true: it is deleted.",
  delivered: "Whether the receiver accepted the event with a 2xx status.",
  recovered: "How many deliveries are sent again.",
  ok: "true: it works.",
  code: "A word for programs. Decide by this, not by the sentence.",
  attempt_log: "All attempts of the delivery, oldest first.",
  preview: "Whether the deployment is a preview, and not production.",
  branch: "The branch or tag that was deployed.",
  role: "Who wrote the message.",
}

const words = (name: string) =>
  name
    .replace(/([a-z])([A-Z])/g, "$1 $2")
    .replaceAll("_", " ")
    .toLowerCase()

/** Times that must be in the future when a request has them. */
const future: Readonly<Record<string, ReadonlyArray<unknown>>> = { expiresAt: ["2100-01-01T00:00:00.000Z"] }

/** The description of a field without one of its own. */
const commonText = (name: string) => (Object.hasOwn(texts, name) ? texts[name]! : `The ${words(name)}.`)

/** A field with a description: its own, else the common one of its name. A reference has that of its target. */
export const fieldText = (name: string, schema: JsonSchema): JsonSchema => {
  if (schema.$ref !== undefined) return schema
  const { description = "", examples } = schema
  const common = description === "" || description === "A ULID." ? commonText(name) : description
  // The known values of an open string.
  const whole = common.startsWith("Known values:") ? `${commonText(name)} ${common}` : common
  const times = examples !== undefined && Object.hasOwn(future, name) ? { examples: future[name]! } : {}
  return { ...schema, description: whole, ...times }
}
