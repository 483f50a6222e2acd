import { Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { OrgRepository } from "#src/domain/orgs/Orgs.ts"
import { Nodes, noNodes } from "#src/infrastructure/database/Nodes.ts"
import * as AuditLogSql from "#src/infrastructure/audit/auditLogSql.ts"
import * as DeliveryLogSql from "#src/infrastructure/webhooks/deliveryLogSql.ts"
import * as DeliveryQueueSql from "#src/infrastructure/webhooks/deliveryQueueSql.ts"
import * as EventsSql from "#src/infrastructure/webhooks/eventsSql.ts"
import * as JobsSql from "#src/infrastructure/jobs/jobsSql.ts"
import * as JobSchedulesSql from "#src/infrastructure/jobs/jobSchedulesSql.ts"
import * as OrgsSql from "#src/infrastructure/orgs/orgsSql.ts"
import * as PendingDeliveriesSql from "#src/infrastructure/orgs/pendingDeliveriesSql.ts"
import * as SigningKeysSql from "#src/infrastructure/webhooks/signingKeysSql.ts"
import * as WebhookEndpointsSql from "#src/infrastructure/webhooks/webhookEndpointsSql.ts"
import * as crypto from "../../fakes/crypto.ts"
import * as fakes from "../../fakes/webhooks.ts"
import { WebhookWorld } from "../../fakes/WebhookWorld.ts"
import { databases, databaseWithNode } from "../../support/databases.ts"
import { layer, toEffect } from "../../support/it.ts"
import { webhookLimits } from "./webhookLimits.ts"
import { backlog } from "./backlog.ts"
import { claims, emptyQueue } from "./claims.ts"
import { deliveryLog } from "./deliveryLog.ts"
import { deliveryTimes } from "./deliveryTimes.ts"
import { dueDeliveries } from "./dueDeliveries.ts"
import { endpoints } from "./endpoints.ts"
import { endpointHealth } from "./endpointHealth.ts"
import * as Events from "./events.ts"
import { jobBatches } from "../jobs/jobBatches.ts"
import { jobKeys } from "../jobs/jobKeys.ts"
import { jobLeases } from "../jobs/jobLeases.ts"
import { jobQueue } from "../jobs/jobQueue.ts"
import { jobRetries } from "../jobs/jobRetries.ts"
import { jobLines } from "../jobs/jobLines.ts"
import { jobReports } from "../jobs/jobReports.ts"
import { jobs } from "../jobs/jobs.ts"
import { workflows } from "../jobs/workflows.ts"
import { webhookPages } from "../pages.ts"
import { ownEvents } from "./ownEvents.ts"
import { lanesWithRules } from "./lanesWithRules.ts"
import { signingKeys } from "./signingKeys.ts"
import { outbox } from "./outbox.ts"
import * as Throttles from "./throttles.ts"
import { outboxRaces } from "./outboxRaces.ts"
import { records } from "./records.ts"
import { retries } from "./retries.ts"
import { schedules } from "../jobs/schedules.ts"
import { shares } from "./shares.ts"

/** Promise (Nodes): The contract of jobs and webhooks holds on a node. */

/**
 * Moves what earlier tests left in the backlog to the head of the queue, where the times of `epoch` keep tests apart.
 */
class Leftovers extends Context.Service<Leftovers, { readonly putOff: Effect.Effect<void> }>()("test/Leftovers") {
  static readonly sql = Layer.effect(
    Leftovers,
    Effect.map(SqlClient.SqlClient, (sql) => {
      const putOff = sql`UPDATE pending_deliveries SET backlogged = false WHERE backlogged`
      return Leftovers.of({ putOff: Effect.asVoid(Effect.orDie(putOff)) })
    }),
  )
  static readonly fake = Layer.effect(
    Leftovers,
    Effect.map(WebhookWorld, ({ deliveries }) => {
      const putOff = Effect.sync(() =>
        deliveries.forEach((delivery, id) => void deliveries.set(id, { ...delivery, backlogged: false })),
      )
      return Leftovers.of({ putOff })
    }),
  )
}

/** With it, a test runs a resend to its end. The fake has none, so no type names it. */
const client: Layer.Layer<never, never, SqlClient.SqlClient> = Layer.effect(SqlClient.SqlClient, SqlClient.SqlClient)
const platform = Layer.mergeAll(AuditLogSql.layer, OrgsSql.layer)
const tenants = Layer.mergeAll(
  DeliveryLogSql.layer,
  DeliveryQueueSql.layer,
  Events.sql,
  Leftovers.sql,
  Throttles.sql,
  EventsSql.layer,
  JobsSql.layer,
  JobSchedulesSql.layer,
  PendingDeliveriesSql.layer,
  SigningKeysSql.layer,
  WebhookEndpointsSql.layer,
  client,
).pipe(Layer.provide(crypto.layer))
const sql = Layer.merge(platform, tenants)

/** The tenants' repositories on a node, which gets the orgs of the platform's database. */
const onNode = Layer.unwrap(
  Effect.gen(function* () {
    const {
      all: [node],
    } = yield* Nodes
    yield* node!.migrated
    // Taken in both logs: `assertAudited` needs an entry whose id is.
    const taking = Layer.effect(
      OrgRepository,
      Effect.map(OrgRepository, (orgs) =>
        OrgRepository.of({
          ...orgs,
          insert: (org, entry) =>
            Effect.andThen(
              orgs.insert(org, entry),
              node!.sql`
                INSERT INTO audit_log (id, org_id, at, actor, action, target, details)
                VALUES (${entry.id}, ${org.orgId}, now(), 'administrator', 'org.create', ${org.orgId}, '{}')`.pipe(
                Effect.asVoid,
                Effect.orDie,
              ),
            ),
          // As the erasure does, which a sweep begins.
          remove: (orgId, at, entry) =>
            Effect.tap(orgs.remove(orgId, at, entry), () =>
              Effect.orDie(node!.sql`DELETE FROM orgs WHERE id = ${orgId}`),
            ),
        }),
      ),
    )
    const there = Layer.mergeAll(Layer.succeed(SqlClient.SqlClient, node!.sql), Layer.succeed(Nodes, noNodes))
    return Layer.merge(Layer.provideMerge(taking, platform), Layer.provide(tenants, there))
  }),
)

/** Runs one suite on three backends, as for the platform's repositories. */
const backends = {
  fake: Layer.provideMerge(Layer.mergeAll(Events.fake, Leftovers.fake, Throttles.fake), fakes.layer),
  embedded: Layer.provide(sql, databases.embedded),
  postgres: Layer.provide(sql, databases.postgres),
  node: Layer.provide(onNode, databaseWithNode),
}

for (const [backend, repositories] of Object.entries(backends)) {
  // Uses real time, because a driver's timeouts must run. The tests themselves never read the clock.
  layer(repositories, { excludeTestServices: true })(backend, (all) => {
    const effect: typeof all.effect = new Proxy(all.effect, {
      apply: (run, self, [name, test, ...options]) => {
        const afterOthers = (context: unknown) =>
          Effect.andThen(
            Leftovers.use(({ putOff }) => putOff),
            toEffect(test)(context),
          )
        return Reflect.apply(run, self, [name, afterOthers, ...options])
      },
    })
    const it = new Proxy(all, { get: (target, key) => (key === "effect" ? effect : Reflect.get(target, key)) })
    emptyQueue(it)
    endpoints(it)
    jobs(it)
    webhookLimits(it)
    jobBatches(it)
    jobKeys(it)
    jobLeases(it)
    jobReports(it)
    jobLines(it)
    workflows(it)
    jobQueue(it)
    jobRetries(it)
    outbox(it)
    outboxRaces(it)
    ownEvents(it)
    lanesWithRules(it)
    Throttles.throttles(it)
    signingKeys(it)
    schedules(it)
    claims(it)
    backlog(it)
    shares(it)
    dueDeliveries(it)
    deliveryTimes(it)
    records(it)
    endpointHealth(it)
    deliveryLog(it)
    retries(it)
    webhookPages(it)
  })
}
