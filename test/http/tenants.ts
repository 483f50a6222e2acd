import { Effect } from "effect"
import type { Delivery, DeliveryDetail } from "#src/domain/webhooks/DeliveryLog.ts"
import { TestServer } from "../support/server.ts"
import * as waits from "../support/wait.ts"
import type { WireRequest } from "../support/wire.ts"
import { must } from "./operations.ts"

type ListedDelivery = typeof Delivery.Encoded
type Fields = Readonly<Record<string, unknown>>

/** An org with a key, and its requests to the webhook interface. */
export const makeTenant = Effect.fnUntraced(function* (as?: string) {
  const { send } = yield* TestServer
  const { orgId } = yield* must(send, "POST", "/api/v0/orgs", { json: { name: "Acme" }, as })
  const { key, id } = yield* must(send, "POST", `/api/v0/orgs/${orgId}/keys`, { json: { name: "k" }, as })
  const headers = { "x-api-key": key! }

  const ask = (path: string, json?: unknown, request: WireRequest = {}) =>
    send("POST", `/v1/${path}`, { json, ...request, headers: { ...headers, ...request.headers } })
  const call = (path: string, json?: unknown) => must(send, "POST", `/v1/${path}`, { json, headers })

  /** Creates an endpoint; returns its id. */
  const endpoint = (url: string, fields: Fields = {}) =>
    Effect.map(call("webhooks/create", { url, signing_secret: "secret", ...fields }), (made) =>
      String(made["webhook_endpoint_id"]),
    )
  /** Creates and completes a job; returns its id. */
  const finished = (fields: Fields = {}, result: unknown = null) =>
    Effect.gen(function* () {
      const { job_id } = yield* call("jobs/create", { workflow: "w", ...fields })
      yield* call("jobs/complete", { job_id, result })
      return String(job_id)
    })
  const deliveries = (filter: Fields) =>
    Effect.map(
      call("webhooks/deliveries/list", filter),
      (page) => page["deliveries"] as unknown as Array<ListedDelivery>,
    )
  const delivery = (delivery_id: string) =>
    Effect.map(
      call("webhooks/deliveries/get", { delivery_id }),
      (one) => one as unknown as typeof DeliveryDetail.Encoded,
    )

  /** Waits until a delivery meets the condition: it is recorded a little after its receiver gets it. */
  const until = (delivery_id: string, expected: (delivery: typeof DeliveryDetail.Encoded) => boolean) =>
    waits.until("the delivery", delivery(delivery_id), expected)
  /** The only delivery of a job, once an attempt of it is recorded. */
  const attempted = Effect.fnUntraced(function* (job_id: string, attempts = 1) {
    const [only, ...others] = yield* deliveries({ job_id })
    if (only === undefined || others.length > 0) return yield* Effect.die(new Error("The job has not one delivery"))
    return yield* until(only.delivery_id, (found) => found.attempts >= attempts)
  })

  return {
    orgId: orgId!,
    key: key!,
    keyId: id!,
    headers,
    ask,
    call,
    endpoint,
    finished,
    deliveries,
    delivery,
    until,
    attempted,
  }
})
export type Tenant = Effect.Success<ReturnType<typeof makeTenant>>
