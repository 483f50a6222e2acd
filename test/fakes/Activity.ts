import { DateTime, Effect, Layer } from "effect"
import {
  type ActivityCount,
  type CountedAttempts,
  ActivityRepository,
  type AttemptCount,
  type Replica,
} from "#src/domain/activity/ActivityRepository.ts"
import { measures } from "#src/domain/activity/Activity.ts"
import { orgOf } from "#src/infrastructure/database/fragments.ts"
import { World } from "./World.ts"

const added = <A extends { readonly count: number }>(rows: Map<string, A>, key: string, row: A) =>
  void rows.set(key, { ...row, count: row.count + (rows.get(key)?.count ?? 0) })

/** Counts in memory. There are no endpoints here: each counts as deleted. */
function make({ orgs }: World["Service"]) {
  const counts = new Map<string, ActivityCount>()
  const attempts = new Map<string, AttemptCount>()
  const replicas = new Map<string, Replica>()
  const isAlive = ({ orgId }: { readonly orgId: string }) => orgId === "" || orgs.has(orgId)

  const removeOld = <A extends Pick<ActivityCount, "every" | "at">>(
    rows: Map<string, A>,
    every: string,
    before: number,
    limit: number,
  ) => {
    const old = [...rows].filter(([, row]) => row.every === every && row.at < before).slice(0, limit)
    old.forEach(([key]) => rows.delete(key))
    return old.length
  }

  const present = (now: DateTime.Utc) =>
    [...replicas.values()]
      .filter(({ seenAt }) => DateTime.isGreaterThan(seenAt, DateTime.subtract(now, { seconds: 60 })))
      .sort(
        (a, b) => a.startedAt.epochMilliseconds - b.startedAt.epochMilliseconds || (a.replicaId < b.replicaId ? -1 : 1),
      )

  return ActivityRepository.of({
    add: (rows) =>
      Effect.sync(() =>
        rows
          .filter(isAlive)
          .forEach((row) => added(counts, JSON.stringify([row.orgId, row.every, row.at, row.kind, row.outcome]), row)),
      ),
    addAttempts: (rows) =>
      Effect.sync(() =>
        rows.filter(isAlive).forEach(({ bucket, cause, ...row }) =>
          added(attempts, JSON.stringify([row.orgId, row.endpointId, row.every, row.at, cause, bucket]), {
            ...row,
            bucket,
            cause,
          }),
        ),
      ),
    attempts: (orgId, endpointId, ranges) =>
      Effect.sync(() =>
        ranges.flatMap(({ every, since }) => {
          const sums = new Map<string, CountedAttempts>()
          for (const { bucket, cause, count, ...row } of attempts.values()) {
            if (row.orgId !== orgId || row.endpointId !== endpointId || row.every !== every) continue
            if (row.at >= since.epochMilliseconds) added(sums, `${cause} ${bucket}`, { since, cause, bucket, count })
          }
          return [...sums.values()]
        }),
      ),
    counts: (scope, every, from, to) =>
      Effect.sync(() =>
        [...counts.values()]
          .filter((row) => row.orgId === (orgOf(scope) ?? "") && row.every === every)
          .filter(({ at }) => at >= from.epochMilliseconds && at < to.epochMilliseconds)
          .map(({ at, count, kind, outcome }) => ({ at: DateTime.makeUnsafe(at), kind, outcome, count })),
      ),
    queueState: (_, now) =>
      Effect.sync(() => {
        return { backlog: 0, oldestDueAt: null, sweeps: 0, replicas: present(now).length }
      }),
    failing: ({ after, every, limit, since }) =>
      Effect.sync(() => {
        const sums = new Map<string, number>()
        for (const row of attempts.values()) {
          if (row.cause === "" || row.every !== every || row.at < since.epochMilliseconds) continue
          sums.set(row.endpointId, (sums.get(row.endpointId) ?? 0) + row.count)
        }
        const ranked = [...sums]
          .sort(([a, n], [b, m]) => m - n || (a < b ? -1 : 1))
          .filter(
            ([id, n]) => after === undefined || n < after.failures || (n === after.failures && id > after.endpointId),
          )
        const [id, n] = ranked[limit - 1] ?? []
        return { endpoints: ranked.slice(0, limit).map(() => null), next: ranked.length > limit ? `${n}.${id}` : null }
      }),
    activeOrgs: ({ after, by, every, limit, since }) =>
      Effect.sync(() => {
        const rows = [...counts.values()].filter(
          (row) => row.orgId !== "" && row.every === every && row.at >= since.epochMilliseconds,
        )
        const sumOf = (orgId: string, measure: keyof typeof measures) => {
          const { kind, outcomes } = measures[measure]
          const own = rows.filter(
            (row) => row.orgId === orgId && row.kind === kind && outcomes.some((outcome) => outcome === row.outcome),
          )
          return own.reduce((sum, { count }) => sum + count, 0)
        }
        const ranked = [...new Set(rows.map(({ orgId }) => orgId))]
          .map((orgId) => ({
            orgId,
            name: orgs.get(orgId)?.name ?? null,
            attempts: sumOf(orgId, "attempts"),
            failedAttempts: sumOf(orgId, "failedAttempts"),
            validations: sumOf(orgId, "validations"),
            jobs: sumOf(orgId, "jobs"),
          }))
          .filter((org) => org[by] > 0)
          .sort((a, b) => b[by] - a[by] || (a.orgId < b.orgId ? -1 : 1))
          .filter(
            (org) =>
              after === undefined || org[by] < after.count || (org[by] === after.count && org.orgId > after.orgId),
          )
        const page = ranked.slice(0, limit)
        const last = ranked.length > limit ? page.at(-1) : undefined
        return { orgs: page, next: last === undefined ? null : `${last[by]}.${last.orgId}` }
      }),
    heartbeat: (replica) => Effect.sync(() => void replicas.set(replica.replicaId, replica)),
    replicas: (now) => Effect.sync(() => present(now)),
    leave: (id) => Effect.sync(() => void replicas.delete(id)),
    removeOld: (of, every, before, limit) =>
      Effect.sync(() =>
        of === "activity_counts"
          ? removeOld(counts, every, before.epochMilliseconds, limit)
          : removeOld(attempts, every, before.epochMilliseconds, limit),
      ),
    removeReplicas: (before) =>
      Effect.sync(() =>
        replicas.forEach(({ seenAt }, id) => DateTime.isLessThan(seenAt, before) && replicas.delete(id)),
      ),
  })
}

export const layer = Layer.effect(ActivityRepository, Effect.map(World, make))
