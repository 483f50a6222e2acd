import { expect } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { layer } from "../../support/it.ts"
import { makeOidcProvider, type OidcProvider } from "../../support/oidc.ts"
import { adminToken, embedded, guarded, TestServer } from "../../support/server.ts"
import { must } from "../operations.ts"
import { all, type Ids, type Listed, makeWorld, requestOf } from "../sessions/world.ts"

type Body = (ids: Ids) => object
interface Grows {
  /** A body with which it stores more; `undefined` is the usual one. */
  readonly more?: Body
  /** A body with which it stores no more. */
  readonly same?: Body
}

const text = "x".repeat(250)
const long = "x".repeat(2_000)

/** Each operation that is not a GET, with how it makes the stored bytes grow, or why it does not. */
const operations: Readonly<Record<string, Grows | string>> = {
  "keys.createForProject": {},
  "keys.createForOrg": {},
  "keys.importKeys": {},
  "keys.update": { more: () => ({ metadata: { text } }), same: () => ({ name: "k", rateLimit: null }) },
  "keys.remove": "removes",
  "keys.rotate": {},
  "keys.validate": "counters are a bounded part of a key",
  "keys.token": "stores nothing",
  "roles.put": { more: () => ({ permissions: [text.slice(128)] }), same: () => ({ permissions: ["models.*"] }) },
  "roles.remove": "removes",
  "secretScanning.github": "disables keys",
  "orgs.create": "has its own limit",
  "orgs.update": "the administrator's own row of the org",
  "orgs.remove": "removes",
  "alerts.create": {},
  "alerts.update": { more: () => ({ name: text }), same: () => ({ name: "b", active: true }) },
  "alerts.remove": "removes",
  "alerts.test": "stores nothing",
  "serviceAlerts.create": "of no org",
  "serviceAlerts.update": "of no org",
  "serviceAlerts.remove": "of no org",
  "serviceAlerts.test": "of no org",
  "projects.create": { more: ({ orgId }) => ({ name: "q", orgId }) },
  "projects.update": { more: () => ({ name: text }), same: () => ({ name: "q" }) },
  "projects.remove": "removes",
  "projects.putLink": {},
  "projects.removeLink": "removes",
  // The run is there.
  "deployments.register": { same: () => ({}) },
  "deployments.promote": "another deployment is the current one",
  "chat.answer": "questions are bounded for a project",
  "chat.feedback": "questions are bounded for a project",
  "docs.put": {},
  "docs.remove": "removes",
  "docs.eraseQuestions": "removes",
  "docs.mcp": "questions are bounded for a project",
  "sessions.create": "sessions are bounded for a credential",
  "sessions.remove": "removes",
  "sessions.openPortal": "sessions are bounded for a credential",
  "webhooks.create": {},
  "webhooks.update": {
    more: ({ endpoint }) => ({ id: endpoint, description: text }),
    same: ({ endpoint }) => ({ id: endpoint, active: true, max_per_second: 5 }),
  },
  "webhooks.delete": "removes",
  "webhooks.test": "stores nothing",
  "webhooks.rotatePublicKey": "an org has at most two",
  "deliveries.retry": "the delivery is there",
  "deliveries.recover": "the deliveries are there",
  "deliveries.resend": "the deliveries are there",
  "deliveries.cancelResend": "removes",
  "events.publish": {},
  "events.publishBatch": {},
  "eventTypes.create": {},
  "eventTypes.update": {
    more: () => ({ name: "order.placed", example: { text } }),
    same: () => ({ name: "order.placed", deprecated: true }),
  },
  "eventTypes.delete": "removes",
  "jobs.create": {},
  "jobs.createBatch": {},
  "jobs.claim": "the job is there",
  "jobs.heartbeat": {
    more: ({ running }) => ({ job_id: running, attempt: 1, lines: [{ text: long }] }),
    same: ({ running }) => ({ job_id: running, attempt: 1 }),
  },
  "jobs.log": { more: ({ running }) => ({ job_id: running, attempt: 1, lines: [{ text: long }] }) },
  "jobs.step": { more: ({ running }) => ({ job_id: running, attempt: 1, name: "a", result: long }) },
  "jobs.complete": { more: ({ running }) => ({ job_id: running, result: long }) },
  "jobs.completeBatch": { more: ({ running }) => ({ jobs: [{ job_id: running, result: long }] }) },
  "jobs.fail": {
    more: ({ running }) => ({ job_id: running, error: long }),
    same: ({ running }) => ({ job_id: running, error: "short" }),
  },
  "jobs.cancel": "the job is there",
  "jobs.retry": "the jobs are there",
  "jobs.endSweep": "removes",
  "schedules.create": {},
  "schedules.update": {
    more: ({ schedule }) => ({ schedule_id: schedule, input: text }),
    same: ({ schedule }) => ({ schedule_id: schedule, cron: "0 5 * * *" }),
  },
  "schedules.run": {},
  "schedules.delete": "removes",
  "workflows.set": {
    more: () => ({ workflow: "another", concurrency: 5 }),
    same: () => ({ workflow: "limited", concurrency: 6 }),
  },
  "workflows.delete": "removes",
  "portal.link": "links are bounded for a credential",
  "portal.revokeLink": "removes",
}

/** Lists, which are a POST under `/v1`. */
const isRead = ({ id, method }: Listed) =>
  method === "GET" || /\.(list|get|listLinks|resends|sweeps|causes|queue|types|logs|publicKey)$/.test(id)
const writing = all.filter((operation) => !isRead(operation))
const listed = Object.entries(operations).map(([id, row]) => ({ row, ...writing.find((one) => one.id === id)! }))
const growing = listed.flatMap(({ row, ...one }) => (typeof row === "string" ? [] : [{ ...one, ...row }]))

class Provider extends Context.Service<Provider, OidcProvider>()("test/Provider") {
  static readonly layer = Layer.effect(Provider, makeOidcProvider())
}

const environment = Effect.map(Provider, ({ audience, issuer }) => ({
  ...guarded,
  GITHUB_OIDC_ISSUER: issuer,
  OIDC_AUDIENCE: audience,
}))

/** An org at its limit of stored bytes; returns how its operations are called. */
const atLimit = Effect.gen(function* () {
  const { send } = yield* TestServer
  const { sign } = yield* Provider
  const { ids, tenant } = yield* makeWorld
  const { headers, orgId } = tenant
  const manage = (method: string, path: string, json: object) =>
    must(send, method, `/api/v0/orgs/${orgId}${path}`, { json, as: adminToken })
  const register = Effect.fnUntraced(function* (run_id: string) {
    const repository_owner = `octo-${orgId}`
    const as = yield* sign({ repository_owner, repository: `${repository_owner}/site`, repository_id: "1", run_id })
    return yield* send("POST", "/api/v0/register-deployment", { json: {}, as })
  })
  for (const role of ["another", "support"]) yield* manage("PUT", `/roles/${role}`, { permissions: ["models.*"] })
  const alert = { name: "b", condition: "endpoint_deactivated", target: "slack", url: "https://localhost:9/" }
  const { alertId } = yield* manage("POST", "/alerts", alert)
  const registered = yield* register("1")
  expect(registered.status, registered.text).toBe(200)
  yield* manage("PATCH", "", { limits: { storedBytes: 1 } })

  return ({ body, ...operation }: Listed & { readonly body?: Body | undefined }) => {
    if (operation.id === "deployments.register") return register(body === undefined ? "2" : "1")
    const known = { ...ids, name: "support", ...(operation.id.startsWith("alerts.") ? { id: alertId! } : {}) }
    const { path, ...usual } = requestOf(operation, known)
    const request = body === undefined ? usual : { json: body(known) }
    const credential = operation.path.startsWith("/v1/") ? { headers } : { as: adminToken }
    return send(operation.method, path, { ...request, ...credential })
  }
})

for (const [database, more] of Object.entries({ "the embedded database": embedded, PostgreSQL: {} })) {
  const server = TestServer.layer(Effect.map(environment, (all) => ({ ...all, ...more })))
  layer(Layer.provideMerge(server, Provider.layer), { excludeTestServices: true })(
    `operations at the limit of stored bytes, on ${database}`,
    (it) => {
      it.effect("each has its row here", () =>
        Effect.sync(() => expect(Object.keys(operations).toSorted()).toEqual(writing.map(({ id }) => id).toSorted())),
      )

      it.effect("each that makes them grow is refused, each other is not", function* () {
        const call = yield* atLimit
        for (const { more, same: _, ...one } of growing) {
          const { status, text } = yield* call({ ...one, body: more })
          expect(text, `${one.id}: ${status}`).toContain('"limit_reached"')
          expect(text, one.id).toContain("stored bytes")
        }
        for (const { more: _, same, ...one } of growing) {
          if (same === undefined) continue
          const { status, text } = yield* call({ ...one, body: same })
          expect(status, `${one.id}: ${text}`).toBe(200)
        }
        // What removes comes last.
        const others = listed.filter(({ row }) => typeof row === "string")
        for (const { row: _, ...one } of others.toSorted(
          (a, b) => Number(a.row === "removes") - Number(b.row === "removes"),
        )) {
          const { status, text } = yield* call(one)
          expect(text, `${one.id}: ${status}`).not.toContain("limit_reached")
        }
      })
    },
  )
}
