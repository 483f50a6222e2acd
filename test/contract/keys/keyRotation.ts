import { assert } from "@effect/vitest"
import { DateTime, Effect } from "effect"
import type { KeyReplacement } from "#src/domain/keys/ApiKeyRepository.ts"
import { ApiKeyRepository } from "#src/domain/keys/ApiKeyRepository.ts"
import { OrgRepository } from "#src/domain/orgs/Orgs.ts"
import { ProjectRepository } from "#src/domain/projects/Projects.ts"
import { grantOf, listOf, unset } from "./apiKeys.ts"
import type { It } from "../support.ts"
import {
  at,
  everyOrg,
  failureOf,
  insertOrg,
  insertTenant,
  newEntry,
  newId,
  newKey,
  noSuchKey,
  oneOrg,
} from "../support.ts"

const conflict = (error: string) => JSON.stringify({ error, code: "conflict" })
const expired = conflict("The key has expired: create a new one.")
const replacedBefore = conflict("The key was rotated before. Rotate its replacement.")
const iso = (time: DateTime.Utc) => DateTime.formatIso(time)

/** The replacement of a key at second 10; the old key is valid until second 20. */
const replacement = (overrides: Partial<KeyReplacement> = {}) =>
  Effect.map(newKey(), ({ id, hash }): KeyReplacement => {
    const times = { now: at(10), expiresAt: undefined, oldKeyUntil: at(20) }
    return { id, prefix: "svc_replaces", keyPrefix: "svc", hash, ...times, settings: {}, ...overrides }
  })

/** The contract of rotations in every ApiKeyRepository. */
export const keyRotation = (it: It) => {
  /**
   * Promise (Settings of keys): A new key has the prefix of its project, else of its org, whatever this replica
   * remembers; with the wrong one nothing is stored.
   */
  it.effect("prefixes: a key with another prefix than its owner's is neither inserted nor a replacement", function* () {
    const repository = yield* ApiKeyRepository
    const { orgId, project } = yield* insertTenant
    const { projectId } = project
    const setOrg = (keyPrefix: string | null) =>
      OrgRepository.use((orgs) => orgs.update(orgId, { keyPrefix }, newEntry({ target: orgId })))
    const setProject = (keyPrefix: string | null) =>
      ProjectRepository.use((projects) => projects.update(everyOrg, projectId, { keyPrefix }, at(1), newEntry()))
    const ofOrg = Effect.fnUntraced(function* (keyPrefix: string) {
      return yield* repository.insertForOrg(orgId, yield* newKey({ keyPrefix }), newEntry())
    })
    const ofProject = Effect.fnUntraced(function* (keyPrefix: string) {
      return yield* repository.insertForProject(oneOrg(orgId), projectId, yield* newKey({ keyPrefix }), newEntry())
    })
    yield* setOrg("acme_live")
    assert.deepStrictEqual([yield* ofOrg("svc"), yield* ofProject("svc")], ["acme_live", "acme_live"])
    assert.deepStrictEqual(yield* listOf(orgId), [])
    assert.deepStrictEqual([yield* ofOrg("acme_live"), yield* ofProject("acme_live")], [undefined, undefined])
    yield* setProject("docs")
    assert.deepStrictEqual([yield* ofOrg("docs"), yield* ofProject("acme_live")], ["acme_live", "docs"])
    assert.strictEqual(yield* ofProject("docs"), undefined)
    assert.lengthOf(yield* listOf(orgId), 3)
    const keys = yield* listOf(orgId)
    for (const { id, projectId: owner } of keys.slice(0, 2)) {
      const right = owner === null ? "acme_live" : "docs"
      const wrong = yield* replacement()
      assert.strictEqual((yield* repository.rotate(orgId, id, wrong, newEntry())).otherPrefix, right)
      assert.deepStrictEqual(yield* listOf(orgId), keys)
    }
    const next = yield* replacement({ keyPrefix: "acme_live" })
    assert.strictEqual((yield* repository.rotate(orgId, keys[0]!.id, next, newEntry())).otherPrefix, undefined)
    yield* setProject(null)
    yield* setOrg(null)
    assert.deepStrictEqual([yield* ofOrg("acme_live"), yield* ofProject("docs")], ["svc", "svc"])
  })

  it.effect("rotation: the new key has the fields of the old one, which ends with the overlap", function* () {
    const repository = yield* ApiKeyRepository
    const { orgId, project } = yield* insertTenant
    const rateLimit = { limit: 7, window: 60 }
    const ofProject = yield* newKey({ name: "😀 'ci'", rateLimit })
    const ofOrg = yield* newKey({ name: "gateway" })
    yield* repository.insertForProject(everyOrg, project.projectId, ofProject, newEntry())
    yield* repository.insertForOrg(orgId, ofOrg, newEntry())
    for (const old of [ofProject, ofOrg]) {
      const projectId = old === ofProject ? project.projectId : null
      const next = yield* replacement()
      assert.deepStrictEqual(yield* repository.rotate(orgId, old.id, next, newEntry()), {
        name: old.name,
        otherPrefix: undefined,
      })
      const grant = { orgId, projectId: projectId ?? "", rateLimit: old.rateLimit }
      assert.deepStrictEqual(yield* grantOf(next.hash), { ...grant, keyId: next.id, expiresAt: null })
      assert.deepStrictEqual(yield* grantOf(old.hash), { ...grant, keyId: old.id, expiresAt: iso(at(20)) })
      const shown = { ...unset, name: old.name, projectId, rateLimit: old.rateLimit }
      assert.deepStrictEqual((yield* listOf(orgId)).at(-1), {
        ...shown,
        id: next.id,
        prefix: "svc_replaces",
        createdAt: iso(at(10)),
        expiresAt: null,
      })
    }
  })

  it.effect(
    "rotation: the new key expires like the old one unless the request says when; the old one never expires later than before",
    function* () {
      const repository = yield* ApiKeyRepository
      const { orgId } = yield* insertOrg()
      const cases = [
        [at(15), undefined, iso(at(15)), iso(at(15))],
        [at(50), undefined, iso(at(50)), iso(at(20))],
        [at(50), null, null, iso(at(20))],
        [at(50), at(40), iso(at(40)), iso(at(20))],
        [null, at(40), iso(at(40)), iso(at(20))],
      ] as const
      for (const [expiresAt, wanted, ofNew, ofOld] of cases) {
        const old = yield* newKey({ expiresAt })
        yield* repository.insertForOrg(orgId, old, newEntry())
        const next = yield* replacement({ expiresAt: wanted })
        yield* repository.rotate(orgId, old.id, next, newEntry())
        assert.deepStrictEqual(
          [(yield* grantOf(next.hash))!.expiresAt, (yield* grantOf(old.hash))!.expiresAt],
          [ofNew, ofOld],
        )
      }
    },
  )

  it.effect("rotation: an expired, already rotated or unknown key creates no new key", function* () {
    const repository = yield* ApiKeyRepository
    const own = yield* insertTenant
    const foreign = yield* insertOrg()
    const [old, dead] = [yield* newKey(), yield* newKey({ expiresAt: at(10) })]
    for (const key of [old, dead]) yield* repository.insertForOrg(own.orgId, key, newEntry())
    const next = yield* replacement()
    const refused = [
      [own.orgId, dead.id, expired],
      [foreign.orgId, old.id, noSuchKey],
      [own.project.projectId, old.id, noSuchKey],
      [own.orgId, yield* newId, noSuchKey],
    ] as const
    for (const [orgId, id, failure] of refused) {
      assert.strictEqual(yield* failureOf(repository.rotate(orgId, id, next, newEntry())), failure)
    }
    assert.strictEqual((yield* grantOf(old.hash))!.expiresAt, null)
    yield* repository.rotate(own.orgId, old.id, next, newEntry())
    const { items } = yield* repository.list(own.orgId, { limit: 10 })
    const replacements = new Map(items.map((key) => [key.id, key.replacedBy]))
    assert.deepStrictEqual([replacements.get(old.id), replacements.get(next.id)], [next.id, null])
    assert.strictEqual(
      yield* failureOf(repository.rotate(own.orgId, old.id, yield* replacement(), newEntry())),
      replacedBefore,
    )
    // A rotated key is refused after its end too, with a pointer to the key that replaced it.
    const late = yield* replacement({ now: at(20) })
    assert.strictEqual(yield* failureOf(repository.rotate(own.orgId, old.id, late, newEntry())), replacedBefore)
    assert.strictEqual((yield* listOf(own.orgId)).length, 3)
    yield* repository.rotate(own.orgId, next.id, yield* replacement(), newEntry())
  })

  it.effect("rotation: of many rotations at once, one creates a key", function* () {
    const repository = yield* ApiKeyRepository
    const { orgId } = yield* insertOrg()
    const old = yield* newKey()
    yield* repository.insertForOrg(orgId, old, newEntry())
    const attempt = Effect.flatMap(replacement(), (next) =>
      Effect.result(repository.rotate(orgId, old.id, next, newEntry())),
    )
    const outcomes = yield* Effect.replicateEffect(attempt, 6, { concurrency: "unbounded" })
    assert.strictEqual(outcomes.filter(({ _tag }) => _tag === "Success").length, 1)
    assert.strictEqual((yield* listOf(orgId)).length, 2)
  })
}
