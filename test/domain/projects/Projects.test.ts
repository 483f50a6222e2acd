import { assert, describe } from "@effect/vitest"
import { DateTime, Effect, Schema } from "effect"
import { TestClock } from "effect/testing"
import { Principal } from "#src/domain/Principal.ts"
import { Orgs } from "#src/domain/orgs/Orgs.ts"
import { UpdateProject } from "#src/domain/projects/Project.ts"
import { Projects } from "#src/domain/projects/Projects.ts"
import { World } from "../../fakes/World.ts"
import { it } from "../../support/it.ts"
import { as, asAdministrator, failureOf, makeTenant, services, unknownId } from "../support.ts"

const ulid = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/

describe("Projects", () => {
  it.effect("are created in the named org, else in the org of the org key, else in the default org", () =>
    Effect.gen(function* () {
      const projects = yield* Projects
      const made = yield* projects.create({ name: "p" }).pipe(as(Principal.Anonymous(), true))
      const { orgId } = yield* makeTenant
      const asOrgKey = as(Principal.OrgKey({ keyId: "k", orgId }))
      assert.strictEqual((yield* projects.create({ name: "p", orgId }).pipe(asAdministrator)).orgId, orgId)
      assert.strictEqual((yield* projects.create({ name: "p" }).pipe(asOrgKey)).orgId, orgId)
      assert.strictEqual((yield* projects.create({ name: "p", orgId }).pipe(asOrgKey)).orgId, orgId)
      const next = yield* projects.create({ name: "p" }).pipe(asAdministrator)
      assert.deepStrictEqual([made.orgId, next.orgId], Array(2).fill((yield* World).defaultOrgId))
      assert.match(made.projectId, ulid)
      assert.match(made.orgId, ulid)
    }).pipe(Effect.provide(services())),
  )

  it.effect("in another org are refused with the same bytes, whether it exists or not", () =>
    Effect.gen(function* () {
      const projects = yield* Projects
      const [own, other] = [yield* makeTenant, yield* makeTenant]
      const asOrgKey = as(Principal.OrgKey({ keyId: "k", orgId: own.orgId }))
      const refusal = yield* failureOf(projects.create({ name: "p", orgId: other.orgId })).pipe(asOrgKey)
      assert.strictEqual(refusal, yield* failureOf(projects.create({ name: "p", orgId: unknownId })).pipe(asOrgKey))
      assert.include(refusal, `"code":"forbidden"`)
      const missing = yield* failureOf(projects.create({ name: "p", orgId: unknownId })).pipe(asAdministrator)
      assert.include(missing, `"code":"not_found"`)
    }).pipe(Effect.provide(services())),
  )

  it.effect("have times from the clock", () =>
    Effect.gen(function* () {
      const projects = yield* Projects
      yield* TestClock.setTime(1_000)
      const { projectId } = yield* projects.create({ name: "p" })
      yield* TestClock.setTime(2_000)
      const { createdAt, updatedAt } = yield* projects.update(projectId, { name: "q" })
      assert.deepStrictEqual([createdAt, updatedAt].map(DateTime.toEpochMillis), [1_000, 2_000])
      assert.strictEqual((yield* projects.get(projectId)).name, "q")
    }).pipe(asAdministrator, Effect.provide(services())),
  )

  // Seen failing: nothing told that no run could ever register.
  it.effect("are linked to repositories of configured providers alone, also with a change", () =>
    Effect.gen(function* () {
      const projects = yield* Projects
      const { projectId } = yield* makeTenant
      const link = { hostOwner: "octo", hostRepo: "docs" }
      assert.include(yield* failureOf(projects.update(projectId, link)), "provider must be one of acme-ci.")
      assert.include(yield* failureOf(projects.putLink(projectId, { provider: "github", ...link })), "acme-ci")
      assert.strictEqual((yield* projects.update(projectId, { hostOwner: null, hostRepo: null })).hostOwner, null)
      yield* projects.putLink(projectId, { provider: "acme-ci", hostOwner: "group/nested", hostRepo: "docs" })
    }).pipe(asAdministrator, Effect.provide(services({ provider: "acme-ci" }))),
  )

  it.effect("are listed in pages, of every org or of one; an unknown org has none", () =>
    Effect.gen(function* () {
      const projects = yield* Projects
      const [a, b] = [yield* makeTenant, yield* makeTenant]
      const first = yield* projects.list({ limit: 1 })
      assert.deepStrictEqual([first.projects[0]!.projectId, first.nextCursor], [a.projectId, a.projectId])
      const second = yield* projects.list({ limit: 1, cursor: a.projectId })
      assert.deepStrictEqual([second.projects[0]!.projectId, second.nextCursor], [b.projectId, null])
      const ofOne = yield* projects.list({ limit: 1, orgId: b.orgId })
      assert.deepStrictEqual([ofOne.projects[0]!.projectId, ofOne.nextCursor], [b.projectId, null])
      const past = yield* projects.list({ limit: 1, orgId: b.orgId, cursor: b.projectId })
      assert.deepStrictEqual(past, { projects: [], nextCursor: null })
      assert.include(yield* failureOf(projects.list({ limit: 1, orgId: unknownId })), "no such org")
    }).pipe(asAdministrator, Effect.provide(services())),
  )
})

describe("UpdateProject", () => {
  const decode = Schema.decodeUnknownOption(UpdateProject)
  it.each([
    { name: "a" },
    { defaultBranch: null },
    { subdomain: "a" },
    { subdomain: "0-9".padEnd(63, "x") },
    { subdomain: null, name: "b" },
    { hostOwner: "Octo", hostRepo: ".github" },
    { hostOwner: null, hostRepo: null },
  ])("accepts %j", (update) => assert.deepStrictEqual(decode(update), decode({ ...update, unknown: 1 })))

  it.each([
    {},
    { unknown: 1 },
    { name: null },
    { name: "" },
    { defaultBranch: "" },
    ...["main ", "a b", "main\n"].map((defaultBranch) => ({ defaultBranch })),
    ...["", "-a", "a-", "A", "a.b", "a_b", "ä", "a".repeat(64), "a\n"].map((subdomain) => ({ subdomain })),
    { hostOwner: "a" },
    { hostRepo: "a" },
    { hostOwner: null, hostRepo: "a" },
    { hostOwner: "a", hostRepo: null },
    { hostOwner: "a/b", hostRepo: "c" },
    { hostOwner: "a", hostRepo: "" },
    { hostOwner: "a", hostRepo: "b".repeat(101) },
  ])("refuses %j", (update) => assert.strictEqual(decode(update)._tag, "None"))
})

describe("Orgs", () => {
  it.effect("are created with a ULID and the time of the clock, and listed in pages", () =>
    Effect.gen(function* () {
      const orgs = yield* Orgs
      yield* TestClock.setTime(1_000)
      const [a, b] = [yield* orgs.create({ name: "a" }), yield* orgs.create({ name: "b" })]
      assert.match(a.orgId, ulid)
      assert.deepStrictEqual([a.name, DateTime.toEpochMillis(a.createdAt)], ["a", 1_000])
      assert.deepStrictEqual(yield* orgs.list({ limit: 1 }), { orgs: [a], nextCursor: a.orgId })
      assert.deepStrictEqual(yield* orgs.list({ limit: 1, cursor: a.orgId }), { orgs: [b], nextCursor: null })
      assert.deepStrictEqual(yield* orgs.list({ limit: 1, cursor: b.orgId }), { orgs: [], nextCursor: null })
    }).pipe(asAdministrator, Effect.provide(services())),
  )
})
