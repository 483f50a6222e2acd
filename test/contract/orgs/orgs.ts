import { assert } from "@effect/vitest"
import { Schema } from "effect"
import { ApiKeyRepository } from "#src/domain/keys/ApiKeyRepository.ts"
import { Org, type OrgFilter } from "#src/domain/orgs/Org.ts"
import type { Named } from "#src/domain/orgs/Named.ts"
import { OrgRepository } from "#src/domain/orgs/Orgs.ts"
import type { Page } from "#src/domain/Page.ts"
import type { OrgScope } from "#src/domain/Principal.ts"
import type { It } from "../support.ts"
import {
  noRows,
  itemsOf,
  assertDefect,
  at,
  assertPages,
  awkwardTexts,
  everyOrg,
  failureOf,
  insertOrg,
  insertProject,
  newEntry,
  newId,
  newKey,
  noSuchOrg,
  oneOrg,
} from "../support.ts"

/** Promise (Deleted is gone): What a process still counts for an org when it is deleted does not come back. */

const shown = Schema.encodeSync(Org)
const idOf = ({ orgId }: Org) => orgId

/** The contract of every OrgRepository. */
export const orgs = (it: It) => {
  it.effect("orgs: returns an inserted org, with any name", function* () {
    const repository = yield* OrgRepository
    for (const name of awkwardTexts) {
      const org = yield* insertOrg(name)
      assert.deepStrictEqual(shown(yield* repository.find(org.orgId)), shown(org))
      const [listed] = yield* itemsOf(repository.list(oneOrg(org.orgId), { limit: 1 }))
      assert.deepStrictEqual(Object.keys(listed!).sort(), ["createdAt", "name", "orgId"])
      assert.deepStrictEqual(shown(listed!), shown(org))
    }
  })

  it.effect("orgs: an unknown id is not found", function* () {
    const repository = yield* OrgRepository
    for (const id of [yield* newId, "' OR true --", "😀"]) {
      assert.strictEqual(yield* failureOf(repository.find(id)), noSuchOrg)
      assert.deepStrictEqual(yield* repository.list(oneOrg(id), { limit: 10 }), noRows)
    }
  })

  it.effect("orgs: an id is used once", function* () {
    const org = yield* insertOrg("first")
    yield* assertDefect(insertOrg("second", org.orgId))
    assert.strictEqual((yield* (yield* OrgRepository).find(org.orgId)).name, "first")
  })

  it.effect("orgs: lists every org, oldest first, in pages", function* () {
    const repository = yield* OrgRepository
    const before = yield* newId
    const ids = [yield* newId, yield* newId, yield* newId, yield* newId]
    // Inserts in reverse order of the ids, because lists sort by id.
    for (const id of ids.toReversed()) yield* insertOrg("Acme", id)
    yield* assertPages((page) => repository.list(everyOrg, page), idOf, ids, before)
  })

  it.effect("orgs: lists those whose name has a text, and the one that owns an id, in either order", function* () {
    const repository = yield* OrgRepository
    const [a, b, c] = [yield* insertOrg("Kestrel One"), yield* insertOrg("two"), yield* insertOrg("kestrel 3")]
    const own = b.orgId
    const key = yield* newKey()
    yield* (yield* ApiKeyRepository).insertForOrg(own, key, newEntry())
    const { projectId } = yield* insertProject(own)
    const cases: ReadonlyArray<readonly [OrgFilter, ReadonlyArray<Org>]> = [
      [{ text: "KESTREL" }, [a, c]],
      [{ text: "kestrel", order: "newest" }, [c, a]],
      [{ text: b.orgId.toLowerCase() }, [b]],
      [{ text: "kestrel_3" }, []],
      [{ owns: key.id }, [b]],
      [{ owns: projectId }, [b]],
      [{ owns: projectId, text: "kestrel" }, []],
      [{ owns: own }, []],
      [{ owns: "' OR true --" }, []],
    ]
    for (const [filter, expected] of cases) {
      yield* assertPages((page) => repository.list(everyOrg, page, filter), idOf, expected.map(idOf))
    }
    assert.deepStrictEqual(yield* repository.list(oneOrg(a.orgId), { limit: 9 }, { owns: projectId }), noRows)
    const [newest] = yield* itemsOf(repository.list(everyOrg, { limit: 1 }, { order: "newest" }))
    assert.strictEqual(newest!.orgId, c.orgId)
  })

  it.effect("orgs: finds what has a text in its name, newest first, in all orgs or in one", function* () {
    const repository = yield* OrgRepository
    const [a, b, gone] = [yield* insertOrg("A"), yield* insertOrg("B"), yield* insertOrg("C")]
    const keys = yield* ApiKeyRepository
    const found: Array<Named> = []
    for (const [org, name] of [
      [a, "Puffin one"],
      [b, "two"],
      [b, "my PUFFIN"],
      [gone, "puffin"],
    ] as const) {
      const key = { ...(yield* newKey()), name }
      yield* keys.insertForOrg(org.orgId, key, newEntry())
      if (org !== gone && name !== "two")
        found.unshift({ kind: "key", id: key.id, name, orgId: org.orgId, orgName: org.name })
    }
    yield* repository.remove(gone.orgId, at(0), newEntry({ action: "org.delete", target: gone.orgId }))
    const read = (page: Page, text = "puffin", scope: OrgScope = everyOrg) =>
      repository.findNamed(scope, { ...page, text })
    yield* assertPages(
      (page) => read(page),
      ({ id }) => id,
      found.map(({ id }) => id),
    )
    assert.deepStrictEqual(yield* itemsOf(read({ limit: 9 })), found)
    assert.deepStrictEqual(yield* itemsOf(read({ limit: 9 }, "puffin", oneOrg(a.orgId))), [found[1]!])
    assert.deepStrictEqual(yield* itemsOf(read({ limit: 9 }, "puffin%")), [])
  })

  it.effect("orgs: a scope of one org lists only that org", function* () {
    const repository = yield* OrgRepository
    const before = yield* newId
    const own = yield* insertOrg()
    yield* insertOrg()
    yield* assertPages((page) => repository.list(oneOrg(own.orgId), page), idOf, [own.orgId], before)
  })
}
