import { assert } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { DeploymentRepository } from "#src/domain/deployments/Deployments.ts"
import { ProjectRepository } from "#src/domain/projects/Projects.ts"
import * as DeploymentsSql from "#src/infrastructure/deployments/deploymentsSql.ts"
import * as ProjectsSql from "#src/infrastructure/projects/projectsSql.ts"
import { EventRepository } from "#src/domain/webhooks/EventRepository.ts"
import { deactivated } from "#src/domain/webhooks/Event.ts"
import { makeServiceEvent } from "#src/domain/ServiceEvent.ts"
import type { ServiceEventType } from "#src/domain/ServiceEvent.ts"
import { serviceEventData } from "#src/domain/webhooks/serviceEventData.ts"
import { Sweeps } from "#src/domain/sweeps/Sweeps.ts"
import { Wakeups } from "#src/domain/Wakeups.ts"
import { WebhookEndpointRepository } from "#src/domain/webhooks/WebhookEndpointRepository.ts"
import * as DeliveryLogSql from "#src/infrastructure/webhooks/deliveryLogSql.ts"
import * as DeliveryQueueSql from "#src/infrastructure/webhooks/deliveryQueueSql.ts"
import * as EventsSql from "#src/infrastructure/webhooks/eventsSql.ts"
import * as JobsSql from "#src/infrastructure/jobs/jobsSql.ts"
import * as OrgsSql from "#src/infrastructure/orgs/orgsSql.ts"
import * as SweepsSql from "#src/infrastructure/sweeps/sweepsSql.ts"
import * as WebhookEndpointsSql from "#src/infrastructure/webhooks/webhookEndpointsSql.ts"
import { SecureRandom } from "effect/crypto"
import * as crypto from "../../fakes/crypto.ts"
import { databases } from "../../support/databases.ts"
import { layer } from "../../support/it.ts"
import { anyRules, everyOrg, insertOrg, newEntry, newId, newRepository, push } from "../support.ts"
import {
  attempt,
  claim,
  deliveriesOf,
  epoch,
  findDelivery,
  insertEndpoint,
  plus,
  publish,
  record,
  updateEndpoint,
} from "./webhookSupport.ts"

const sql = Layer.mergeAll(
  DeliveryLogSql.layer,
  DeliveryQueueSql.layer,
  DeploymentsSql.layer,
  ProjectsSql.layer,
  EventsSql.layer,
  JobsSql.layer,
  OrgsSql.layer,
  Sweeps.layer.pipe(
    Layer.provideMerge(SweepsSql.layer.pipe(Layer.provide(JobsSql.layer))),
    Layer.provide(Wakeups.layer),
  ),
  WebhookEndpointsSql.layer,
).pipe(Layer.provideMerge(crypto.layer))

const sweep = Effect.flatMap(Sweeps, ({ run }) => run)
const typesOf = (orgId: string) =>
  EventRepository.use((events) =>
    Effect.map(events.list(orgId, undefined, { limit: 100 }), (all) => all.map(({ type }) => type).toSorted()),
  )
/** The types and data of the service's own events that an endpoint got. */
const toldTo = Effect.fnUntraced(function* (orgId: string, endpoint: string) {
  const all = (yield* deliveriesOf(orgId, { webhook_endpoint_id: endpoint })).filter(({ job_id }) => job_id === null)
  return yield* Effect.forEach(
    all.filter(({ event }) => event.startsWith("endpoint.") || event.startsWith("delivery.")),
    ({ delivery_id, state }) =>
      Effect.map(findDelivery(orgId, delivery_id), ({ payload }) => {
        const { data, event } = JSON.parse(payload) as { event: string; data: Record<string, unknown> }
        assert.deepStrictEqual(Object.keys(data), Object.keys(serviceEventData[event as ServiceEventType].data))
        return { event, data, state }
      }),
  )
})

for (const database of ["embedded", "postgres"] as const) {
  layer(Layer.provideMerge(sql, databases[database]), { excludeTestServices: true })(
    `the service's own events on ${database}`,
    (it) => {
      it.effect(
        "a failed delivery creates an event for the endpoints with its type, but not for the endpoint that failed",
        function* () {
          const { orgId } = yield* insertOrg()
          const now = epoch()
          const broken = yield* insertEndpoint(orgId, { eventTypes: ["invoice.*", "delivery.*"] })
          const watcher = yield* insertEndpoint(orgId, { eventTypes: ["delivery.failed"] })
          yield* insertEndpoint(orgId)
          const event_id = yield* publish(orgId, "invoice.paid", now)
          const claimed = (yield* claim(now)).filter(({ endpointId }) => endpointId === broken)
          assert.strictEqual(claimed.length, 1)
          yield* record([attempt(claimed[0]!, "Exhausted", now)], now)
          yield* sweep
          assert.deepStrictEqual(yield* toldTo(orgId, watcher), [
            {
              event: "delivery.failed",
              data: {
                delivery_id: claimed[0]!.deliveryId,
                event_id,
                event: "invoice.paid",
                webhook_endpoint_id: broken,
                attempts: 1,
                last_status: 500,
                last_error: null,
              },
              state: "pending",
            },
          ])
          assert.deepStrictEqual(yield* toldTo(orgId, broken), [])
        },
      )

      // Seen failing: the endpoint stays active, and nobody was told of either.
      it.effect("a delivery that has failed is told, also when it would have deactivated its endpoint", function* () {
        const { orgId } = yield* insertOrg()
        const now = epoch()
        const moved = yield* insertEndpoint(orgId, { eventTypes: ["invoice.*"] })
        const watcher = yield* insertEndpoint(orgId, { eventTypes: ["delivery.failed", "endpoint.deactivated"] })
        yield* publish(orgId, "invoice.paid", now)
        const [claimed] = yield* claim(now)
        yield* updateEndpoint(orgId, moved, now, { url: "https://example.org/new" })
        yield* record([attempt(claimed!, "Deactivate", now)], now)
        yield* sweep
        assert.deepStrictEqual(
          (yield* toldTo(orgId, watcher)).map(({ data, event }) => [event, data["webhook_endpoint_id"]]),
          [["delivery.failed", moved]],
        )
      })

      it.effect(
        "a failed delivery of such an event creates no further event, so two dead endpoints do not notify each other",
        function* () {
          const { orgId } = yield* insertOrg()
          const now = epoch()
          const own = ["delivery.*", "endpoint.*"]
          const [a, b] = [
            yield* insertEndpoint(orgId, { eventTypes: ["invoice.*", ...own] }),
            yield* insertEndpoint(orgId, { eventTypes: own }),
          ]
          yield* insertEndpoint(orgId, { eventTypes: own })
          yield* publish(orgId, "invoice.paid", now)
          const [first] = yield* claim(now)
          // Endpoint A is deactivated. B gets the event, fails, and is deactivated too.
          yield* record([attempt(first!, "Deactivate", now)], now)
          yield* sweep
          assert.deepStrictEqual(
            (yield* toldTo(orgId, b)).map(({ data, event }) => [event, data["webhook_endpoint_id"], data["reason"]]),
            [["endpoint.deactivated", a, "gone"]],
          )
          const later = plus(now, 1)
          const toB = (yield* claim(later, { limit: 1000 })).filter(({ endpointId }) => endpointId === b)
          assert.strictEqual(toB.length, 1)
          yield* record([attempt(toB[0]!, "Deactivate", later)], later)
          yield* sweep
          assert.deepStrictEqual(yield* typesOf(orgId), ["endpoint.deactivated", "invoice.paid"])
          assert.deepStrictEqual(yield* toldTo(orgId, a), [])
        },
      )

      it.effect("the deactivation of an endpoint is sent to the others once, with its reason", function* () {
        const { orgId } = yield* insertOrg()
        const now = epoch()
        const [subject, watcher] = [
          yield* insertEndpoint(orgId, { eventTypes: ["endpoint.*"] }),
          yield* insertEndpoint(orgId, { eventTypes: ["endpoint.deactivated"] }),
        ]
        const random = yield* SecureRandom.SecureRandom
        const entry = (reason: "by_request" | "failing") =>
          Effect.map(makeServiceEvent(random, deactivated(subject, reason), now), (event) => newEntry({ event }))
        const repository = yield* WebhookEndpointRepository
        const change = { url: undefined, secret: undefined, previousSecretUntil: now, description: undefined, now }
        for (let times = 0; times < 2; times++) {
          yield* repository.update(orgId, subject, { ...change, active: false }, yield* entry("by_request"))
        }
        yield* updateEndpoint(orgId, subject, now, { active: true })
        assert.isTrue(yield* repository.deactivate(orgId, subject, now, yield* entry("failing")))
        yield* sweep
        assert.deepStrictEqual((yield* toldTo(orgId, watcher)).map(({ data }) => data["reason"]).toSorted(), [
          "by_request",
          "failing",
        ])
        assert.deepStrictEqual(yield* toldTo(orgId, subject), [])
      })

      it.effect("a registered deployment is sent once, with its project", function* () {
        const { orgId } = yield* insertOrg()
        const now = epoch()
        const watcher = yield* insertEndpoint(orgId, { eventTypes: ["deployment.registered"] })
        const projects = yield* ProjectRepository
        const repository = newRepository()
        const project = yield* projects.insert(
          { projectId: yield* newId, name: "docs", orgId, newOrgId: yield* newId, now },
          newEntry(),
        )
        const linked = { hostOwner: repository.owner, hostRepo: repository.repo }
        yield* projects.update(everyOrg, project.projectId, linked, now, newEntry())
        const random = yield* SecureRandom.SecureRandom
        const run = push(repository)
        const rules = { ...anyRules, allowedOwners: "linked" } as const
        for (let times = 0; times < 2; times++) {
          const [deploymentId, newProjectId] = [yield* newId, yield* newId]
          const data = { deployment_id: deploymentId, project_id: newProjectId }
          const event = yield* makeServiceEvent(random, { type: "deployment.registered", data }, now)
          const ids = { deploymentId, newProjectId, newOrgId: yield* newId }
          yield* DeploymentRepository.use((all) => all.register({ run, ...ids, now, event, rules }))
        }
        yield* sweep
        const [delivery, ...others] = yield* deliveriesOf(orgId, { webhook_endpoint_id: watcher })
        assert.deepStrictEqual(others, [])
        const { payload } = yield* findDelivery(orgId, delivery!.delivery_id)
        assert.strictEqual(JSON.parse(payload).data.project_id, project.projectId)
      })

      it.effect("no event is written while no endpoint names its type, and * does not match it", function* () {
        const { orgId } = yield* insertOrg()
        const now = epoch()
        const broken = yield* insertEndpoint(orgId, { eventTypes: ["invoice.*"] })
        yield* insertEndpoint(orgId)
        yield* insertEndpoint(orgId, { eventTypes: ["*"] })
        yield* publish(orgId, "invoice.paid", now)
        const claimed = yield* claim(now)
        yield* record(
          claimed.map((one) => attempt(one, one.endpointId === broken ? "Exhausted" : "Delivered", now)),
          now,
        )
        assert.deepStrictEqual(yield* typesOf(orgId), ["invoice.paid"])
        const sql = yield* SqlClient.SqlClient
        assert.deepStrictEqual(yield* sql`SELECT id FROM sweeps WHERE org_id = ${orgId}`, [])
      })

      it.effect("a worker that lost its claim creates no event", function* () {
        const { orgId } = yield* insertOrg()
        const now = epoch()
        yield* insertEndpoint(orgId, { eventTypes: ["invoice.*"] })
        yield* insertEndpoint(orgId, { eventTypes: ["delivery.*"] })
        yield* publish(orgId, "invoice.paid", now)
        const [first] = yield* claim(now)
        const later = plus(now, 61)
        const [second] = yield* claim(later)
        yield* record([attempt(second!, "Delivered", later)], later)
        yield* record([attempt(first!, "Exhausted", later)], later)
        assert.deepStrictEqual(yield* typesOf(orgId), ["invoice.paid"])
      })

      it.effect(
        "more failed deliveries than one batch of events has, to more endpoints than one event queues at once, all arrive",
        function* () {
          const { orgId } = yield* insertOrg()
          const now = epoch()
          const broken = yield* insertEndpoint(orgId, { eventTypes: ["invoice.*"] })
          const watchers = yield* Effect.replicateEffect(insertEndpoint(orgId, { eventTypes: ["delivery.*"] }), 40)
          for (let n = 0; n < 120; n++) yield* publish(orgId, "invoice.paid", now)
          const claimed = yield* claim(now, { limit: 200, laneCap: 200 })
          assert.strictEqual(claimed.filter(({ endpointId }) => endpointId === broken).length, 120)
          yield* record(
            claimed.map((one) => attempt(one, "Exhausted", now)),
            now,
          )
          yield* sweep
          for (const watcher of [watchers[0]!, watchers[39]!]) {
            assert.strictEqual((yield* deliveriesOf(orgId, { webhook_endpoint_id: watcher })).length, 120)
          }
        },
      )
    },
  )
}
