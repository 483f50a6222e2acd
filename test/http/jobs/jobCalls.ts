/* oxlint-disable vitest/valid-expect -- expect takes a message */
import { Effect } from "effect"
import { expect } from "@effect/vitest"
import type { ClaimedJob, Job } from "#src/domain/jobs/Job.ts"
import { TestServer } from "../../support/server.ts"
import type { Tenant } from "../tenants.ts"
import { faultOfWebhookError } from "../webhooks/webhookOperations.ts"

/** Creates a job; returns its id. */
export const make = (tenant: Tenant, fields: object = {}) =>
  Effect.map(tenant.call("jobs/create", { workflow: "w", ...fields }), ({ job_id }) => job_id!)
export const get = (tenant: Tenant, job_id: string) =>
  Effect.map(tenant.call("jobs/get", { job_id }), (job) => job as unknown as typeof Job.Encoded)
export const claim = (tenant: Tenant, fields: object = {}) =>
  Effect.map(
    tenant.call("jobs/claim", fields),
    ({ jobs }) => jobs as unknown as ReadonlyArray<typeof ClaimedJob.Encoded>,
  )
/** The status of an answer; an error must be as documented. */
export const status = (tenant: Tenant, path: string, json: object) =>
  Effect.map(tenant.ask(path, json), (answer) => {
    if (answer.status !== 200) expect(faultOfWebhookError(answer), path).toBeUndefined()
    return answer.status
  })
/** The events of a job. */
export const events = (tenant: Tenant, job_id: string) =>
  Effect.flatMap(
    TestServer,
    ({ sql }) => sql`SELECT id FROM events WHERE job_id = ${job_id} AND org_id = ${tenant.orgId}`,
  )
