import { assert, describe, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { AfterCommit } from "#src/domain/AfterCommit.ts"
import { AuditRepository, type NewAuditEntry } from "#src/domain/AuditLog.ts"
import { Conflict } from "#src/domain/Errors.ts"
import { IdempotencyRepository } from "#src/domain/Idempotency.ts"
import { OrgRepository } from "#src/domain/Orgs.ts"
import * as AfterCommitSql from "#src/infrastructure/AfterCommit.ts"
import * as AuditLogSql from "#src/infrastructure/sql/AuditLog.ts"
import * as IdempotencySql from "#src/infrastructure/sql/Idempotency.ts"
import * as OrgsSql from "#src/infrastructure/sql/Orgs.ts"
import { at, insertOrg, newId } from "../contract/support.ts"
import { databases } from "../support/databases.ts"

const repositories = Layer.mergeAll(AfterCommitSql.layer, AuditLogSql.layer, IdempotencySql.layer, OrgsSql.layer)

const isThere = (orgId: string) =>
  OrgRepository.use((orgs) =>
    orgs.find(orgId).pipe(
      Effect.as(true),
      Effect.catchTag("NotFound", () => Effect.succeed(false)),
    ),
  )

const entryOf = (orgId: string, overrides: Partial<NewAuditEntry> = {}) =>
  Effect.map(newId, (id): NewAuditEntry => ({
    id,
    orgId,
    at: at(0),
    actor: "administrator",
    action: "org.create",
    target: orgId,
    details: {},
    requestId: null,
    ...overrides,
  }))

const once = <A, E, R>(key: string, operation: Effect.Effect<A, E, R>) =>
  IdempotencyRepository.use((keys) =>
    keys.once(
      { caller: "c", operation: "o", key },
      { now: at(0), expiresAt: at(60) },
      Effect.map(operation, (answer) => ({ answer, record: "r" })),
    ),
  )

for (const [name, database] of Object.entries(databases)) {
  layer(Layer.provideMerge(repositories, database), { excludeTestServices: true })(name, (it) => {
    describe("a change and what is kept of it are one", () => {
      // Seen failing without the transaction: the org stays.
      it.effect("a change that cannot be written down is undone", () =>
        Effect.gen(function* () {
          const { record } = yield* AuditRepository
          const { orgId } = yield* insertOrg()
          const taken = yield* entryOf(orgId)
          yield* record(Effect.void, () => taken)
          const org = yield* newId
          const exit = yield* Effect.exit(record(insertOrg("undone", org), () => taken))
          assert.strictEqual(exit._tag, "Failure")
          assert.isFalse(yield* isThere(org))
        }),
      )

      // Seen failing without the transaction: the org stays, and another is made when it is tried again.
      it.effect("a keyed operation that fails later on is undone, the changes inside it with their entries", () =>
        Effect.gen(function* () {
          const { record, list } = yield* AuditRepository
          const { orgId } = yield* insertOrg()
          const org = yield* newId
          const entry = yield* entryOf(orgId)
          const failing = Effect.andThen(
            record(insertOrg("undone", org), () => entry),
            Effect.fail(new Conflict({ error: "Taken." })),
          )
          assert.strictEqual((yield* Effect.flip(once("fails", failing)))._tag, "Conflict")
          assert.isFalse(yield* isThere(org))
          assert.deepStrictEqual(yield* list(orgId, { limit: 1 }), [])
          const made = yield* once(
            "fails",
            record(insertOrg("made", org), () => entry),
          )
          assert.deepStrictEqual([made._tag, yield* isThere(org)], ["Made", true])
        }),
      )

      it.effect("a keyed operation that is cut short is undone", () =>
        Effect.gen(function* () {
          const org = yield* newId
          const cut = once("cut", Effect.andThen(insertOrg("undone", org), Effect.never))
          assert.strictEqual((yield* Effect.timeoutOption(cut, "200 millis"))._tag, "None")
          assert.isFalse(yield* isThere(org))
          assert.strictEqual((yield* once("cut", insertOrg("made", org)))._tag, "Made")
        }),
      )

      it.effect("what is to follow a change follows its commit, and never one that is undone", () =>
        Effect.gen(function* () {
          const afterCommit = yield* AfterCommit
          const told: Array<string> = []
          const tell = (what: string) => afterCommit(Effect.sync(() => void told.push(what)))
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
        }),
      )
    })

    it.effect("the audit log refuses to be changed", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const { record, list } = yield* AuditRepository
        const { orgId } = yield* insertOrg()
        const entry = yield* entryOf(orgId)
        yield* record(Effect.void, () => entry)
        const refusal = yield* Effect.flip(sql`UPDATE audit_log SET actor = 'somebody else'`)
        assert.match(String((refusal.reason.cause as Error).message), /never changed/)
        assert.strictEqual((yield* list(orgId, { limit: 1 }))[0]!.actor, "administrator")
      }),
    )
  })
}
