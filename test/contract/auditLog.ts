import { assert } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { AuditEntry } from "#src/domain/AuditEntry.ts"
import { AuditRepository, type NewAuditEntry } from "#src/domain/AuditLog.ts"
import { OrgRepository } from "#src/domain/Orgs.ts"
import type { It } from "./support.ts"
import { assertPages, at, awkwardTexts, failureOf, insertOrg, newId, noSuchOrg } from "./support.ts"

const shown = Schema.encodeSync(AuditEntry)

const newEntry = (orgId: string, overrides: Partial<NewAuditEntry> = {}) =>
  Effect.map(newId, (id): NewAuditEntry => ({
    id,
    orgId,
    at: at(0),
    actor: "administrator",
    action: "key.create",
    target: "target",
    details: {},
    requestId: null,
    ...overrides,
  }))

const record = <A, E, R>(change: Effect.Effect<A, E, R>, entry: (made: A) => NewAuditEntry) =>
  AuditRepository.use((audit) => audit.record(change, entry))
const listOf = (orgId: string) => AuditRepository.use((audit) => audit.list(orgId, { limit: 100 }))

/** What every AuditRepository does. */
export const auditLog = (it: It) => {
  it.effect("audit: gives back what was written down, whatever is in it", () =>
    Effect.gen(function* () {
      const { orgId } = yield* insertOrg()
      for (const text of awkwardTexts) {
        const details = { name: text, none: null, list: [1, { deep: true }], [text.slice(0, 5)]: -0.5 }
        const entry = yield* newEntry(orgId, { at: at(7), actor: text, target: text, requestId: text, details })
        assert.strictEqual(yield* record(Effect.succeed("made"), () => entry), "made")
        const { orgId: _, ...row } = entry
        assert.deepStrictEqual(shown((yield* listOf(orgId))[0]!), shown(row))
      }
    }),
  )

  it.effect("audit: a change is made, and told by what it gave", () =>
    Effect.gen(function* () {
      const org = { orgId: yield* newId, name: "Acme", createdAt: at(0) }
      const made = yield* newEntry(org.orgId)
      const insert = Effect.andThen(
        OrgRepository.use((orgs) => orgs.insert(org)),
        Effect.succeed("what it gave"),
      )
      yield* record(insert, (target) => ({ ...made, target }))
      assert.deepStrictEqual(
        (yield* listOf(org.orgId)).map(({ target }) => target),
        ["what it gave"],
      )
    }),
  )

  it.effect("audit: a change that fails is not written down, and fails as it did", () =>
    Effect.gen(function* () {
      const { orgId } = yield* insertOrg()
      const entry = yield* newEntry(orgId)
      const missing = OrgRepository.use((orgs) => orgs.find("nobody"))
      assert.strictEqual(yield* failureOf(record(missing, () => entry)), noSuchOrg)
      assert.deepStrictEqual(yield* listOf(orgId), [])
    }),
  )

  it.effect("audit: lists an org's own, newest first, in pages; an org that does not exist has none", () =>
    Effect.gen(function* () {
      const { orgId } = yield* insertOrg()
      const foreign = yield* insertOrg()
      const entries = [yield* newEntry(orgId), yield* newEntry(orgId), yield* newEntry(orgId), yield* newEntry(orgId)]
      for (const entry of [...entries, yield* newEntry(foreign.orgId)]) yield* record(Effect.void, () => entry)
      const ids = entries.map(({ id }) => id).toReversed()
      const { list } = yield* AuditRepository
      yield* assertPages(
        (page) => list(orgId, page),
        ({ id }) => id,
        ids,
      )
      assert.strictEqual((yield* listOf(foreign.orgId)).length, 1)
      assert.deepStrictEqual(yield* listOf((yield* insertOrg()).orgId), [])
      assert.strictEqual(yield* failureOf(listOf(yield* newId)), noSuchOrg)
    }),
  )
}
