import { assert } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { ApiKeyRepository } from "#src/domain/keys/ApiKeyRepository.ts"
import { KeyCounterRepository } from "#src/domain/keys/LeasedQuotas.ts"
import { OrgRepository } from "#src/domain/orgs/Orgs.ts"
import * as ApiKeysSql from "#src/infrastructure/keys/apiKeysSql.ts"
import * as KeyCountersSql from "#src/infrastructure/keys/keyCountersSql.ts"
import * as OrgsSql from "#src/infrastructure/orgs/orgsSql.ts"
import { databases } from "../../support/databases.ts"
import { layer } from "../../support/it.ts"
import { outcomeOf } from "../../domain/support.ts"
import { meanwhile } from "../meet.ts"
import { at, insertOrg, newEntry, newKey } from "../support.ts"

/**
 * Promise (Limits of keys): A rotation and a deletion of the old key at the same moment leave the new key its limits;
 * two deletions of the last keys leave no counter.
 */

const repositories = Layer.mergeAll(ApiKeysSql.layer, KeyCountersSql.layer, OrgsSql.layer)

const keys: typeof ApiKeyRepository.use = (use) => ApiKeyRepository.use(use)
const remove = (orgId: string, id: string) => keys((all) => all.remove(orgId, id, newEntry()))

/** A key with five credits, or with these limits. */
const insertKey = Effect.fnUntraced(function* (limits: Parameters<typeof newKey>[0] = { credits: { remaining: 5 } }) {
  const { orgId } = yield* insertOrg()
  const key = yield* newKey(limits)
  yield* keys((all) => all.insertForOrg(orgId, key, newEntry()))
  return { orgId, id: key.id }
})

const rotate = Effect.fnUntraced(function* (orgId: string, keyId: string) {
  const { hash, id } = yield* newKey()
  const times = { now: at(10), expiresAt: undefined, oldKeyUntil: at(20) }
  yield* keys((all) =>
    all.rotate(orgId, keyId, { id, hash, prefix: "svc_new", keyPrefix: "svc", ...times, settings: {} }, newEntry()),
  )
  return { id, hash }
})

const lease = (orgId: string, counterId: string) =>
  KeyCounterRepository.use((counters) =>
    counters.lease({ orgId, counterId }, { need: 1, waiting: 1, want: 0, unused: null }),
  )

const countersOf = (orgId: string) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Effect.map(sql`SELECT id FROM key_counters WHERE org_id = ${orgId}`, ({ length }) => length),
  )

// Runs on PostgreSQL only: the embedded database has one session, so sessions never meet there.
layer(Layer.provideMerge(repositories, databases.postgres), { excludeTestServices: true })("locks of keys", (it) => {
  // Seen failing with a deletion that decides in the statement that waits for the key: the new key had no limit.
  it.effect("a deletion that waits for the rotation of its key leaves the new key its limits", function* () {
    const { orgId, id } = yield* insertKey()
    const [next] = yield* meanwhile(rotate(orgId, id), remove(orgId, id))
    const grant = (yield* keys((all) => all.findByHashes([next.hash]))).get(next.hash)!
    assert.deepStrictEqual(grant.limits, { counterId: id, version: 0, rateLimit: null, hasCredits: true })
    assert.deepInclude(yield* lease(orgId, id), { units: 1, remaining: 4 })
    yield* remove(orgId, next.id)
    assert.strictEqual(yield* countersOf(orgId), 0)
  })

  // Seen failing without the lock of the counter: each deletion saw the key of the other one.
  it.effect("two deletions of the last keys of a counter leave no counter", function* () {
    const { orgId, id } = yield* insertKey()
    const next = yield* rotate(orgId, id)
    yield* meanwhile(remove(orgId, id), remove(orgId, next.id))
    assert.strictEqual(yield* countersOf(orgId), 0)
  })

  // Seen failing without the lock of the org: a key of a deleted org was valid.
  it.effect("an import that waits for the deletion of its org makes no key", function* () {
    const { orgId } = yield* insertOrg()
    const key = yield* newKey()
    const asked = { ...key, projectId: null, importStart: null }
    const [, outcome] = yield* meanwhile(
      OrgRepository.use((orgs) => orgs.remove(orgId, at(1), newEntry())),
      outcomeOf(keys((all) => all.importKeys(orgId, [asked], false, newEntry()))),
    )
    assert.strictEqual(outcome, "NotFound")
    assert.strictEqual((yield* keys((all) => all.findByHashes([key.hash]))).size, 0)
  })
})
