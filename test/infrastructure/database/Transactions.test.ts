import { assert, describe } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { ApiKeyRepository } from "#src/domain/keys/ApiKeyRepository.ts"
import { AuditRepository } from "#src/domain/audit/AuditLog.ts"
import { Conflict } from "#src/domain/Errors.ts"
import { KeyMemory } from "#src/domain/KeyMemory.ts"
import { IdempotencyRepository } from "#src/domain/Idempotency.ts"
import { OrgRepository } from "#src/domain/orgs/Orgs.ts"
import { Wakeups } from "#src/domain/Wakeups.ts"
import * as AfterCommit from "#src/infrastructure/database/AfterCommit.ts"
import * as ApiKeysSql from "#src/infrastructure/keys/apiKeysSql.ts"
import * as AuditLogSql from "#src/infrastructure/audit/auditLogSql.ts"
import * as IdempotencySql from "#src/infrastructure/idempotency/idempotencySql.ts"
import * as OrgsSql from "#src/infrastructure/orgs/orgsSql.ts"
import * as ProjectsSql from "#src/infrastructure/projects/projectsSql.ts"
import { at, everyOrg, insertOrg, insertProject, newEntry, newId, newKey } from "../../contract/support.ts"
import { databases } from "../../support/databases.ts"
import { layer } from "../../support/it.ts"

const repositories = Layer.mergeAll(
  AfterCommit.wakeups.pipe(Layer.provide(Wakeups.layer)),
  ApiKeysSql.layer,
  AuditLogSql.layer,
  IdempotencySql.layer,
  OrgsSql.layer,
  ProjectsSql.layer,
)

const isThere = (orgId: string) =>
  OrgRepository.use((orgs) =>
    orgs.find(orgId).pipe(
      Effect.as(true),
      Effect.catchTag("NotFound", () => Effect.succeed(false)),
    ),
  )

const once = <A, E, R>(key: string, operation: Effect.Effect<A, E, R>) =>
  IdempotencyRepository.use((keys) =>
    keys.once(
      { orgId: "o", caller: "c", operation: "o", key },
      { now: at(0), expiresAt: at(60) },
      Effect.map(operation, (response) => ({ response, record: "r" })),
    ),
  )

for (const [name, database] of Object.entries(databases)) {
  layer(Layer.provideMerge(repositories, database), { excludeTestServices: true })(name, (it) => {
    describe("a change and its entry are one transaction", () => {
      // Seen failing without the transaction: the key stays, and the repeated request fails.
      it.effect("a keyed operation that fails later is rolled back, with its changes and their entries", function* () {
        const { insertForOrg, list } = yield* ApiKeyRepository
        const audit = yield* AuditRepository
        const { orgId } = yield* insertOrg()
        const [key, entry] = [yield* newKey(), newEntry()]
        const insert = insertForOrg(orgId, key, entry)
        const failing = Effect.andThen(insert, Effect.fail(new Conflict({ error: "Taken." })))
        const before = yield* audit.list(orgId, { limit: 10 })
        assert.strictEqual((yield* Effect.flip(once("fails", failing)))._tag, "Conflict")
        assert.deepStrictEqual((yield* list(orgId, { limit: 1 })).items, [])
        assert.deepStrictEqual(yield* audit.list(orgId, { limit: 10 }), before)
        const made = yield* once("fails", insert)
        assert.deepStrictEqual([made._tag, (yield* list(orgId, { limit: 1 })).items[0]!.id], ["Ran", key.id])
        assert.strictEqual((yield* audit.list(orgId, { limit: 1 })).items[0]!.id, entry.id)
      })

      it.effect("an interrupted keyed operation is rolled back", function* () {
        const org = yield* newId
        const inserted = yield* Deferred.make<void>()
        const cut = insertOrg("undone", org).pipe(
          Effect.andThen(Deferred.succeed(inserted, undefined)),
          Effect.andThen(Effect.never),
        )
        const running = yield* Effect.forkChild(once("cut", cut))
        yield* Deferred.await(inserted)
        yield* Fiber.interrupt(running)
        assert.isFalse(yield* isThere(org))
        assert.strictEqual((yield* once("cut", insertOrg("made", org)))._tag, "Ran")
      })

      it.effect("what follows a change runs after its commit, and never after a rollback", function* () {
        const told: Array<string> = []
        const forgotten: Array<string> = []
        const wakeups = yield* Wakeups
        yield* wakeups.onJobs((orgId) => told.push(orgId))
        const { forget } = yield* Effect.provide(KeyMemory, AfterCommit.keys).pipe(
          Effect.provideService(KeyMemory, {
            imported: Effect.void,
            forget: (keyId) => Effect.sync(() => void forgotten.push(keyId)),
            forgetOwner: (orgId) => Effect.sync(() => void forgotten.push(orgId)),
            forgetRoles: (orgId) => Effect.sync(() => void forgotten.push(orgId)),
          }),
        )
        const tell = (what: string) => Effect.andThen(wakeups.jobs(what), forget(what))
        yield* tell("at once")
        assert.deepStrictEqual(told, ["at once"])
        const inside = Effect.gen(function* () {
          yield* tell("later")
          assert.deepStrictEqual(told, ["at once"])
        })
        yield* once("follows", inside)
        assert.deepStrictEqual(told, ["at once", "later"])
        yield* Effect.exit(once("undone", Effect.andThen(tell("never"), Effect.fail("undone"))))
        assert.deepStrictEqual(told, ["at once", "later"])
        assert.deepStrictEqual(forgotten, told)
      })
    })

    // Seen failing with one statement for each.
    it.effect("keys and projects created at the same time share one transaction each", function* () {
      const sql = yield* SqlClient.SqlClient
      const { insertForProject } = yield* ApiKeyRepository
      const { orgId } = yield* insertOrg()
      const many = { concurrency: "unbounded" } as const
      // The first of an org, and of a project, counts what the org has.
      yield* insertProject(orgId, "first")
      const projects = yield* Effect.forEach(["a", "b", "c"], (name) => insertProject(orgId, name), many)
      assert.deepStrictEqual(
        projects.map(({ name }) => name),
        ["a", "b", "c"],
      )
      for (const { projectId } of projects) yield* insertForProject(everyOrg, projectId, yield* newKey(), newEntry())
      const keys = yield* Effect.forEach(projects, () => newKey())
      const insert = (n: number) => insertForProject(everyOrg, projects[n]!.projectId, keys[n]!, newEntry())
      yield* Effect.forEach([0, 1, 2], insert, many)
      const made = { projects: projects.map(({ projectId }) => projectId), api_keys: keys.map(({ id }) => id) }
      for (const [table, ids] of Object.entries(made)) {
        const transactions = yield* sql`SELECT DISTINCT xmin::text FROM ${sql(table)} WHERE ${sql.in("id", ids)}`
        assert.strictEqual(transactions.length, 1, table)
      }
    })

    it.effect("entries of the audit log cannot be changed", function* () {
      const sql = yield* SqlClient.SqlClient
      const { list } = yield* AuditRepository
      const { orgId } = yield* insertOrg()
      const refusal = yield* Effect.flip(sql`UPDATE audit_log SET actor = 'somebody else'`)
      assert.match(String((refusal.reason.cause as Error).message), /never changed/)
      assert.strictEqual((yield* list(orgId, { limit: 1 })).items[0]!.actor, "administrator")
    })
  })
}
