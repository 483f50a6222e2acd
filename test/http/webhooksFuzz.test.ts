/* oxlint-disable vitest/no-standalone-expect, vitest/valid-expect -- it.effect is a test, and expect takes a message */
import { expect, layer } from "@effect/vitest"
import { Arbitrary, Effect } from "effect"
import { onPostgres, TestServer } from "../support/server.ts"
import { bodyFor, either, faultOf, oneOf, text } from "./arbitraries.ts"
import { makeTenant } from "./tenants.ts"
import { faultOfWebhookError, makeThings, nobody, nowhere, webhookEntries } from "./webhookOperations.ts"

/** What of a body is exchanged for something else. */
const fields = [
  ...["url", "signing_secret", "description", "active", "id", "webhook_endpoint_id", "delivery_id", "since", "state"],
  ...["workflow", "input", "deployment_id", "callback_url", "callback_secret", "skip_callbacks", "idempotency_key"],
  ...["limit", "cursor", "lease_seconds", "job_id", "result", "error", "mapped_stack", "status"],
  ...["cron", "timezone", "schedule_id"],
]

/** Which thing an id of a body is of. */
const idFields: Record<string, ReadonlyArray<string>> = {
  id: ["endpoint"],
  webhook_endpoint_id: ["endpoint"],
  delivery_id: ["delivery"],
  job_id: ["queued", "running"],
  schedule_id: ["schedule"],
}

const operations = webhookEntries.map(([, operation]) => ({ operation, body: bodyFor(operation, fields) }))

const requests = Arbitrary.flatMap(oneOf(...operations), ({ operation, body }) =>
  Arbitrary.all({
    operation: Arbitrary.Constant(operation),
    body,
    /** Whose things the body's ids are of; undefined: they stay what they are. */
    of: oneOf<"own" | "foreign" | "nobody" | undefined>("own", "own", "foreign", "nobody", undefined),
    /** Values that schemas do not come upon by chance. */
    good: either(oneOf(true), oneOf(true, false)),
    url: either(oneOf(nowhere, "https://127.0.0.1:9/x", "ftp://a"), text),
    cron: oneOf("* * * * *", "0 4 * * 1", "0 0 31 2 *", "x"),
    caller: oneOf("own", "own", "own", "own", "own", "foreign", "nobody"),
  }),
)
type Case = typeof requests extends Arbitrary.Arbitrary<infer A> ? A : never
type Ids = Readonly<Record<string, string>>

/** The body with ids and values in it that lead somewhere; nothing is to wait for a job. */
const filled = ({ operation, body, of, good, url, cron }: Case, ids: { readonly own: Ids; readonly foreign: Ids }) => {
  const parsed: unknown = body === undefined || body === "x" ? undefined : JSON.parse(body)
  if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) return body
  const changed = { ...parsed } as Record<string, unknown>
  for (const [field, things] of Object.entries(idFields)) {
    if (!(field in changed) || of === undefined) continue
    // What is there stays for the others.
    const whose = of === "own" && operation.path.endsWith("/delete") ? "foreign" : of
    changed[field] = whose === "nobody" ? nobody : ids[whose][things[String(body).length % things.length]!]
  }
  if ("wait_seconds" in changed) changed["wait_seconds"] = 0
  if (good) {
    for (const [field, value] of Object.entries({ url, cron, timezone: "Europe/Berlin", callback_url: url })) {
      if (field in changed) changed[field] = value
    }
    if ("since" in changed) changed["since"] = "2020-01-01T00:00:00Z"
    delete changed["cursor"]
  }
  return JSON.stringify(changed)
}

const servers = {
  "the embedded database": TestServer.layer({ WEBHOOK_RETRY_DELAYS: "1ms,1h" }),
  PostgreSQL: TestServer.layer(Effect.map(onPostgres(), (all) => ({ ...all, WEBHOOK_RETRY_DELAYS: "1ms,1h" }))),
}

for (const [database, server] of Object.entries(servers)) {
  layer(server, { excludeTestServices: true })(database, (it) => {
    it.effect("any JSON at any operation of the webhook interface gets a documented answer", () =>
      Effect.gen(function* () {
        const { logs } = yield* TestServer
        const tenants = { own: yield* makeTenant(), foreign: yield* makeTenant() }
        const ids = { own: yield* makeThings(tenants.own), foreign: yield* makeThings(tenants.foreign) }
        const statuses = new Map<number, number>()
        const result = yield* Arbitrary.checkEffect(
          requests,
          Effect.fnUntraced(function* (request) {
            const { operation, caller } = request
            const headers = { "content-type": "application/json", ...(caller === "nobody" ? { "x-api-key": "x" } : {}) }
            const tenant = tenants[caller === "foreign" ? "foreign" : "own"]
            const sent = { body: filled(request, ids), headers }
            const answer = yield* tenant.ask(operation.path.slice(4), undefined, sent)
            statuses.set(answer.status, (statuses.get(answer.status) ?? 0) + 1)
            const fault = faultOf(operation, answer, faultOfWebhookError)
            return fault === undefined || (yield* Effect.fail(`${fault} to ${sent.body}`))
          }),
          { runs: 300 },
        )
        // The message has what to replay the run with.
        expect(Arbitrary.formatCheckFailure(result)).toBeUndefined()
        for (const status of [200, 400, 401, 404]) expect(statuses.get(status), String(status)).toBeGreaterThan(20)
        expect(logs()).not.toMatch(/A request failed|could not be|cannot be/)
      }),
    )
  })
}
