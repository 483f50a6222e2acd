import { assert } from "@effect/vitest"
import { DateTime, Effect } from "effect"
import type { Measure } from "#src/domain/activity/Activity.ts"
import {
  type ActivityCount,
  ActivityRepository,
  type AttemptCount,
  type ReplicaFigures,
} from "#src/domain/activity/ActivityRepository.ts"
import type { It } from "../support.ts"
import { OrgRepository } from "#src/domain/orgs/Orgs.ts"
import { at, everyOrg, insertOrg, newEntry, newId, oneOrg } from "../support.ts"

const hour = Date.UTC(2026, 10, 20, 17)
const utc = (millis: number) => DateTime.makeUnsafe(millis)

const countOf = (orgId: string, more: Partial<ActivityCount> = {}): ActivityCount => ({
  orgId,
  every: "hour",
  at: hour,
  kind: "deliveries",
  outcome: "delivered",
  count: 1,
  ...more,
})

const durations = { perMinute: 0.2, p50Millis: 1.25, p99Millis: null }
const figures: ReplicaFigures = {
  requests: durations,
  validations: durations,
  attempts: durations,
  database: durations,
  databaseInFlight: 1,
  databaseConnections: 10,
}

/** The contract of the counts of activity, and of the list of replicas. */
export const activity = (it: It) => {
  it.effect("counts of an interval are added up by org, kind and outcome", function* () {
    const repository = yield* ActivityRepository
    const [{ orgId }, { orgId: other }] = [yield* insertOrg(), yield* insertOrg()]
    yield* repository.add([countOf(orgId, { count: 2 }), countOf(orgId, { outcome: "failed" }), countOf(other)])
    const later = countOf(orgId, { at: hour + 3_600_000, kind: "jobs", outcome: "completed" })
    yield* repository.add([countOf(orgId, { count: 3 }), later, countOf(orgId, { every: "day", at: 0 })])
    yield* repository.add([])
    const read = (to: number) =>
      Effect.map(repository.counts(oneOrg(orgId), "hour", utc(hour), utc(to)), (rows) =>
        rows.map(({ at, count, kind, outcome }) => [at.epochMilliseconds - hour, kind, outcome, count]).sort(),
      )
    assert.deepStrictEqual(yield* read(hour + 1), [
      [0, "deliveries", "delivered", 5],
      [0, "deliveries", "failed", 1],
    ])
    assert.deepInclude(yield* read(hour + 3_600_001), [3_600_000, "jobs", "completed", 1])
    assert.deepStrictEqual(yield* repository.counts(everyOrg, "hour", utc(hour), utc(hour + 1)), [])
    yield* repository.add([countOf("", { count: 7 })])
    const [all] = yield* repository.counts(everyOrg, "hour", utc(hour), utc(hour + 1))
    assert.strictEqual(all!.count, 7)
  })

  it.effect("counts that several replicas write at the same time are all kept", function* () {
    const repository = yield* ActivityRepository
    const { orgId } = yield* insertOrg()
    const rows = (["delivered", "failed", "retried"] as const).map((outcome) => countOf(orgId, { outcome }))
    yield* Effect.forEach([1, 2, 3, 4, 5, 6, 7, 8], () => repository.add(rows), { concurrency: "unbounded" })
    const found = yield* repository.counts(oneOrg(orgId), "hour", utc(hour), utc(hour + 1))
    assert.deepStrictEqual(
      found.map(({ count }) => count),
      [8, 8, 8],
    )
  })

  it.effect("the endpoints that fail most are listed first, page by page", function* () {
    const repository = yield* ActivityRepository
    const since = Date.UTC(2031, 0, 1)
    const { orgId } = yield* insertOrg()
    const ids = [yield* newId, yield* newId, yield* newId, yield* newId]
    const last = { lastAt: since, lastStatus: 503, lastFailure: null }
    const failed = (i: number, count: number, at = since) => ({
      orgId,
      endpointId: ids[i]!,
      every: "hour" as const,
      at,
      cause: "503",
      bucket: 1,
      count,
      ...last,
    })
    yield* repository.addAttempts([failed(0, 1), failed(1, 5), failed(2, 1), failed(3, 9, since - 1)])
    yield* repository.addAttempts([failed(0, 4, since + 3_600_000), { ...failed(2, 1), bucket: 2 }])
    yield* repository.addAttempts([{ ...failed(3, 99), cause: "" }])
    const page = (after?: { readonly failures: number; readonly endpointId: string }) =>
      repository.failing({ every: "hour", since: utc(since), limit: 2, after })
    const first = yield* page()
    assert.deepStrictEqual(first, { endpoints: [null, null], next: `5.${ids[1]}` })
    assert.deepStrictEqual(yield* page({ failures: 5, endpointId: ids[1]! }), { endpoints: [null], next: null })
  })

  it.effect("attempts of an endpoint are added up by cause and duration, in several ranges at once", function* () {
    const repository = yield* ActivityRepository
    const { orgId } = yield* insertOrg()
    const { orgId: other } = yield* insertOrg()
    const endpointId = yield* newId
    const last = { lastAt: hour, lastStatus: null, lastFailure: null }
    const counted = (count: number, more: Partial<AttemptCount> = {}): AttemptCount => ({
      orgId,
      endpointId,
      every: "hour",
      at: hour,
      cause: "",
      bucket: 1,
      count,
      ...last,
      ...more,
    })
    yield* repository.addAttempts([
      ...[counted(2), counted(3, { bucket: 4 }), counted(1, { cause: "503" }), counted(7, { orgId: other })],
      ...[counted(9, { at: hour - 3_600_000 }), counted(5, { every: "day", at: hour - 61_200_000 })],
    ])
    yield* repository.addAttempts([counted(4), counted(4, { endpointId: yield* newId })])
    const ranges = [
      { every: "hour" as const, since: utc(hour) },
      { every: "day" as const, since: utc(hour - 61_200_000) },
    ]
    const found = yield* repository.attempts(orgId, endpointId, ranges)
    assert.deepStrictEqual(
      found.map(({ bucket, cause, count, since }) => [since.epochMilliseconds - hour, cause, bucket, count]).sort(),
      [
        [-61_200_000, "", 1, 5],
        [0, "", 1, 6],
        [0, "", 4, 3],
        [0, "503", 1, 1],
      ],
    )
  })

  it.effect("the orgs that use most of what is asked for are listed first, page by page", function* () {
    const repository = yield* ActivityRepository
    const since = Date.UTC(2032, 0, 1)
    const { orgId: loud } = yield* insertOrg("Loud")
    const { orgId: quiet } = yield* insertOrg("Quiet")
    const { orgId: gone } = yield* insertOrg()
    const done = (orgId: string, count: number, more: Partial<ActivityCount> = {}) =>
      countOf(orgId, { at: since, count, ...more })
    yield* repository.add([
      ...[done(loud, 5), done(loud, 2, { outcome: "retried" }), done(loud, 1, { at: since + 3_600_000 })],
      ...[
        done(quiet, 1),
        done(quiet, 7, { outcome: "failed" }),
        done(quiet, 2, { kind: "validations", outcome: "valid" }),
      ],
      ...[done(gone, 1), done(gone, 4, { kind: "jobs", outcome: "completed" })],
      ...[done("", 99), done(gone, 50, { at: since - 1 }), done(gone, 50, { every: "day" })],
    ])
    yield* OrgRepository.use((orgs) => orgs.remove(gone, at(0), newEntry({ action: "org.delete" })))
    // Seen failing: what a process still had in memory came back, and stayed.
    yield* repository.add([done(gone, 1_000)])
    const figures = { attempts: 8, failedAttempts: 2, validations: 0, jobs: 0 }
    const loudRow = { orgId: loud, name: "Loud", ...figures }
    const quietRow = { orgId: quiet, name: "Quiet", attempts: 8, failedAttempts: 7, validations: 2, jobs: 0 }
    const goneRow = { orgId: gone, name: null, attempts: 1, failedAttempts: 0, validations: 0, jobs: 4 }
    const ranked = (by: Measure, after?: { readonly count: number; readonly orgId: string }) =>
      repository.activeOrgs({ by, every: "hour", since: utc(since), limit: 2, after })
    assert.deepStrictEqual(yield* ranked("attempts"), { orgs: [loudRow, quietRow], next: `8.${quiet}` })
    const rest = yield* ranked("attempts", { count: 8, orgId: quiet })
    assert.deepStrictEqual(rest, { orgs: [goneRow], next: null })
    assert.deepStrictEqual(yield* ranked("failedAttempts"), { orgs: [quietRow, loudRow], next: null })
    assert.deepStrictEqual(yield* ranked("validations"), { orgs: [quietRow], next: null })
    assert.deepStrictEqual(yield* ranked("jobs"), { orgs: [goneRow], next: null })
    const byDay = repository.activeOrgs({
      by: "attempts",
      every: "day",
      since: utc(since),
      limit: 1,
      after: undefined,
    })
    assert.deepStrictEqual((yield* byDay).orgs, [
      { orgId: gone, name: null, attempts: 50, failedAttempts: 0, validations: 0, jobs: 0 },
    ])
  })

  it.effect("old intervals are removed in batches, and newer ones stay", function* () {
    const repository = yield* ActivityRepository
    const { orgId } = yield* insertOrg()
    const old = Date.UTC(2001, 0, 1)
    const minutes = [0, 1, 2].map((n) => countOf(orgId, { every: "minute", at: old + n * 60_000 }))
    yield* repository.add([...minutes, countOf(orgId, { at: old })])
    const last = { lastAt: old, lastStatus: null, lastFailure: "timeout" }
    yield* repository.addAttempts([
      { orgId, endpointId: orgId, every: "hour", at: old, cause: "timeout", bucket: 0, count: 1, ...last },
    ])
    assert.strictEqual(yield* repository.removeOld("activity_counts", "minute", utc(old + 120_000), 1), 1)
    assert.strictEqual(yield* repository.removeOld("activity_counts", "minute", utc(old + 120_000), 10), 1)
    const left = yield* repository.counts(oneOrg(orgId), "minute", utc(old), utc(hour))
    assert.deepStrictEqual(
      left.map(({ at }) => at.epochMilliseconds),
      [old + 120_000],
    )
    assert.strictEqual((yield* repository.counts(oneOrg(orgId), "hour", utc(old), utc(hour))).length, 1)
    assert.strictEqual(yield* repository.removeOld("endpoint_attempts", "hour", utc(old + 1), 10), 1)
    assert.strictEqual((yield* repository.counts(oneOrg(orgId), "hour", utc(old), utc(hour))).length, 1)
    assert.strictEqual(yield* repository.removeOld("activity_counts", "hour", utc(old + 1), 10), 1)
  })

  it.effect("a replica is alive until it leaves, or until a minute after it was last seen", function* () {
    const repository = yield* ActivityRepository
    const [one, two] = [yield* newId, yield* newId]
    const replicas = (seconds: number) =>
      Effect.map(repository.queueState(everyOrg, at(seconds)), (state) => state.replicas)
    const before = yield* replicas(0)
    const beat = (replicaId: string, seconds: number, figures: ReplicaFigures | null = null) =>
      repository.heartbeat({ replicaId, startedAt: at(0), seenAt: at(seconds), figures }, "key")
    yield* beat(one, 0)
    yield* beat(two, 0)
    assert.strictEqual(yield* replicas(59), before + 2)
    yield* beat(one, 30, figures)
    assert.strictEqual(yield* replicas(60), before + 1)
    const own = (seconds: number) =>
      Effect.map(repository.replicas(at(seconds)), (all) =>
        all.filter(({ replicaId }) => [one, two].includes(replicaId)),
      )
    const first = { replicaId: one, startedAt: at(0), seenAt: at(30), figures }
    assert.deepStrictEqual(yield* own(60), [first])
    assert.deepStrictEqual(yield* own(59), [first, { replicaId: two, startedAt: at(0), seenAt: at(0), figures: null }])
    yield* repository.leave(one)
    assert.strictEqual(yield* replicas(60), before)
    yield* beat(one, 30)
    yield* repository.removeReplicas(at(31))
    assert.strictEqual(yield* replicas(31), before)
  })
}
