import { assert, describe } from "@effect/vitest"
import { DateTime, Effect } from "effect"
import { TestClock } from "effect/testing"
import type { AllowedOwners } from "#src/domain/deployments/registration.ts"
import { parseOwner } from "#src/domain/RepositoryOwner.ts"
import { Deployments } from "#src/domain/deployments/Deployments.ts"
import { Projects } from "#src/domain/projects/Projects.ts"
import { tokenOf } from "../../fakes/CiTokenVerifier.ts"
import { World } from "../../fakes/World.ts"
import { it } from "../../support/it.ts"
import { githubClaims } from "../../support/oidc.ts"
import { asAdministrator, failureOf, makeTenant, outcomeOf, services, unknownId } from "../support.ts"

const push = githubClaims("https://issuer.example", "aud", 0)
const pullRequest = { event_name: "pull_request", ref: "refs/pull/42/merge", head_ref: "fix", base_ref: "main" }
const register = (overrides: Record<string, unknown> = {}) =>
  Deployments.use((deployments) =>
    Effect.flatMap(deployments.verify(tokenOf({ ...push, ...overrides })), deployments.register),
  )

const owners = (...names: ReadonlyArray<string>) => names.map((name) => parseOwner(name)!)
const link = (hostOwner: string, hostRepo: string) =>
  Effect.gen(function* () {
    const { projectId } = yield* makeTenant
    yield* asAdministrator((yield* Projects).update(projectId, { hostOwner, hostRepo }))
    return projectId
  })

describe("registering a run", () => {
  it.effect("returns the project and the branch, and preview only when it is one", () =>
    Effect.gen(function* () {
      const first = yield* register()
      const { projectId } = first
      assert.deepStrictEqual(first, { ok: true, projectId: projectId!, branch: "main" })
      const expected = { ok: true, projectId: projectId!, branch: "fix", preview: true }
      assert.deepStrictEqual(yield* register({ ...pullRequest, run_id: "2" }), expected)
      // The same run again gets the same answer.
      assert.deepStrictEqual(yield* register(), first)
      assert.strictEqual((yield* World).deployments.size, 2)
    }).pipe(Effect.provide(services())),
  )

  it.effect("records the claims with the ids and the time of the service", () =>
    Effect.gen(function* () {
      yield* TestClock.setTime(5_000)
      const { projectId } = yield* register()
      const [deployment] = (yield* World).deployments.values()
      assert.match(deployment!.id, /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/)
      assert.strictEqual(DateTime.toEpochMillis(deployment!.createdAt), 5_000)
      const { sha, runId, runAttempt, eventName, actor } = deployment!
      assert.deepStrictEqual(
        [deployment!.projectId, sha, runId, runAttempt, eventName, actor],
        [projectId, push.sha, push.run_id, Number(push.run_attempt), "push", push.actor],
      )
    }).pipe(Effect.provide(services())),
  )

  const policies: ReadonlyArray<{ allowed: AllowedOwners; unlinked: string; linked: string }> = [
    { allowed: "any", unlinked: "ok", linked: "ok" },
    { allowed: "linked", unlinked: "Unauthorized", linked: "ok" },
    { allowed: owners("octo-org"), unlinked: "ok", linked: "ok" },
    { allowed: owners("other", "OCTO-Org"), unlinked: "ok", linked: "ok" },
    {
      allowed: owners("other", "octo", "octo-org-2", "gitlab:octo-org"),
      unlinked: "Unauthorized",
      linked: "Unauthorized",
    },
    { allowed: [], unlinked: "Unauthorized", linked: "Unauthorized" },
  ]
  it.effect.each(policies)("allows the owners of the policy: $allowed", ({ allowed, unlinked, linked }) =>
    Effect.gen(function* () {
      const projects = (yield* World).projects
      assert.strictEqual(yield* outcomeOf(register()), unlinked)
      assert.strictEqual(projects.size, unlinked === "ok" ? 1 : 0)
      yield* link("OCTO-ORG", "second")
      const second = { repository: "octo-org/second", repository_id: "75" }
      assert.strictEqual(yield* outcomeOf(register(second)), linked)
      assert.strictEqual((yield* World).deployments.size, [unlinked, linked].filter((_) => _ === "ok").length)
    }).pipe(Effect.provide(services({ allowedOwners: allowed }))),
  )

  it.effect("needs a token", () =>
    Effect.gen(function* () {
      const refusal = yield* failureOf((yield* Deployments).verify(undefined))
      assert.include(refusal, `"code":"unauthorized"`)
      assert.include(refusal, "Authorization: Bearer")
    }).pipe(Effect.provide(services())),
  )

  const secret = "sEcReT"
  it.effect.each([
    { allowed: "any", claims: { repository: `${secret}!` } },
    { allowed: "any", claims: { sha: secret } },
    { allowed: "any", claims: { event_name: secret } },
    { allowed: "any", claims: { repository_owner: secret } },
    { allowed: "any", claims: { ref: `refs/heads/ ${secret}` } },
    { allowed: "any", claims: { event_name: "pull_request_target", head_ref: secret } },
    { allowed: "any", claims: { event_name: "pull_request", ref: secret } },
    { allowed: "linked", claims: { repository: `octo-org/${secret}` } },
    { allowed: [], claims: { repository: `octo-org/${secret}` } },
    { allowed: "any", claims: { repository: "octo-org/reused", ref: `refs/heads/${secret}` } },
  ] as const)("refuses in words that repeat nothing of the token: $claims, %#", ({ allowed, claims }) =>
    Effect.gen(function* () {
      yield* link("octo-org", "reused")
      if (allowed === "any") yield* register({ repository: "octo-org/reused", repository_id: "99" })
      const before = (yield* World).deployments.size
      const refusal = yield* failureOf(register(claims))
      assert.include(refusal, `"code":"unauthorized"`)
      assert.notInclude(refusal.toLowerCase(), secret.toLowerCase())
      assert.notInclude(refusal, push.sha)
      assert.strictEqual((yield* World).deployments.size, before)
    }).pipe(Effect.provide(services({ allowedOwners: allowed }))),
  )
})

describe("listing deployments", () => {
  it.effect("returns pages, newest first, and nothing for an unknown project", () =>
    Effect.gen(function* () {
      const deployments = yield* Deployments
      const { projectId } = yield* register({ run_id: "1" })
      yield* register({ run_id: "2" })
      const first = yield* deployments.list(projectId!, { limit: 1 })
      assert.deepStrictEqual([first.deployments[0]!.runId, first.nextCursor], ["2", first.deployments[0]!.id])
      const second = yield* deployments.list(projectId!, { limit: 1, cursor: first.nextCursor! })
      assert.deepStrictEqual([second.deployments[0]!.runId, second.nextCursor], ["1", null])
      const empty = yield* makeTenant
      assert.deepStrictEqual(yield* deployments.list(empty.projectId, { limit: 1 }), {
        deployments: [],
        nextCursor: null,
      })
      assert.include(yield* failureOf(deployments.list(unknownId, { limit: 1 })), "no such project")
    }).pipe(asAdministrator, Effect.provide(services())),
  )
})
