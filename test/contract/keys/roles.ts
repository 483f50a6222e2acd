import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { ApiKeyRepository } from "#src/domain/keys/ApiKeyRepository.ts"
import { RoleRepository } from "#src/domain/keys/Roles.ts"
import type { It } from "../support.ts"
import { everyOrg, failureOf, insertOrg, insertTenant, newEntry, newId, newKey, noSuchOrg, oneOrg } from "../support.ts"

const noSuchRole = JSON.stringify({ error: "The org has no such role.", code: "not_found" })

const permissionsOf = (hash: string) =>
  ApiKeyRepository.use((keys) =>
    Effect.map(keys.findByHashes([hash]), (found) => found.get(hash)!.permissions.list.toSorted()),
  )

/** The contract of every RoleRepository. */
export const roles = (it: It) => {
  it.effect("roles: are listed by name, replaced and deleted, for their org alone", function* () {
    const repository = yield* RoleRepository
    const [{ orgId }, other] = [yield* insertOrg(), yield* insertOrg()]
    const put = (org: string, name: string, ...permissions: ReadonlyArray<string>) =>
      repository.put(org, { name, permissions }, newEntry({ target: org }))
    const { list } = repository
    yield* put(orgId, "reader", "files.read")
    yield* put(orgId, "Admin", "*")
    yield* put(other.orgId, "reader", "models.*")
    yield* put(orgId, "reader", "files.read", "files.list")
    const reader = { name: "reader", permissions: ["files.read", "files.list"] }
    assert.deepStrictEqual(yield* list(orgId), [{ name: "Admin", permissions: ["*"] }, reader])
    assert.strictEqual(yield* failureOf(repository.remove(other.orgId, "Admin", newEntry())), noSuchRole)
    yield* repository.remove(orgId, "Admin", newEntry({ target: orgId }))
    assert.deepStrictEqual(yield* list(orgId), [reader])
    assert.lengthOf(yield* list(other.orgId), 1)
    assert.strictEqual(yield* failureOf(put(yield* newId, "reader")), noSuchOrg)
  })

  it.effect("roles: an org has 100 at most, of which each can be replaced", function* () {
    const repository = yield* RoleRepository
    const { orgId } = yield* insertOrg()
    const put = (name: string) => repository.put(orgId, { name, permissions: [name] }, newEntry({ target: orgId }))
    yield* Effect.forEach(
      Array.from({ length: 100 }, (_, n) => `r${n}`),
      put,
    )
    assert.include(yield* failureOf(put("one-more")), "100 roles")
    yield* put("r7")
    yield* repository.remove(orgId, "r7", newEntry({ target: orgId }))
    yield* put("one-more")
  })

  it.effect("roles: a key has the permissions of its roles, as they are now", function* () {
    const [keys, repository] = [yield* ApiKeyRepository, yield* RoleRepository]
    const { orgId, project } = yield* insertTenant
    const other = yield* insertOrg()
    const put = (org: string, name: string, ...permissions: ReadonlyArray<string>) =>
      repository.put(org, { name, permissions }, newEntry({ target: org }))
    yield* put(orgId, "reader", "files.read", "a")
    yield* put(orgId, "writer", "files.write")
    yield* put(other.orgId, "reader", "*")
    const key = yield* newKey({ permissions: ["a"], roles: ["reader", "writer", "gone"] })
    const plain = yield* newKey({ permissions: ["a"] })
    yield* keys.insertForProject(oneOrg(orgId), project.projectId, key, newEntry())
    yield* keys.insertForOrg(orgId, plain, newEntry())
    assert.deepStrictEqual(yield* permissionsOf(key.hash), ["a", "files.read", "files.write"])
    assert.deepStrictEqual(yield* permissionsOf(plain.hash), ["a"])
    yield* put(orgId, "reader", "models.*")
    assert.deepStrictEqual(yield* permissionsOf(key.hash), ["a", "files.write", "models.*"])
    yield* repository.remove(orgId, "writer", newEntry({ target: orgId }))
    assert.deepStrictEqual(yield* permissionsOf(key.hash), ["a", "models.*"])
    assert.deepStrictEqual((yield* keys.find(orgId, key.id)).roles, ["reader", "writer", "gone"])
    yield* keys.update(orgId, key.id, { roles: [] }, newEntry())
    assert.deepStrictEqual(yield* permissionsOf(key.hash), ["a"])
    yield* keys.update(orgId, plain.id, { roles: ["reader"] }, newEntry())
    assert.deepStrictEqual(yield* permissionsOf(plain.hash), ["a", "models.*"])
  })

  it.effect("roles: the first that an owner does not have is named", function* () {
    const repository = yield* RoleRepository
    const { orgId, project } = yield* insertTenant
    const other = yield* insertOrg()
    yield* repository.put(orgId, { name: "reader", permissions: [] }, newEntry({ target: orgId }))
    const ofProject = { scope: everyOrg, projectId: project.projectId }
    for (const owner of [{ orgId }, ofProject, { ...ofProject, scope: oneOrg(orgId) }]) {
      assert.strictEqual(yield* repository.firstMissing(owner, ["reader"]), undefined)
      assert.strictEqual(yield* repository.firstMissing(owner, ["reader", "z", "b"]), "z")
    }
    assert.strictEqual(yield* repository.firstMissing({ orgId: other.orgId }, ["reader"]), "reader")
    // What the scope does not have is not found, whatever its roles.
    const foreign = { ...ofProject, scope: oneOrg(other.orgId) }
    for (const owner of [foreign, { orgId: yield* newId }]) {
      assert.strictEqual(yield* repository.firstMissing(owner, ["z"]), undefined)
    }
  })
}
