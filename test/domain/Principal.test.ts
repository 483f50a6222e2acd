import { assert, describe } from "@effect/vitest"
import { Effect } from "effect"
import {
  currentRun,
  currentTenant,
  managedScope,
  Principal,
  requireAdministrator,
  requireOrg,
} from "#src/domain/Principal.ts"
import type { CiRun } from "#src/domain/deployments/CiRun.ts"
import { it } from "../support/it.ts"
import { as, failureOf, outcomeOf } from "./support.ts"

const run: CiRun = {
  owner: "acme",
  repo: "site",
  repositoryId: "1",
  provider: "github",
  issuer: "https://issuer.example",
  issuedAt: null,
  ownerId: "65",
  workflowFile: null,
  branch: "main",
  ref: "refs/heads/main",
  sha: "0".repeat(40),
  previewReason: null,
  pullRequest: null,
  runId: "1",
  runAttempt: 1,
  workflow: "deploy",
  actor: "someone",
  eventName: "push",
  environment: null,
}
const person = { subject: "s", name: null, email: null, role: "viewer" } as const
const callers = {
  person: Principal.Person({ person }),
  "person of an org": Principal.OrgPerson({ person, orgId: "own" }),
  administrator: Principal.Administrator(),
  "org key": Principal.OrgKey({ keyId: "k", orgId: "own" }),
  "project key": Principal.ProjectKey({ keyId: "k", orgId: "own", projectId: "p" }),
  "CI run": Principal.CiRun({ run }),
  anonymous: Principal.Anonymous(),
}

const guarded = [
  { name: "administrator", scope: "every org", administers: "ok", own: "ok", foreign: "ok" },
  { name: "person", scope: "every org", administers: "ok", own: "ok", foreign: "ok" },
  { name: "person of an org", scope: "own", administers: "Forbidden", own: "ok", foreign: "NotFound" },
  { name: "org key", scope: "own", administers: "Forbidden", own: "ok", foreign: "NotFound" },
  { name: "project key", scope: "Forbidden", administers: "Forbidden", own: "Forbidden", foreign: "Forbidden" },
  { name: "CI run", scope: "Forbidden", administers: "Forbidden", own: "Forbidden", foreign: "Forbidden" },
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

it.effect.each([
  { name: "administrator", tenant: "Unauthorized", ci: "Unauthorized" },
  { name: "person", tenant: "Unauthorized", ci: "Unauthorized" },
  { name: "person of an org", tenant: "own", ci: "Unauthorized" },
  { name: "org key", tenant: "own", ci: "Unauthorized" },
  { name: "project key", tenant: "own", ci: "Unauthorized" },
  { name: "CI run", tenant: "Unauthorized", ci: "acme" },
  { name: "anonymous", tenant: "Unauthorized", ci: "Unauthorized" },
] as const)("the tenant and the run of: $name", ({ name, ...expected }) =>
  Effect.gen(function* () {
    const tenant = yield* Effect.match(currentTenant, { onSuccess: (orgId) => orgId, onFailure: ({ _tag }) => _tag })
    const ci = yield* Effect.match(currentRun, { onSuccess: ({ owner }) => owner, onFailure: ({ _tag }) => _tag })
    assert.deepStrictEqual({ tenant, ci }, expected)
  }).pipe(as(callers[name], true)),
)

describe("the words of a refusal", () => {
  it.effect("are the same for an org of another tenant and for an unknown org", () =>
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
