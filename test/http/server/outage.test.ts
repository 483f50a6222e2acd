import { expect } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { freshPostgres } from "../../support/databases.ts"
import { it } from "../../support/it.ts"
import { proxied } from "../../support/proxy.ts"
import { adminToken, encryptionKey, guarded, TestServer } from "../../support/server.ts"
import { faultOfWebhookError, nobody, webhookBody, webhookEntries } from "../webhooks/webhookOperations.ts"
import { bodyOf, faultOfError, must, type Operation, type OperationName, operations, pathOf } from "../operations.ts"

/** Promise (Valid keys): Without the database, no response is a false 401 or 404. */

it.live("without its database, the service answers 503 and never a false 401 or 404, and it recovers", function* () {
  const database = yield* Effect.flatMap(freshPostgres(), proxied)
  const server = TestServer.layer({ ...guarded, DATABASE_URL: database.url, ENCRYPTION_KEY: encryptionKey })
  const { send, logs } = Context.get(yield* Layer.build(server), TestServer)
  const { projectId, orgId } = yield* must(send, "POST", "/api/v0/projects", {
    json: { name: "p" },
    as: adminToken,
  })
  const { key, id } = yield* must(send, "POST", `/api/v0/orgs/${orgId}/keys`, {
    json: { name: "k" },
    as: adminToken,
  })
  const ids = { projectId: projectId!, orgId: orgId!, id: id!, key: key! }
  const all = Object.entries(operations) as ReadonlyArray<readonly [OperationName, Operation]>
  /** The status of every operation with a credential. */
  const statuses = (as: string) =>
    Effect.forEach(
      all.filter(([name]) => name !== "register" && name !== "deleteKey"),
      ([name, operation]) => send(operation.method, pathOf(operation, ids), { json: bodyOf(name, ids), as }),
      { concurrency: "unbounded" },
    )

  yield* database.close
  for (const as of [adminToken, key!]) {
    for (const answer of yield* statuses(as)) {
      expect([answer.status, faultOfError(answer)], answer.text).toEqual([503, undefined])
    }
  }
  const none = { endpoint: nobody, delivery: nobody, queued: nobody, running: nobody, schedule: nobody }
  const asTenant = Effect.forEach(
    webhookEntries,
    ([name, { path }]) => send("POST", path, { json: webhookBody(name, none) ?? {}, headers: { "x-api-key": key! } }),
    { concurrency: "unbounded" },
  )
  for (const answer of yield* asTenant) {
    expect([answer.status, faultOfWebhookError(answer)], answer.text).toEqual([503, undefined])
  }
  expect((yield* send("GET", "/readyz")).status).toBe(503)
  expect((yield* send("GET", "/healthz")).status).toBe(200)
  const metrics = yield* send("GET", "/metrics")
  expect(metrics.status).toBe(200)
  expect(metrics.text).toMatch(/^gatehouse_key_validations_total\{outcome="unavailable",source="database"\} [1-9]/m)
  expect(metrics.text).toMatch(/^gatehouse_database_operation_duration_seconds_count\{outcome="unavailable"\} [1-9]/m)
  // An unknown value has no metric.
  expect(metrics.text).not.toContain("gatehouse_deliveries_due")
  // Answers that need no database stay the same.
  expect((yield* send("GET", "/api/v0/orgs")).status).toBe(401)
  expect((yield* send("GET", "/nope")).status).toBe(404)
  expect(logs()).not.toContain(key!.slice(12))

  yield* database.heal
  yield* must(send, "GET", "/readyz").pipe(Effect.catchDefect(() => must(send, "GET", "/readyz")))
  for (const { status, text } of yield* statuses(adminToken)) expect(status, text).toBe(200)
})
