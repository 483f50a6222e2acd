import { assert } from "@effect/vitest"
import { Cause, DateTime, Effect, Exit, Schema } from "effect"
import { SecureRandom } from "effect/crypto"
import type { NewApiKey } from "#src/domain/keys/ApiKeyRepository.ts"
import type { AlertRepository } from "#src/domain/alerts/Alerts.ts"
import { ApiKeyRepository } from "#src/domain/keys/ApiKeyRepository.ts"
import type { KeyCounterRepository } from "#src/domain/keys/LeasedQuotas.ts"
import { defaultSettings } from "#src/domain/keys/KeySettings.ts"
import type { KeyUsageRepository } from "#src/domain/keys/KeyUsage.ts"
import type { AuditEntry } from "#src/domain/audit/AuditEntry.ts"
import type { AuditRepository } from "#src/domain/audit/AuditLog.ts"
import { OrgScope } from "#src/domain/Principal.ts"
import type { RegistrationRules } from "#src/domain/deployments/registration.ts"
import type { CiRun } from "#src/domain/deployments/CiRun.ts"
import { DeploymentRepository } from "#src/domain/deployments/Deployments.ts"
import { Conflict, InvalidRequest, LimitReached, NotFound, Unavailable } from "#src/domain/Errors.ts"
import type { IdempotencyRepository } from "#src/domain/Idempotency.ts"
import { OrgRepository } from "#src/domain/orgs/Orgs.ts"
import type { Found, Page } from "#src/domain/Page.ts"
import type { ActivityRepository } from "#src/domain/activity/ActivityRepository.ts"
import type { RoleRepository } from "#src/domain/keys/Roles.ts"
import type { SessionRepository } from "#src/domain/sessions/SessionRepository.ts"
import type { DocsQuestionRepository } from "#src/domain/docs/DocsQuestions.ts"
import type { ProjectDocsRepository } from "#src/domain/docs/ProjectDocsRepository.ts"
import { ProjectRepository } from "#src/domain/projects/Projects.ts"
import { seededBytes } from "../fakes/crypto.ts"
import type { TestsWith } from "../support/it.ts"

export type Repositories =
  | AlertRepository
  | ApiKeyRepository
  | AuditRepository
  | DeploymentRepository
  | IdempotencyRepository
  | KeyCounterRepository
  | KeyUsageRepository
  | OrgRepository
  | DocsQuestionRepository
  | ProjectDocsRepository
  | ProjectRepository
  | RoleRepository
  | SessionRepository
  | ActivityRepository

/** `it` with the repositories of one backend. */
export type It = TestsWith<Repositories>

export const everyOrg = OrgScope.EveryOrg()
export const oneOrg = (orgId: string) => OrgScope.OneOrg({ orgId })
export const at = (seconds: number) => DateTime.makeUnsafe(Date.UTC(2026, 10, 20, 17, 0, seconds, 123))

const bytes = seededBytes(2)
/** A new ULID, greater than all before. */
export const newId = SecureRandom.make(bytes).ulid

/** An entry of the audit log for a change that needs one. */
export const newEntry = (overrides: Partial<AuditEntry> = {}): AuditEntry => ({
  id: Effect.runSync(newId),
  at: at(0),
  actor: "administrator",
  action: "key.create",
  target: "target",
  details: {},
  requestId: null,
  person: null,
  ...overrides,
})

/** Text that a careless query, encoding or column would change. */
export const awkwardTexts = [
  "😀 𝒳 ñ e\u0301 \u{10ffff}",
  `O'Brien "quoted" \\ $1 ? -- ; /* %s {}`,
  "  two\nlines\tand\u200b ",
  "x".repeat(10_000),
  "😀".repeat(5_000),
  "null",
]

export const insertOrg = Effect.fnUntraced(function* (name = "Acme", orgId?: string) {
  const org = { orgId: orgId ?? (yield* newId), name, createdAt: at(0) }
  yield* (yield* OrgRepository).insert(org, newEntry())
  return org
})

export const insertProject = Effect.fnUntraced(function* (orgId: string | undefined, name = "docs") {
  const projects = yield* ProjectRepository
  const project = { projectId: yield* newId, name, orgId, newOrgId: yield* newId, now: at(0) }
  return yield* projects.insert(project, newEntry())
})

/** An org with a project. */
export const insertTenant = Effect.gen(function* () {
  const { orgId } = yield* insertOrg()
  return { orgId, project: yield* insertProject(orgId) }
})

export const newKey = (overrides: Partial<NewApiKey> = {}) =>
  Effect.map(newId, (id): NewApiKey => {
    const hash = Buffer.from(bytes(32)).toString("hex")
    return {
      id,
      name: "ci",
      prefix: "svc_abcdefgh",
      keyPrefix: "svc",
      hash,
      createdAt: at(0),
      expiresAt: null,
      ...defaultSettings,
      ...overrides,
    }
  })

let repositories = 0
/** A repository that no other test uses. */
export const newRepository = () => {
  const n = ++repositories
  return {
    owner: `Octo${n}`,
    repo: "Docs",
    repositoryId: String(9_000_000_000_000_000_000n + BigInt(n)),
    ownerId: `${n}` as string | null,
  }
}

export const githubIssuer = "https://token.actions.githubusercontent.com"
export const gitlabIssuer = "https://gitlab.com"
const issuers = new Map([
  ["github", githubIssuer],
  ["gitlab", gitlabIssuer],
])
/** The configuration of an operator who lets every repository register. */
export const anyRules: RegistrationRules = {
  allowedOwners: "any",
  defaultBranches: ["main", "master"],
  issuers,
  pinFault: () => undefined,
}

let runs = 0
/** A push to main, of a run that no other test uses. */
export const push = (
  repository: Pick<CiRun, "owner" | "repo" | "repositoryId" | "ownerId">,
  overrides: Partial<CiRun> = {},
): CiRun => ({
  provider: "github",
  issuer: githubIssuer,
  issuedAt: null,
  workflowFile: `${repository.owner}/${repository.repo}/.github/workflows/deploy.yml`,
  branch: "main",
  ref: "refs/heads/main",
  sha: "6dcb09b5b57875f334f61aebed695e2e4193db5e",
  previewReason: null,
  pullRequest: null,
  runId: String(++runs),
  runAttempt: 1,
  workflow: null,
  actor: null,
  eventName: "push",
  environment: null,
  ...repository,
  ...overrides,
})

/** Registers a run; returns the outcome and the id that was passed for its deployment. */
export const register = Effect.fnUntraced(function* (
  run: CiRun,
  options: { seconds?: number; link?: boolean; rules?: Partial<RegistrationRules> } = {},
) {
  const ids = { deploymentId: yield* newId, newProjectId: yield* newId, newOrgId: yield* newId }
  const now = at(options.seconds ?? 0)
  const allowedOwners = options.link === true ? "linked" : "any"
  const rules = { ...anyRules, allowedOwners, ...options.rules } as const
  const registered = yield* (yield* DeploymentRepository).register({ run, ...ids, now, rules })
  const outcome =
    registered._tag === "Refused"
      ? { _tag: registered.reason }
      : { _tag: registered._tag, projectId: registered.projectId }
  const preview = registered._tag === "Registered" && registered.preview
  return {
    outcome,
    preview,
    deploymentId: ids.deploymentId,
    projectId: "projectId" in outcome ? outcome.projectId : "none",
  }
})

export const findProject = (projectId: string) =>
  ProjectRepository.use((projects) => projects.find(everyOrg, projectId))

/** The rows that a list returns. */
export const itemsOf = <A, E, R>(found: Effect.Effect<Found<A>, E, R>) => Effect.map(found, ({ items }) => items)
/** What an empty list returns. */
export const noRows = { items: [], hasMore: false }

export const deploymentsOf = (projectId: string) =>
  DeploymentRepository.use((deployments) => itemsOf(deployments.list(everyOrg, projectId, { limit: 100 })))

const encodeError = Schema.encodeUnknownSync(
  Schema.Union([NotFound, Conflict, InvalidRequest, LimitReached, Unavailable]),
)

/** The error of the operation, as the body of the answer. */
export const failureOf = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.map(Effect.flip(effect), (error) => JSON.stringify(encodeError(error)))

export const notFound = (error: string) => JSON.stringify({ error, code: "not_found" })
export const noSuchOrg = notFound("There is no such org.")
export const noSuchProject = notFound("There is no such project.")
export const noSuchKey = notFound("The org has no such key.")

export const assertDefect = Effect.fnUntraced(function* <A, E, R>(effect: Effect.Effect<A, E, R>) {
  const exit = yield* Effect.exit(effect)
  assert.isTrue(Exit.isFailure(exit) && Cause.hasDies(exit.cause))
})

/** Asserts that a list returns these ids in this order, at once and in pages of every size. */
export const assertPages = Effect.fnUntraced(function* <A, E, R>(
  list: (page: Page) => Effect.Effect<Found<A>, E, R>,
  id: (row: A) => string,
  expected: ReadonlyArray<string>,
  cursor?: string,
) {
  for (let limit = 1; limit <= expected.length + 1; limit++) {
    for (let from = 0; from <= expected.length; from++) {
      const { hasMore, items } = yield* list({ limit, cursor: from === 0 ? cursor : expected[from - 1] })
      assert.deepStrictEqual(items.map(id), expected.slice(from, from + limit))
      assert.strictEqual(hasMore, from + limit < expected.length)
    }
  }
})
