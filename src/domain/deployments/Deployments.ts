import type { Redacted } from "effect"
import { Context, DateTime, Effect, Layer } from "effect"
import { SecureRandom } from "effect/crypto"
import type { CurrentPrincipal, OrgScope } from "../Principal.ts"
import { ciTokenNeeded, managedScope } from "../Principal.ts"
import { CiTokens } from "./CiToken.ts"
import type { CiRun, Deployment } from "./Deployment.ts"
import { runFromClaims } from "./Deployment.ts"
import type { Forbidden, LimitReached, NotFound, Unavailable } from "../Errors.ts"
import { Unauthorized } from "../Errors.ts"
import { type Found, nextCursor, type Page } from "../Page.ts"
import { ProjectRepository } from "../projects/Projects.ts"
import type { Registration } from "./Registration.ts"

/** A run to register, with the ids for its new records. */
export interface NewDeployment {
  readonly run: CiRun
  readonly deploymentId: string
  readonly projectId: string
  readonly defaultOrgId: string
  readonly now: DateTime.Utc
  /** Whether to create a project for a repository that is not linked to one. */
  readonly createProject: boolean
}

/** The result of a registration. */
export type Registered =
  | { readonly _tag: "Registered"; readonly projectId: string }
  /** No project is linked to the repository, and `createProject` is `false`. */
  | { readonly _tag: "NotLinked" }
  /** A project is linked to the repository's name, but to another repository id: the name was reused. */
  | { readonly _tag: "NameReused" }

/** The deployments of projects. */
export class DeploymentRepository extends Context.Service<
  DeploymentRepository,
  {
    /**
     * Finds or creates the project of a run, updates its link, and records the run, in one transaction. A repeated run
     * attempt changes nothing. Fails when it must create a project and the org has reached its limit.
     */
    readonly register: (deployment: NewDeployment) => Effect.Effect<Registered, LimitReached | Unavailable>
    /** Deployments of the project, newest first. */
    readonly list: (scope: OrgScope, projectId: string, page: Page) => Effect.Effect<Found<Deployment>, Unavailable>
  }
>()("gatehouse/domain/Deployments/DeploymentRepository") {}

/**
 * The repositories that may register: all, only those that are linked to a project, or only those of the listed owners, in
 * any case.
 */
export type AllowedOwners = "any" | "linked" | ReadonlyArray<string>

export class RegistrationPolicy extends Context.Service<
  RegistrationPolicy,
  { readonly allowedOwners: AllowedOwners }
>()("gatehouse/domain/Deployments/RegistrationPolicy") {}

const registrationOf = (run: CiRun, registered: Registered): Effect.Effect<Registration, Unauthorized> => {
  switch (registered._tag) {
    case "NotLinked":
      return new Unauthorized({
        error: "No project is linked to the repository, and OIDC_ALLOWED_OWNERS does not let it make one.",
      })
    case "NameReused":
      return new Unauthorized({
        error: "A project is linked to this repository's name, but to another repository's id: the name was reused.",
      })
    case "Registered": {
      const { projectId } = registered
      return Effect.succeed({ ok: true, projectId, branch: run.branch, ...(run.preview ? { preview: true } : {}) })
    }
  }
}

/** Deployments. CI runs register them; principals that manage the project list them. */
export class Deployments extends Context.Service<
  Deployments,
  {
    /** Returns the run of a CI token that may register. */
    readonly admit: (token: Redacted.Redacted<string> | undefined) => Effect.Effect<CiRun, Unauthorized | Unavailable>
    /** Registers a run that `admit` returned. */
    readonly register: (run: CiRun) => Effect.Effect<Registration, Unauthorized | LimitReached | Unavailable>
    /** A page of a project's deployments. */
    readonly list: (
      projectId: string,
      page: Page,
    ) => Effect.Effect<
      { readonly deployments: ReadonlyArray<Deployment>; readonly nextCursor: string | null },
      NotFound | Unauthorized | Forbidden | Unavailable,
      CurrentPrincipal
    >
  }
>()("gatehouse/domain/Deployments") {
  static readonly layer = Layer.effect(
    Deployments,
    Effect.gen(function* () {
      const repository = yield* DeploymentRepository
      const projects = yield* ProjectRepository
      const tokens = yield* CiTokens
      const random = yield* SecureRandom.SecureRandom
      const { allowedOwners } = yield* RegistrationPolicy

      const ownerMayRegister = (owner: string) =>
        typeof allowedOwners === "string" ||
        allowedOwners.some((allowed) => allowed.toLowerCase() === owner.toLowerCase())

      const admit = Effect.fn("Deployments.admit")(function* (token: Redacted.Redacted<string> | undefined) {
        if (token === undefined) {
          return yield* ciTokenNeeded()
        }
        const run = yield* Effect.fromResult(runFromClaims(yield* tokens.verify(token)))
        if (!ownerMayRegister(run.owner)) {
          return yield* new Unauthorized({
            error: "The repository's owner may not register here (OIDC_ALLOWED_OWNERS).",
          })
        }
        return run
      })

      const register = Effect.fn("Deployments.register")(function* (run: CiRun) {
        const registered = yield* repository.register({
          run,
          deploymentId: yield* random.ulid,
          projectId: yield* random.ulid,
          defaultOrgId: yield* random.ulid,
          now: yield* DateTime.now,
          createProject: allowedOwners !== "linked",
        })
        return yield* registrationOf(run, registered)
      })

      const list = Effect.fn("Deployments.list")(function* (projectId: string, page: Page) {
        const scope = yield* managedScope
        const found = yield* repository.list(scope, projectId, page)
        if (found.items.length === 0) yield* projects.find(scope, projectId)
        return { deployments: found.items, nextCursor: nextCursor(found, (deployment) => deployment.id) }
      })

      return Deployments.of({ admit, register, list })
    }),
  )
}
