import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { ApiKeyRepository } from "#src/domain/keys/ApiKeyRepository.ts"
import { type OrgChanges, OrgRepository } from "#src/domain/orgs/Orgs.ts"
import { IdempotencyRepository } from "#src/domain/Idempotency.ts"
import { ProjectRepository } from "#src/domain/projects/Projects.ts"
import type { It } from "../support.ts"
import {
  at,
  everyOrg,
  failureOf,
  insertOrg,
  insertProject,
  newEntry,
  newId,
  newKey,
  newRepository,
  noSuchOrg,
  noSuchProject,
  oneOrg,
  push,
  register,
} from "../support.ts"

export const updateOrg = (orgId: string, changes: OrgChanges) =>
  OrgRepository.use((orgs) => orgs.update(orgId, changes, newEntry({ action: "org.update" })))
export const findWithUsage = (orgId: string) => OrgRepository.use((orgs) => orgs.findWithUsage(orgId))

/** Returns `limit_reached` with the number in its sentence, or the code of another refusal, or `ok`. */
export const refusal = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.map(Effect.result(effect), (result) => {
    if (result._tag === "Success") return "ok"
    const { code, error } = result.failure as { readonly code: string; readonly error: string }
    return code === "limit_reached" ? `${/limit of (\d+ [a-z A-Z]+) /.exec(error)?.[1]}` : code
  })

const insertOrgKey = Effect.fnUntraced(function* (orgId: string) {
  const key = yield* newKey()
  yield* ApiKeyRepository.use((keys) => keys.insertForOrg(orgId, key, newEntry()))
  return key.id
})
const insertProjectKey = Effect.fnUntraced(function* (projectId: string, orgId?: string) {
  const key = yield* newKey()
  const scope = orgId === undefined ? everyOrg : oneOrg(orgId)
  yield* ApiKeyRepository.use((keys) => keys.insertForProject(scope, projectId, key, newEntry()))
  return key.id
})

/** Runs an operation with an idempotency key of its own. */
const keyed = <A, E, R>(operation: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const of = { orgId: "", caller: yield* newId, operation: "create", key: "k" }
    return yield* IdempotencyRepository.use((records) =>
      records.once(of, { now: at(0), expiresAt: at(1) }, Effect.as(operation, { response: 1, record: "made" })),
    )
  })

/** Runs an effect `times` times at once; returns how often each outcome came. */
export const together = <A, E, R>(effect: Effect.Effect<A, E, R>, times: number) =>
  Effect.map(Effect.replicateEffect(refusal(effect), times, { concurrency: "unbounded" }), (all) =>
    Object.fromEntries([...Map.groupBy(all, (one) => one)].map(([one, those]) => [one, those.length])),
  )

/** The contract of the limits of projects and keys in every repository. */
export const orgLimits = (it: It) => {
  it.effect("limits: an org can have limits of its own, and null restores the default", function* () {
    const { orgId } = yield* insertOrg()
    assert.deepStrictEqual((yield* findWithUsage(orgId)).overrides, {})
    yield* updateOrg(orgId, { limits: { keys: 3, storedBytes: 10 ** 15 } })
    yield* updateOrg(orgId, { name: "O'Brien", limits: { projects: 0, keys: null } })
    const { org, overrides, used } = yield* findWithUsage(orgId)
    assert.strictEqual(org.name, "O'Brien")
    assert.deepStrictEqual(overrides, { projects: 0, storedBytes: 10 ** 15 })
    assert.deepStrictEqual(used, {
      projects: 0,
      keys: 0,
      endpoints: 0,
      schedules: 0,
      unfinishedJobs: 0,
      pendingDeliveries: 0,
      storedBytes: 0,
    })
    yield* updateOrg(orgId, { name: "Acme" })
    assert.deepStrictEqual((yield* findWithUsage(orgId)).overrides, overrides)
  })

  it.effect("limits: an unknown org is not found, and cannot be changed", function* () {
    const unknown = yield* newId
    assert.strictEqual(yield* failureOf(findWithUsage(unknown)), noSuchOrg)
    assert.strictEqual(yield* failureOf(updateOrg(unknown, { name: "Acme" })), noSuchOrg)
  })

  it.effect("limits: an org at its limit of projects gets no more, and other orgs are not affected", function* () {
    const [{ orgId }, other] = [yield* insertOrg(), yield* insertOrg()]
    yield* updateOrg(orgId, { limits: { projects: 3 } })
    assert.deepStrictEqual(yield* together(insertProject(orgId), 20), { ok: 3, "3 projects": 17 })
    assert.strictEqual(yield* refusal(insertProject(orgId)), "3 projects")
    assert.strictEqual(yield* refusal(insertProject(other.orgId)), "ok")
    assert.strictEqual((yield* findWithUsage(orgId)).used.projects, 3)
    const listed = yield* ProjectRepository.use((projects) => projects.list(oneOrg(orgId), { limit: 10 }))
    assert.strictEqual(listed.items.length, 3)
    yield* updateOrg(orgId, { limits: { projects: 4 } })
    assert.deepStrictEqual(yield* together(insertProject(orgId), 3), { ok: 1, "4 projects": 2 })
    yield* updateOrg(orgId, { limits: { projects: null } })
    assert.deepStrictEqual(yield* together(insertProject(orgId), 3), { ok: 3 })
  })

  it.effect("limits: also hold for the default org, and for projects that CI creates", function* () {
    const { orgId } = yield* insertProject(undefined)
    const { used } = yield* findWithUsage(orgId)
    yield* updateOrg(orgId, { limits: { projects: used.projects + 1 } })
    yield* Effect.gen(function* () {
      const run = push(newRepository())
      assert.strictEqual((yield* register(run)).outcome._tag, "Registered")
      const reached = `${used.projects + 1} projects`
      assert.strictEqual(yield* refusal(insertProject(undefined)), reached)
      assert.strictEqual(yield* refusal(register(push(newRepository()))), reached)
      // An existing project still gets deployments.
      assert.strictEqual((yield* register({ ...run, runId: "again" })).outcome._tag, "Registered")
    }).pipe(Effect.ensuring(Effect.orDie(updateOrg(orgId, { limits: { projects: null } }))))
    assert.strictEqual(yield* refusal(insertProject(undefined)), "ok")
  })

  it.effect("limits: keys of an org's projects count for the org, and a deleted key frees its place", function* () {
    const { orgId } = yield* insertOrg()
    const { projectId } = yield* insertProject(orgId)
    yield* updateOrg(orgId, { limits: { keys: 3 } })
    const key = yield* insertOrgKey(orgId)
    assert.deepStrictEqual(yield* together(insertProjectKey(projectId), 10), { ok: 2, "3 API keys": 8 })
    assert.strictEqual(yield* refusal(insertProjectKey(projectId, orgId)), "3 API keys")
    assert.strictEqual(yield* refusal(insertOrgKey(orgId)), "3 API keys")
    yield* ApiKeyRepository.use((keys) => keys.remove(orgId, key, newEntry()))
    assert.deepStrictEqual(yield* together(insertOrgKey(orgId), 5), { ok: 1, "3 API keys": 4 })
  })

  it.effect("limits: an org at its limit still gets a 404 for a missing project or org", function* () {
    const [{ orgId }, other] = [yield* insertOrg(), yield* insertOrg()]
    const { projectId } = yield* insertProject(orgId)
    yield* updateOrg(orgId, { limits: { keys: 0, projects: 1 } })
    assert.strictEqual(yield* failureOf(insertProjectKey(projectId, other.orgId)), noSuchProject)
    assert.strictEqual(yield* failureOf(insertProjectKey(yield* newId)), noSuchProject)
    assert.strictEqual(yield* failureOf(insertOrgKey(yield* newId)), noSuchOrg)
    assert.strictEqual(yield* failureOf(insertProject(yield* newId)), noSuchOrg)
  })

  it.effect("limits: a rotation counts the new key", function* () {
    const { orgId } = yield* insertOrg()
    const old = yield* insertOrgKey(orgId)
    const rotate = Effect.fnUntraced(function* () {
      const { id, prefix, keyPrefix, hash } = yield* newKey()
      const times = { now: at(1), expiresAt: undefined, oldKeyUntil: at(2) }
      const replacement = { id, prefix, keyPrefix, hash, ...times, settings: {} }
      yield* ApiKeyRepository.use((keys) => keys.rotate(orgId, old, replacement, newEntry()))
    })
    yield* updateOrg(orgId, { limits: { keys: 1 } })
    assert.strictEqual(yield* refusal(rotate()), "1 API keys")
    yield* updateOrg(orgId, { limits: { keys: 2 } })
    assert.strictEqual(yield* refusal(rotate()), "ok")
    assert.strictEqual((yield* findWithUsage(orgId)).used.keys, 2)
  })

  it.effect(
    "limits: hold in the transaction of an operation with an idempotency key, which is rolled back as a whole",
    function* () {
      const { orgId } = yield* insertOrg()
      yield* updateOrg(orgId, { limits: { projects: 2 } })
      assert.deepStrictEqual(yield* together(keyed(insertProject(orgId)), 6), { ok: 2, "2 projects": 4 })
      assert.strictEqual((yield* findWithUsage(orgId)).used.projects, 2)
    },
  )

  // Seen failing: transactions waited with the connections that the others needed, so that all were a 503.
  it.effect(
    "limits: creations with and without an idempotency key do not wait for each other at a limit",
    function* () {
      const { orgId } = yield* insertOrg()
      yield* updateOrg(orgId, { limits: { keys: 3 } })
      const create = insertOrgKey(orgId)
      const both = yield* Effect.all([together(create, 12), together(keyed(create), 12)], { concurrency: 2 })
      const sum = (outcome: string) => both.reduce((all, counts) => all + (counts[outcome] ?? 0), 0)
      assert.deepStrictEqual([sum("ok"), sum("3 API keys")], [3, 21])
    },
  )
}
