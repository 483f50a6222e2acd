import { type Redacted, Context, DateTime, Effect, Layer } from "effect"
import { SecureRandom } from "effect/crypto"
import { Publish } from "../activity/LiveFeed.ts"
import { AuditLog } from "../audit/AuditLog.ts"
import { nextCursor, type Page, type Found } from "../Page.ts"
import { ciTokenNeeded, managedScope, type OrgScope } from "../Principal.ts"
import { ProjectRepository } from "../projects/Projects.ts"
import { LinkPolicy } from "../projects/RepositoryLink.ts"
import { refusal, type RegistrationRules, type Refusal } from "./registration.ts"
import { type CiRun, CiTokenVerifier } from "./CiRun.ts"
import type { Registration, Deployment } from "./Deployment.ts"
import { makeServiceEvent, type NewServiceEvent, type ServiceEvent } from "../ServiceEvent.ts"
import type { AuditEntry } from "../audit/AuditEntry.ts"
import { type LimitReached, NotFound, type Unavailable } from "../Errors.ts"
import type { Project } from "../projects/Project.ts"

/** The rules of registrations as a service. */
export class RegistrationPolicy extends Context.Service<RegistrationPolicy, RegistrationRules>()(
  "gatehouse/domain/Deployments/RegistrationPolicy",
) {
  /** The rules, also for links of projects. */
  static readonly layer = (rules: RegistrationRules) =>
    Layer.merge(Layer.succeed(RegistrationPolicy, rules), Layer.succeed(LinkPolicy, rules))
}

/** A run to register, with the ids for its new records. */
export interface NewDeployment {
  readonly run: CiRun
  readonly deploymentId: string
  /** The id of the project, if the run makes one. */
  readonly newProjectId: string
  /** The id of the default org, if the run makes that. */
  readonly newOrgId: string
  readonly now: DateTime.Utc
  readonly rules: RegistrationRules
  /**
   * The event `deployment.registered`. Its body names `newProjectId`, in whose place the repository puts the linked
   * project.
   */
  readonly event?: ServiceEvent | undefined
}

/** The result of a registration. */
export type Registered =
  | { readonly _tag: "Registered"; readonly orgId: string; readonly projectId: string; readonly preview: boolean }
  | { readonly _tag: "Refused"; readonly reason: Refusal }

/** Which deployments a list has; an absent field means all. */
export interface DeploymentFilter {
  readonly branch?: string | undefined
  readonly preview?: boolean | undefined
}

/** The deployments of projects. */
export class DeploymentRepository extends Context.Service<
  DeploymentRepository,
  {
    /**
     * Finds or creates the project of a run, updates its link, and records the run, in one transaction. `admitRun` and
     * `effectsOf` decide. A repeated run attempt changes nothing. Fails when it must create a project and the org has
     * reached its limit.
     */
    readonly register: (deployment: NewDeployment) => Effect.Effect<Registered, LimitReached | Unavailable>
    /**
     * Makes a deployment of the project current, whatever its run. The project's newest run stays at least as new.
     * Fails when the scope has no such project, or the project has no such deployment.
     */
    readonly promote: (
      scope: OrgScope,
      projectId: string,
      deploymentId: string,
      now: DateTime.Utc,
      entry: AuditEntry,
    ) => Effect.Effect<Project, NotFound | Unavailable>
    /** Deployments of the project, newest first. */
    readonly list: (
      scope: OrgScope,
      projectId: string,
      page: Page & DeploymentFilter,
    ) => Effect.Effect<Found<Deployment>, Unavailable>
  }
>()("gatehouse/domain/Deployments/DeploymentRepository") {}

export const deploymentNotFound = () => new NotFound({ error: "The project has no such deployment." })

const registeredBy = (run: CiRun, deployment_id: string, project_id: string): NewServiceEvent => {
  const { actor, branch, owner, provider, ref, repo, runAttempt, runId, sha } = run
  const ids = { deployment_id, project_id, provider, repository: `${owner}/${repo}`, run_id: runId }
  return { type: "deployment.registered", data: { ...ids, run_attempt: runAttempt, branch, ref, sha, actor } }
}

/** Deployments. CI runs register them; principals that manage the project list and promote them. */
export class Deployments extends Context.Service<Deployments>()("gatehouse/domain/Deployments", {
  make: Effect.gen(function* () {
    const repository = yield* DeploymentRepository
    const projects = yield* ProjectRepository
    const tokens = yield* CiTokenVerifier
    const random = yield* SecureRandom.SecureRandom
    const audit = yield* AuditLog
    const rules = yield* RegistrationPolicy
    const publish = yield* Publish
    const tell = (orgId: string, projectId: string, deploymentId: string) =>
      publish(() => [{ topic: "deployment", orgId, data: { projectId, deploymentId } }])

    return {
      /** Returns the run of a CI token. `register` decides whether its repository may register. */
      verify: Effect.fn("Deployments.verify")(function* (token: Redacted.Redacted<string> | undefined) {
        if (token === undefined) return yield* ciTokenNeeded()
        return yield* tokens.verify(token)
      }),

      /** Registers a run that `verify` returned. */
      register: Effect.fn("Deployments.register")(function* (run: CiRun) {
        const [deploymentId, newProjectId, now] = [yield* random.ulid, yield* random.ulid, yield* DateTime.now]
        const registered = yield* repository.register({
          run,
          deploymentId,
          newProjectId,
          newOrgId: yield* random.ulid,
          now,
          event: yield* makeServiceEvent(random, registeredBy(run, deploymentId, newProjectId), now),
          rules,
        })
        if (registered._tag === "Refused") return yield* refusal(registered.reason)
        const { orgId, preview, projectId } = registered
        tell(orgId, projectId, deploymentId)
        const answer: Registration = { ok: true, projectId, branch: run.branch, ...(preview ? { preview } : {}) }
        return answer
      }),

      /** Makes a deployment current: a preview goes live, or an older deployment is rolled back to. */
      promote: Effect.fn("Deployments.promote")(function* (projectId: string, deploymentId: string) {
        const scope = yield* managedScope
        const data = { deployment_id: deploymentId, project_id: projectId }
        const event = { type: "deployment.promoted", data } as const
        const entry = yield* audit.entry({
          action: "deployment.promote",
          target: deploymentId,
          details: { projectId },
          event,
        })
        const project = yield* repository.promote(scope, projectId, deploymentId, yield* DateTime.now, entry)
        tell(project.orgId, projectId, deploymentId)
        return project
      }),

      /** A page of a project's deployments. */
      list: Effect.fn("Deployments.list")(function* (projectId: string, page: Page & DeploymentFilter) {
        const scope = yield* managedScope
        const found = yield* repository.list(scope, projectId, page)
        if (found.items.length === 0) yield* projects.find(scope, projectId)
        return { deployments: found.items, nextCursor: nextCursor(found, (deployment) => deployment.id) }
      }),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}
