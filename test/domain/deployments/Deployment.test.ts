import { assert, describe, it } from "@effect/vitest"
import { Result, Schema } from "effect"
import { subdomainFor } from "#src/domain/deployments/Deployment.ts"
import { GitHubClaims, readGitHub, runFromGitHub } from "#src/domain/deployments/providers/knownProviders.ts"
import { githubClaims } from "../../support/oidc.ts"

type Overrides = Record<string, unknown>
const run = (overrides: Overrides) => readGitHub({ ...githubClaims("https://issuer.example", "aud", 0), ...overrides })

const event = (event_name: string, ref: string, head_ref = "", base_ref = "") => ({
  event_name,
  ref,
  head_ref,
  base_ref,
})
const queue = "gh-readonly-queue/main/pr-7-6dcb09b"

/** Event and refs → branch, preview, pull request. */
const matrix: ReadonlyArray<readonly [Overrides, readonly [string, boolean, number | null]]> = [
  [event("push", "refs/heads/main"), ["main", false, null]],
  [event("push", "refs/heads/feature/a"), ["feature/a", false, null]],
  [event("push", "refs/heads/refs/heads/main"), ["refs/heads/main", false, null]],
  [event("push", "refs/heads/refs/tags/v1"), ["refs/tags/v1", false, null]],
  [event("push", "refs/heads/main", "other", "base"), ["main", false, null]],
  [event("push", "refs/tags/v1.0.0"), ["v1.0.0", true, null]],
  [event("push", "refs/tags/main"), ["main", true, null]],
  [event("push", `refs/heads/${queue}`), [queue, false, null]],
  [event("push", "refs/notes/main"), ["refs/notes/main", true, null]],
  [event("push", "main"), ["main", true, null]],
  [event("pull_request", "refs/pull/42/merge", "fix", "main"), ["fix", true, 42]],
  [event("pull_request", "refs/pull/42/merge", "main", "main"), ["main", true, 42]],
  [event("pull_request", "refs/pull/42/merge", "fix"), ["fix", true, 42]],
  // The "closed" event of a merged pull request runs on the base branch.
  [event("pull_request", "refs/heads/main", "fix", "main"), ["fix", true, null]],
  [event("pull_request", "refs/pull/9999999999/merge", "fix", "main"), ["fix", true, null]],
  [event("pull_request_review", "refs/pull/42/merge", "fix", "main"), ["fix", true, 42]],
  [event("pull_request_review", "refs/pull/42/merge"), ["refs/pull/42/merge", true, 42]],
  [event("pull_request_review_comment", "refs/pull/42/merge", "main"), ["main", true, 42]],
  [event("merge_group", `refs/heads/${queue}`), [queue, true, null]],
  [event("workflow_dispatch", "refs/heads/main"), ["main", true, null]],
  [event("workflow_dispatch", "refs/tags/v1"), ["v1", true, null]],
  [event("repository_dispatch", "refs/heads/main"), ["main", true, null]],
  [event("schedule", "refs/heads/main"), ["main", true, null]],
  [event("workflow_run", "refs/heads/main"), ["main", true, null]],
  [event("release", "refs/tags/v1"), ["v1", true, null]],
  [event("deployment", "refs/heads/main"), ["main", true, null]],
  [event("issue_comment", "refs/heads/main"), ["main", true, null]],
  [event("create", "refs/tags/v1"), ["v1", true, null]],
]

const refusals: ReadonlyArray<readonly [Overrides, RegExp]> = [
  [event("pull_request_target", "refs/heads/main", "fix", "main"), /pull_request_target/],
  [event("pull_request", "refs/pull/42/merge"), /"head_ref" is missing/],
  [event("deployment", ""), /"ref" names no branch/],
  [event("push", "refs/heads/"), /"ref" names no branch/],
  [event("push", "refs/tags/"), /"ref" names no branch/],
  [{ event_name: "PUSH" }, /"event_name"/],
  [{ repository: "octo-org" }, /"repository"/],
  [{ repository: "octo-org/" }, /"repository"/],
  [{ repository: "/octo-repo" }, /"repository"/],
  [{ repository: "octo-org/octo-repo/x" }, /"repository"/],
  [{ repository: "octo-org/.." }, /"repository"/],
  [{ repository: "octo-org/octo repo" }, /"repository"/],
  [{ repository: "https://github.com/octo-org/octo-repo" }, /"repository"/],
  [{ repository_owner: "Octo-Org" }, /different owners/],
  [{ repository_owner: "stranger" }, /different owners/],
  [{ repository: "stranger/octo-repo" }, /different owners/],
]

describe("runFromGitHub", () => {
  it.each(matrix)("%o", (overrides, expected) => {
    const { branch, previewReason, pullRequest } = Result.getOrThrow(run(overrides))
    assert.deepStrictEqual([branch, previewReason !== null, pullRequest], expected)
  })

  it.each(refusals)("refuses %o", (overrides, sentence) => {
    const result = run(overrides)
    assert.isTrue(Result.isFailure(result) && sentence.test(result.failure.error))
  })

  it("returns the other fields of the record, and never reads sub", () => {
    const full = run({ sub: "repo:stranger/other:ref:refs/heads/x", environment: "production" })
    assert.deepStrictEqual(Result.getOrThrow(full), {
      owner: "octo-org",
      repo: "octo-repo",
      ownerId: "65",
      repositoryId: "74",
      branch: "main",
      ref: "refs/heads/main",
      sha: "6dcb09b5b57875f334f61aebed695e2e4193db5e",
      previewReason: null,
      pullRequest: null,
      runId: "1658821493",
      runAttempt: 2,
      workflow: "docs",
      workflowFile: "octo-org/octo-repo/.github/workflows/docs.yml",
      actor: "octocat",
      eventName: "push",
      environment: "production",
    })
  })

  // Seen failing: the file of a tag with an @ was cut at the tag's own.
  it.each([
    [
      "octo-org/shared/.github/workflows/deploy.yml@refs/tags/deploy@1.2.0",
      "octo-org/shared/.github/workflows/deploy.yml",
    ],
    ["o/r/.github/workflows/a.yml@refs/heads/x@refs/heads/main", "o/r/.github/workflows/a.yml"],
    ["o/r/.github/workflows/a.yml@b.yml@refs/heads/main", "o/r/.github/workflows/a.yml@b.yml"],
    [`o/r/.github/workflows/a.yml@${"0".repeat(40)}`, "o/r/.github/workflows/a.yml"],
  ])("%s is the file %s", (job_workflow_ref, file) => {
    assert.strictEqual(Result.getOrThrow(run({ job_workflow_ref })).workflowFile, file)
  })

  it("returns null for claims that are missing or empty", () => {
    const { workflow: _, head_ref: __, base_ref: ___, ...sparse } = githubClaims("https://issuer.example", "aud", 0)
    const result = readGitHub({ ...sparse, actor: "" })
    const nothing = { workflow: null, actor: null, environment: null, branch: "main" }
    assert.deepInclude(Result.getOrThrow(result), nothing)
  })

  const Event = Schema.Literals(["push", "pull_request", "merge_group", "workflow_run", "schedule", "create"])
  const Prefix = Schema.Literals(["refs/heads/", "refs/tags/", "refs/pull/", "", "heads/", "refs/heads"])
  it.prop("only a push to a branch can be production", [GitHubClaims, Event, Prefix], ([claims, event, prefix]) => {
    const ref = prefix + claims.ref
    const result = runFromGitHub({ ...claims, repository: "a/b", repository_owner: "a", event_name: event, ref })
    const production = Result.isSuccess(result) && result.success.previewReason === null
    assert.strictEqual(production, event === "push" && ref.startsWith("refs/heads/") && ref !== "refs/heads/")
    if (production) assert.strictEqual(`refs/heads/${result.success.branch}`, ref)
  })
})

describe("subdomainFor", () => {
  const label = /^(?!..--)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/
  it.each([
    ["octo-org", "octo-repo", 1, "octo-repo-octo-org"],
    ["Octo", "Docs.Site_v2", 1, "docs-site-v2-octo"],
    ["octo", "xn--bcher-kva", 1, "xn-bcher-kva-octo"],
    ["octo", "-.github-", 1, "github-octo"],
    ["--", "..", 1, "project"],
    ["octo", "docs", 2, "docs-octo-2"],
    ["o".repeat(39), "r".repeat(62), 1, "r".repeat(62)],
    ["o".repeat(39), "r".repeat(100), 12, `${"r".repeat(60)}-12`],
  ] as const)("%s/%s, %i → %s", (owner, repo, n, expected) => {
    assert.strictEqual(subdomainFor(owner, repo, n), expected)
  })

  it.prop("is always a DNS label", [Schema.String, Schema.String, Schema.Int], ([owner, repo, n]) => {
    assert.match(subdomainFor(owner, repo, n), label)
  })

  it.prop("is a DNS label for the longest names, too", [Schema.Int], ([n]) => {
    assert.match(subdomainFor("A_".repeat(50), ".b-".repeat(33), Math.abs(n)), label)
  })
})
