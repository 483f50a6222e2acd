import type { ServiceEventType } from "../ServiceEvent.ts"

type JsonSchema = Readonly<Record<string, unknown>>

/** An event of the service's own: its `data` by field, each with its schema and an example. */
interface DescribedEvent {
  readonly summary: string
  readonly data: Readonly<Record<string, readonly [schema: JsonSchema, example: unknown]>>
}

const ulid = "01KAF8ZJ3N5YQ2R7W9B4C6D8EF"
const id = (description: string) => [{ type: "string", description }, ulid] as const
const serviceText = (description: string, example: string) => [{ type: "string", description }, example] as const
const orNull = (description: string, example: string | null) =>
  [{ type: ["string", "null"], description }, example] as const
const number = (description: string, example: number) => [{ type: "integer", description }, example] as const

const reasons = ["gone", "failing", "by_request"]
const prefix = serviceText("The visible start of the new key.", "svc_4fJq2Lxz")

/** The events of the service's own. Endpoints receive those that their `event_types` name. */
export const serviceEventData: Readonly<Record<ServiceEventType, DescribedEvent>> = {
  "endpoint.deactivated": {
    summary: "An endpoint is inactive from now on",
    data: {
      webhook_endpoint_id: id("The endpoint."),
      reason: [
        {
          type: "string",
          description: `Why. Known values: ${reasons.join(", ")}. Later versions may have more.`,
          "x-extensible-enum": reasons,
        },
        "gone",
      ],
    },
  },
  "delivery.failed": {
    summary: "A delivery has no attempt left",
    data: {
      delivery_id: id("The delivery."),
      event_id: id("The event that was not delivered."),
      event: serviceText("The type of that event.", "invoice.paid"),
      webhook_endpoint_id: orNull("The endpoint. null: the callback of a job.", ulid),
      attempts: number("How many attempts were made.", 10),
      last_status: [
        { type: ["integer", "null"], description: "The status of the last answer. null: there was none." },
        503,
      ],
      last_error: orNull("Why there was no answer, in a sentence. null: there was one.", null),
    },
  },
  "deployment.registered": {
    summary: "A CI run registered a deployment",
    data: {
      deployment_id: id("The deployment."),
      project_id: id("Its project."),
      provider: serviceText("The CI provider, such as github.", "github"),
      repository: serviceText("The repository, with its owner.", "octo-org/docs"),
      run_id: serviceText("The id of the run at its provider.", "19204821377"),
      run_attempt: number("The attempt of the run, from 1.", 1),
      branch: serviceText("The branch or tag.", "main"),
      ref: serviceText("The git ref.", "refs/heads/main"),
      sha: serviceText(
        "The commit. Empty for providers that do not name it.",
        "1e3b6c5d8f2a4907b6c1d0e9f8a7b6c5d4e3f2a1",
      ),
      actor: orNull("Who started the run. null: unknown.", "octocat"),
    },
  },
  "deployment.promoted": {
    summary: "A deployment was made current by hand",
    data: { deployment_id: id("The deployment."), project_id: id("Its project.") },
  },
  "key.created": {
    summary: "A key was created",
    data: {
      key_id: id("The key."),
      project_id: orNull("The project of a project key. null: an org key.", null),
      name: serviceText("The name of the key.", "ci"),
      prefix: serviceText("The visible start of the key.", "svc_4fJq2Lxz"),
      expires_at: [
        { type: ["string", "null"], format: "date-time", description: "When the key expires. null: never." },
        null,
      ],
    },
  },
  "key.rotated": {
    summary: "A key was replaced",
    data: {
      key_id: id("The new key."),
      prefix,
      replaced_key_id: id("The key that it replaces."),
      replaced_key_valid_until: [
        { type: "string", format: "date-time", description: "When the replaced key ends." },
        "2026-11-21T17:00:00.000Z",
      ],
    },
  },
  "key.deleted": { summary: "A key was deleted", data: { key_id: id("The key.") } },
  "key.leaked": {
    summary: "A key was found in public, and is disabled",
    data: {
      key_id: id("The key."),
      url: orNull("Where it was found. null: unknown.", "https://github.com/octo-org/docs"),
    },
  },
}

/** Example data of an event of the service's own. */
export const exampleData = (type: ServiceEventType): Readonly<Record<string, unknown>> =>
  Object.fromEntries(Object.entries(serviceEventData[type].data).map(([field, [, example]]) => [field, example]))
