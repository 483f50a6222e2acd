import { assert } from "@effect/vitest"
import { DateTime, Effect, Schema } from "effect"
import { ApiKeyRepository } from "#src/domain/keys/ApiKeyRepository.ts"
import { AuditEntry } from "#src/domain/audit/AuditEntry.ts"
import { AuditRepository } from "#src/domain/audit/AuditLog.ts"
import { OrgRepository } from "#src/domain/orgs/Orgs.ts"
import { ProjectRepository } from "#src/domain/projects/Projects.ts"
import { idAt } from "#src/infrastructure/database/fragments.ts"
import type { It } from "../support.ts"
import {
  itemsOf,
  assertDefect,
  assertPages,
  at,
  awkwardTexts,
  everyOrg,
  failureOf,
  insertOrg,
  insertProject,
  insertTenant,
  newEntry,
  newId,
  newKey,
  newRepository,
  noSuchOrg,
  oneOrg,
} from "../support.ts"

const shown = Schema.encodeSync(AuditEntry)

/** The org's entries, newest first, as the service answers them. */
const listOf = (orgId: string) =>
  AuditRepository.use((audit) =>
    Effect.map(itemsOf(audit.list(orgId, { limit: 1000 })), (all) => all.map((row) => shown(row))),
  )

/**
 * Asserts that a change and its entry are made together. The change runs once with an entry whose id is taken, and must
 * not happen; then with a new entry, which must be in the org's log. `state` reads what the change changes.
 */
export const assertAudited = Effect.fnUntraced(function* <E, R, E1, R1>(
  orgId: string,
  change: (entry: AuditEntry) => Effect.Effect<unknown, E, R>,
  state: Effect.Effect<unknown, E1, R1>,
  expected: Partial<AuditEntry> = {},
) {
  const taken = newEntry()
  yield* (yield* OrgRepository).insert({ orgId: yield* newId, name: "Acme", createdAt: at(0) }, taken)
  const before = yield* state
  yield* assertDefect(change(taken))
  assert.deepStrictEqual(yield* state, before)
  const entry = newEntry({ details: { b: 1, a: null } })
  yield* change(entry)
  assert.notDeepEqual(yield* state, before)
  assert.strictEqual(JSON.stringify((yield* listOf(orgId))[0]), JSON.stringify(shown({ ...entry, ...expected })))
})

const link = () => {
  const { owner, repo } = newRepository()
  return { hostOwner: owner, hostRepo: repo }
}

/** The contract of every AuditRepository, with the entries that other repositories write. */
export const auditLog = (it: It) => {
  // Seen failing on the databases with two statements for the change and its entry: the change stays.
  it.effect("audit: a change and its entry are made together, or not at all", function* () {
    const [orgs, projects, keys] = [yield* OrgRepository, yield* ProjectRepository, yield* ApiKeyRepository]
    const stateOf = (orgId: string) =>
      Effect.all([
        orgs.list(oneOrg(orgId), { limit: 1 }),
        projects.list(oneOrg(orgId), { limit: 1000 }),
        keys.list(orgId, { limit: 1000 }),
      ])
    const org = { orgId: yield* newId, name: "Acme", createdAt: at(0) }
    yield* assertAudited(org.orgId, (entry) => orgs.insert(org, entry), stateOf(org.orgId))

    const { orgId: defaultOrgId } = yield* insertProject(undefined)
    for (const orgId of [org.orgId, defaultOrgId]) {
      const named = orgId === defaultOrgId ? undefined : orgId
      const project = { projectId: yield* newId, name: "docs", orgId: named, newOrgId: "unused", now: at(0) }
      yield* assertAudited(orgId, (entry) => projects.insert(project, entry), stateOf(orgId))
    }

    const { orgId, project } = yield* insertTenant
    const { projectId } = project
    const state = stateOf(orgId)
    for (const changes of [{ name: "new" }, link(), { hostOwner: null, hostRepo: null }]) {
      yield* assertAudited(orgId, (entry) => projects.update(everyOrg, projectId, changes, at(1), entry), state)
    }
    const [ofProject, ofOrg, next] = [yield* newKey(), yield* newKey({ name: "gateway" }), yield* newKey()]
    yield* assertAudited(orgId, (entry) => keys.insertForProject(everyOrg, projectId, ofProject, entry), state)
    yield* assertAudited(orgId, (entry) => keys.insertForOrg(orgId, ofOrg, entry), state)
    const replacement = { ...next, now: at(1), expiresAt: undefined, oldKeyUntil: at(2), settings: {} }
    yield* assertAudited(orgId, (entry) => keys.rotate(orgId, ofOrg.id, replacement, entry), state, {
      details: { name: "gateway", b: 1, a: null },
    })
    yield* assertAudited(orgId, (entry) => keys.remove(orgId, ofProject.id, entry), state)
  })

  it.effect("audit: a refused change has no entry", function* () {
    const [projects, keys] = [yield* ProjectRepository, yield* ApiKeyRepository]
    const [own, foreign] = [yield* insertTenant, yield* insertTenant]
    const scope = oneOrg(own.orgId)
    const [key, taken] = [yield* newKey(), link()]
    yield* keys.insertForOrg(foreign.orgId, key, newEntry())
    yield* projects.update(
      everyOrg,
      foreign.project.projectId,
      { subdomain: key.id.toLowerCase(), ...taken },
      at(1),
      newEntry(),
    )
    const logs = Effect.all([listOf(own.orgId), listOf(foreign.orgId)])
    const before = yield* logs
    const replacement = { ...(yield* newKey()), now: at(1), expiresAt: undefined, oldKeyUntil: at(2), settings: {} }
    const update = (projectId: string, changes: object) => projects.update(scope, projectId, changes, at(2), newEntry())
    const refused = [
      insertProject(yield* newId),
      update(foreign.project.projectId, { name: "new" }),
      update(foreign.project.projectId, link()),
      update(own.project.projectId, { subdomain: key.id.toLowerCase() }),
      update(own.project.projectId, taken),
      keys.insertForProject(scope, foreign.project.projectId, yield* newKey(), newEntry()),
      keys.insertForOrg(yield* newId, yield* newKey(), newEntry()),
      keys.rotate(own.orgId, key.id, replacement, newEntry()),
      keys.remove(own.orgId, key.id, newEntry()),
    ]
    for (const change of refused) yield* failureOf(change as Effect.Effect<unknown, unknown>)
    assert.deepStrictEqual(yield* logs, before)
  })

  it.effect("audit: returns entries as they were written, with any text", function* () {
    const orgs = yield* OrgRepository
    for (const text of awkwardTexts) {
      const details = { name: text, none: null, list: [1, { deep: true }], [text.slice(0, 5)]: -0.5 }
      // The target is an id, of at most 255 characters.
      const target = [...text].slice(0, 100).join("")
      const entry = newEntry({ at: at(7), actor: text, target, requestId: text, details })
      const org = { orgId: yield* newId, name: "Acme", createdAt: at(0) }
      yield* orgs.insert(org, entry)
      assert.deepStrictEqual(yield* listOf(org.orgId), [shown(entry)])
    }
  })

  it.effect("audit: filters by person and time; each entry has the person as they were then", function* () {
    const keys = yield* ApiKeyRepository
    const { list } = yield* AuditRepository
    const { orgId } = yield* insertOrg()
    const change = Effect.fnUntraced(function* (subject: string | undefined, seconds: number, name = "Jo") {
      const person = subject === undefined ? null : { subject, name, email: null }
      const actor = subject === undefined ? "administrator" : `person:${subject}`
      // The id has the time of the entry, as the service makes it.
      const id = `${idAt(DateTime.toEpochMillis(at(seconds)))}${(yield* newId).slice(10)}`
      const entry = newEntry({ id, at: at(seconds), actor, person })
      yield* keys.insertForOrg(orgId, yield* newKey(), entry)
      return shown(entry)
    })
    const own = [yield* change("1", 1), yield* change("1", 2, "Jo Doe-Miller")]
    const other = yield* change("2", 3)
    const machine = yield* change(undefined, 4)
    const found = (filter: object) =>
      Effect.map(itemsOf(list(orgId, { limit: 1000, ...filter })), (all) => all.map((row) => shown(row)))
    assert.deepStrictEqual(yield* found({ person: "1" }), own.toReversed())
    assert.deepStrictEqual(yield* found({ person: "nobody" }), [])
    // Not by the text of another actor.
    assert.deepStrictEqual(yield* found({ person: "administrator" }), [])
    assert.deepStrictEqual(yield* found({ since: at(2), until: at(4) }), [other, own[1]])
    assert.deepStrictEqual(yield* found({ since: at(4) }), [machine])
    assert.deepStrictEqual(yield* found({ person: "1", until: at(2) }), [own[0]])
    // A clock that stepped back: the id has a later time.
    const id = `${idAt(DateTime.toEpochMillis(at(3_000)))}${(yield* newId).slice(10)}`
    const late = newEntry({ id, at: at(5) })
    yield* keys.insertForOrg(orgId, yield* newKey(), late)
    assert.deepStrictEqual(yield* found({ since: at(4), until: at(6) }), [shown(late), machine])
    const paged = yield* list(orgId, { limit: 1, person: "1" })
    assert.strictEqual(paged.hasMore, true)
    const rest = yield* list(orgId, { limit: 10, person: "1", cursor: paged.items[0]!.id })
    assert.deepStrictEqual(
      rest.items.map((row) => shown(row)),
      [own[0]],
    )
  })

  it.effect("audit: lists the entries of one org, newest first, in pages; an unknown org has none", function* () {
    const keys = yield* ApiKeyRepository
    const { orgId } = yield* insertOrg()
    const foreign = yield* insertOrg()
    const { list } = yield* AuditRepository
    const ids = (yield* listOf(orgId)).map(({ id }) => id)
    for (const org of [orgId, orgId, foreign.orgId, orgId]) {
      const entry = newEntry()
      yield* keys.insertForOrg(org, yield* newKey(), entry)
      if (org === orgId) ids.unshift(entry.id)
    }
    yield* assertPages(
      (page) => list(orgId, page),
      ({ id }) => id,
      ids,
    )
    assert.strictEqual((yield* listOf(foreign.orgId)).length, 2)
    assert.strictEqual(yield* failureOf(listOf(yield* newId)), noSuchOrg)
  })
}
