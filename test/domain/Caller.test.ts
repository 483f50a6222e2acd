import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { Caller, managedScope, requireAdministrator, requireOrg } from "#src/domain/Caller.ts"
import { as, failureOf, outcomeOf } from "./support.ts"

const callers = {
  administrator: Caller.Administrator(),
  "org key": Caller.OrgKey({ keyId: "k", orgId: "own" }),
  "project key": Caller.ProjectKey({ keyId: "k", orgId: "own", projectId: "p" }),
  anonymous: Caller.Anonymous(),
}

const guarded = [
  { name: "administrator", scope: "every org", administers: "ok", own: "ok", foreign: "ok" },
  { name: "org key", scope: "own", administers: "Forbidden", own: "ok", foreign: "NotFound" },
  { name: "project key", scope: "Forbidden", administers: "Forbidden", own: "Forbidden", foreign: "Forbidden" },
  {
    name: "anonymous",
    scope: "Unauthorized",
    administers: "Unauthorized",
    own: "Unauthorized",
    foreign: "Unauthorized",
  },
] as const

const open = guarded.map(({ name }) => ({ name, scope: "every org", administers: "ok", own: "ok", foreign: "ok" }))

describe.each([
  { mode: "guarded", isOpen: false, table: guarded },
  { mode: "open", isOpen: true, table: open },
])("in $mode mode", ({ isOpen, table }) => {
  it.effect.each(table)("$name", ({ name, ...expected }) =>
    Effect.gen(function* () {
      const scope = yield* managedScope.pipe(
        Effect.match({
          onSuccess: (scope) => (scope._tag === "EveryOrg" ? "every org" : scope.orgId),
          onFailure: ({ _tag }) => _tag,
        }),
      )
      const administers = yield* outcomeOf(requireAdministrator)
      const own = yield* outcomeOf(requireOrg("own"))
      const foreign = yield* outcomeOf(requireOrg("foreign"))
      assert.deepStrictEqual({ scope, administers, own, foreign }, expected)
    }).pipe(as(callers[name], isOpen)),
  )
})

describe("the words of a refusal", () => {
  it.effect("say the same of an org that is another's and of none", () =>
    Effect.gen(function* () {
      assert.strictEqual(yield* failureOf(requireOrg("foreign")), yield* failureOf(requireOrg("missing")))
    }).pipe(as(callers["org key"])),
  )

  it.effect("say how to send a credential", () =>
    Effect.gen(function* () {
      assert.include(yield* failureOf(managedScope), "Authorization: Bearer")
    }).pipe(as(callers.anonymous)),
  )
})
