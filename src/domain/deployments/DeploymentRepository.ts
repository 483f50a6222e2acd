import type { DateTime, Effect } from "effect"
import { Context } from "effect"
import type { AuditEntry } from "../audit/AuditEntry.ts"
import { type LimitReached, NotFound, type Unavailable } from "../Errors.ts"
import type { Found, Page } from "../Page.ts"
import type { OrgScope } from "../Principal.ts"
import type { Project } from "../projects/Project.ts"
import type { Refusal, RegistrationRules } from "./registration.ts"
import type { CiRun } from "./CiRun.ts"
import type { Deployment } from "./Deployment.ts"
import type { ServiceEvent } from "../ServiceEvent.ts"

/** A run to register, with the ids for its new records. */
export interface NewDeployment {
  readonly run: CiRun
  readonly deploymentId: string
  readonly projectId: string
  readonly defaultOrgId: string
  readonly now: DateTime.Utc
  readonly rules: RegistrationRules
  /**
   * The event `deployment.registered`. Its body names `projectId`, in whose place the repository puts the linked
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
