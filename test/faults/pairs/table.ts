import { DateTime, Duration, Effect } from "effect"
import { Idempotency } from "#src/domain/Idempotency.ts"
import { RetentionRepository } from "#src/domain/Retention.ts"
import { ActivityRecorder } from "#src/domain/activity/ActivityRecorder.ts"
import { AlertWatch } from "#src/domain/alerts/AlertWatch.ts"
import { DocsFetcher } from "#src/domain/docs/DocsFetcher.ts"
import { DocsQuestions } from "#src/domain/docs/DocsQuestions.ts"
import { JobSchedules } from "#src/domain/jobs/JobSchedules.ts"
import { Jobs } from "#src/domain/jobs/Jobs.ts"
import { ApiKeys } from "#src/domain/keys/ApiKeys.ts"
import { KeyUsageReport } from "#src/domain/keys/KeyUsage.ts"
import { Sessions } from "#src/domain/sessions/Sessions.ts"
import { SweepRepository } from "#src/domain/sweeps/Sweeps.ts"
import { DeliveryQueue } from "#src/domain/webhooks/DeliveryQueue.ts"
import { PendingLimit } from "#src/domain/webhooks/PendingLimit.ts"
import { moveOrg } from "#src/infrastructure/database/manageNodes.ts"
import { OrgUsage } from "#src/infrastructure/orgs/OrgUsage.ts"
import { measureBytes, refreshUsage } from "#src/infrastructure/orgs/OrgUsageWorker.ts"
import { attempt, claim, look, record } from "../../contract/webhooks/webhookSupport.ts"
import { adminToken, type Services, type TestServer } from "../../support/server.ts"
import { all, type Ids, requestOf } from "../../http/sessions/world.ts"

/** Operations that change nothing by themselves. All others are in the table. */
export const reads: ReadonlySet<string> = new Set(
  [
    [
      "events.list",
      "events.get",
      "events.types",
      "eventTypes.list",
      "eventTypes.get",
      "schedules.list",
      "schedules.get",
    ],
    [
      "jobs.list",
      "jobs.get",
      "jobs.logs",
      "jobs.causes",
      "jobs.queue",
      "jobs.sweeps",
      "workflows.get",
      "workflows.list",
    ],
    ["webhooks.list", "webhooks.get", "webhooks.publicKey", "deliveries.list", "deliveries.get", "deliveries.causes"],
    ["deliveries.resends", "portal.listLinks"],
  ].flat(),
)

/** Operations that are left out, each with the reason. */
export const leftOut: Readonly<Record<string, string>> = {
  "deployments.register": "needs an issuer of tokens; its pairs are in test/contract/platformRaces.ts",
  "deployments.promote": "needs a deployment, which a run of CI registers",
  "secretScanning.github": "needs a signature of GitHub; it disables a key, as keys.update does",
  "chat.answer": "needs a model; it stores a question, which docs.eraseQuestions and the pass on questions remove",
  "chat.feedback": "as chat.answer",
  "docs.mcp": "stores nothing but what chat.answer stores",
  "sessions.remove": "needs a session of its own; the pass on sessions removes rows in the same way",
  "deliveries.cancelResend": "a sweep is over here before it can be ended: see the simulation",
  "jobs.endSweep": "as deliveries.cancelResend",
  "webhooks.test": "sends at once and stores nothing",
  "alerts.test": "as webhooks.test",
  "serviceAlerts.test": "as webhooks.test",
  "keys.validate": "is answered from memory; its uses are the pass on the usage of keys",
  "keys.token": "as keys.validate",
}

/** Every operation that writes, in the order of the definition of the API. */
export const writes = all.filter(({ id, method }) => method !== "GET" && !reads.has(id) && !(id in leftOut))

/** What the ids of a world do not say, or what a request of the other tables does not change. */
const bodies: Readonly<Record<string, (ids: Ids) => object>> = {
  "keys.update": () => ({ credits: { add: 5 } }),
  "orgs.update": () => ({ limits: { unfinishedJobs: 5_000 }, strictEvents: false, retentionDays: 1 }),
  "projects.create": ({ orgId }) => ({ name: "docs", orgId }),
  "sessions.create": () => ({}),
  "sessions.openPortal": ({ link }) => ({ token: link }),
  "portal.revokeLink": ({ linkId }) => ({ link_id: linkId }),
  "deliveries.resend": () => ({ filter: {} }),
  "jobs.claim": () => ({ limit: 10, lease_seconds: 30 }),
  "jobs.retry": () => ({ filter: { workflow: "failing" } }),
  "jobs.cancel": () => ({ filter: { workflow: "queued" } }),
  "jobs.create": () => ({ workflow: "w", unique: { key: "one" }, input: 1 }),
  "webhooks.update": ({ endpoint }) => ({ id: endpoint, active: false }),
  "schedules.update": ({ schedule }) => ({ schedule_id: schedule, priority: 3 }),
  "events.publish": () => ({ type: "invoice.paid", data: 1, idempotency_key: "event" }),
}

/** The request of an operation in a world; a creation has an idempotency key. */
export const requestIn = (ids: Ids, operation: (typeof writes)[number], number: number) => {
  const { id, method } = operation
  const key = ids["operationKey"]!
  // What ends a key ends not that of the requests.
  const own = id.startsWith("keys.") ? { ...ids, id: ids["spareKey"]! } : { ...ids, id: ids["alert"]!, name: "reader" }
  const isOfService = id.startsWith("serviceAlerts")
  const { path, json } = requestOf(operation, isOfService ? { ...own, id: ids["serviceAlert"]! } : own)
  const isKeyed = /create|publish|rotate|importKeys/.test(id) && id !== "sessions.create"
  return {
    method,
    path,
    json: bodies[id]?.(ids) ?? json,
    headers: {
      ...(path.startsWith("/v1/") || id === "sessions.create"
        ? { "x-api-key": key }
        : { authorization: `Bearer ${adminToken}` }),
      ...(isKeyed ? { "idempotency-key": `pair-${number}` } : {}),
    },
    isKeyed,
  }
}

/** The services of a replica, and the ids of what a world has. */
export type Pass = (ids: Ids, replica: TestServer["Service"]) => Effect.Effect<unknown, unknown, Services>

const soon = Effect.map(DateTime.now, (now) => DateTime.add(now, { seconds: 1 }))

/** Runs open sweeps of all orgs, also those that wait for others, so many minutes from now. */
const sweepIn = (minutes: number) =>
  SweepRepository.use((sweeps) =>
    Effect.gen(function* () {
      const apart: Array<string> = []
      for (let sweep = yield* sweeps.next("", apart); sweep !== null; sweep = yield* sweeps.next("", apart)) {
        const later = DateTime.add(yield* DateTime.now, { minutes })
        const swept = yield* sweeps.advance(sweep.sweepId, later, 1_000).pipe(
          // The erasure of an org that moves waits for the end of the move.
          Effect.catchIf(
            ({ error }) => error.startsWith("The org moves"),
            () => Effect.succeed(null),
          ),
        )
        if (swept === null || swept.isWaiting === true) apart.push(sweep.sweepId)
      }
    }),
  )

/** No time passes beside an operation: an erasure waits a minute for open transactions, and PostgreSQL ends those. */
const sweep = sweepIn(0)

/** How far sweeps after an operation are ahead of the time, in minutes: later than what the one before waits for. */
let sweptMinutes = 0
export const endSweeps: Pass = () => Effect.suspend(() => sweepIn((sweptMinutes += 2)))

/** Removes the range of the records of today, which is over for an age that is ahead of the time. */
const removeRanges = (records: "webhooks" | "audit") =>
  RetentionRepository.use((retention) =>
    Effect.gen(function* () {
      // A sweep that still makes deliveries keeps its range.
      yield* sweep
      for (let removed: number | null = 0; removed !== null;)
        removed = yield* retention.removeOldest(records, yield* DateTime.now, Duration.days(-30))
      if (records === "webhooks") yield* retention.removeLeft(100)
    }),
  )

const deleteThen =
  (path: (ids: Ids) => string): Pass =>
  (ids, { send }) =>
    Effect.andThen(send("DELETE", path(ids), { as: adminToken }), sweep)

/** Every pass of the background work, by a name of its own. */
export const passes: Readonly<Record<string, Pass>> = {
  "leases expire": () => Jobs.use(({ expireLeases }) => expireLeases),
  "jobs expire": () => Jobs.use(({ expireQueued }) => expireQueued),
  "delayed jobs are queued": () => Jobs.use(({ queueDelayed }) => queueDelayed),
  "schedules run": () => JobSchedules.use(({ runDue }) => runDue),
  "old events are removed": () => removeRanges("webhooks"),
  "old events of an org are removed": ({ orgId }) =>
    RetentionRepository.use((retention) =>
      Effect.flatMap(DateTime.now, (now) => retention.removeOfOrg(orgId!, now, Duration.zero, "", 100)),
    ),
  "old entries of the audit log are removed": () => removeRanges("audit"),
  "sweeps run": () => sweep,
  "an org is erased": deleteThen(({ orgId }) => `/api/v0/orgs/${orgId}`),
  "a project is erased": deleteThen(({ projectId }) => `/api/v0/projects/${projectId}`),
  "an org is moved": ({ orgId }) =>
    moveOrg(orgId!, "a").pipe(
      // Somebody has deleted it.
      Effect.catchIf(
        (error) => "message" in error && error.message.startsWith("There is no org"),
        () => Effect.void,
      ),
      Effect.andThen(sweep),
    ),
  "idempotency keys expire": () => Idempotency.use(({ deleteExpired }) => deleteExpired),
  "sessions expire": () => Sessions.use(({ removeExpired }) => removeExpired),
  "uses of keys are written": ({ spareKeyText }, { send }) =>
    Effect.andThen(
      send("POST", "/api/v0/keys/validate", { json: { key: spareKeyText }, as: adminToken }),
      ApiKeys.use(({ flushUsage, returnQuotas }) => Effect.andThen(returnQuotas, flushUsage)),
    ),
  "old uses of keys are removed": () => KeyUsageReport.use(({ removeOld }) => removeOld),
  "alerts look": () => AlertWatch.use(({ run }) => run),
  "activity is counted": () => ActivityRecorder.use(({ flush }) => flush),
  "usage is counted": () =>
    Effect.gen(function* () {
      yield* yield* refreshUsage
      yield* yield* measureBytes
      yield* PendingLimit.use(({ enforce }) => enforce)
    }).pipe(Effect.provide(OrgUsage.layer)),
  "deliveries are claimed and recorded": () =>
    Effect.gen(function* () {
      const now = yield* soon
      const claimed = yield* claim(now)
      yield* record(
        claimed.map((one) => attempt(one, "Delivered", now)),
        now,
      )
      yield* look
    }),
  "times of deliveries are corrected": () =>
    DeliveryQueue.use((queue) =>
      Effect.flatMap(soon, (now) =>
        queue.correctTimes({ now, leaseUntil: DateTime.add(now, { seconds: 30 }), limit: 100 }),
      ),
    ),
  "documentation is fetched": () => DocsFetcher.use(({ pass }) => pass),
  "old questions are removed": () => DocsQuestions.use(({ removeOld }) => removeOld),
  "questions are written": () => DocsQuestions.use(({ flush }) => flush),
}

/** How a loop of the background work begins in the source. */
export const loop = /Effect\.forkScoped|\bevery\("|\bevery\(yield|\bhourly\("/g

/** The loops of the source, by file: how many begin there, and the passes that stand for them, or why none does. */
export const loops: Readonly<Record<string, readonly [count: number, passes: ReadonlyArray<string> | string]>> = {
  "boot/app.ts": [1, "tries the encryption key once, at the start"],
  "boot/TenantNodes.ts": [1, "waits for the services of a node"],
  "domain/activity/LiveFeed.ts": [3, "sends what has changed to its readers"],
  "infrastructure/activity/ActivityWorker.ts": [3, ["activity is counted"]],
  "infrastructure/alerts/alertsSql.ts": [1, ["alerts look"]],
  "infrastructure/background.ts": [2, "what loops are made of"],
  "infrastructure/database/Database.ts": [2, "looks at the database's settings, and runs in the embedded one alone"],
  "infrastructure/database/Nodes.ts": [2, "migrates a node, and listens to it"],
  "infrastructure/database/PostgresDatabase.ts": [1, "asks whether a connection lives"],
  "infrastructure/docs/docsQuestionsSql.ts": [2, ["questions are written", "old questions are removed"]],
  "infrastructure/docs/projectDocsSql.ts": [1, ["documentation is fetched"]],
  "infrastructure/idempotency/idempotencySql.ts": [1, ["idempotency keys expire"]],
  "infrastructure/jobs/jobsSql.ts": [4, ["leases expire", "jobs expire", "delayed jobs are queued", "schedules run"]],
  "infrastructure/keys/KeyCache.ts": [1, "listens to changes of keys: test/http/keys/keyRaces.ts"],
  "infrastructure/keys/keyUsageSql.ts": [3, ["uses of keys are written", "old uses of keys are removed"]],
  "infrastructure/orgs/OrgUsageWorker.ts": [2, ["usage is counted"]],
  "infrastructure/retention/retentionSql.ts": [
    2,
    ["old events are removed", "old entries of the audit log are removed", "old events of an org are removed"],
  ],
  "infrastructure/sessions/sessionsSql.ts": [1, ["sessions expire"]],
  "infrastructure/sweeps/sweepsSql.ts": [
    2,
    ["sweeps run", "an org is erased", "a project is erased", "an org is moved"],
  ],
  "infrastructure/telemetry/ProcessMetrics.ts": [1, "measures the process"],
  "infrastructure/webhooks/ClockSteps.ts": [1, ["times of deliveries are corrected"]],
  "infrastructure/webhooks/DeliveryWorker.ts": [5, ["deliveries are claimed and recorded"]],
}
