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

/** A run to register, with the ids that its records get if they are new. */
export interface NewDeployment {
  readonly run: CiRun
  readonly deploymentId: string
  readonly projectId: string
  readonly defaultOrgId: string
  readonly now: DateTime.Utc
  /** Whether a repository that no project is linked to gets a project of its own. */
  readonly createProject: boolean
}

/** What became of a run. */
export type Registered =
  | { readonly _tag: "Registered"; readonly projectId: string }
  /** No project is linked to the repository, and none was to be created. */
  | { readonly _tag: "NotLinked" }
  /** The repository's name is linked to another repository's id: the name was reused. */
  | { readonly _tag: "NameReused" }

/** Where deployments are kept. */
export class DeploymentRepository extends Context.Service<
  DeploymentRepository,
  {
    /**
     * Finds or makes the run's project, keeps its link up to date, and records the run: all of it or nothing. The same
     * run and attempt again changes nothing. Fails when it would make a project and the org has no room for one.
     */
    readonly register: (deployment: NewDeployment) => Effect.Effect<Registered, LimitReached | Unavailable>
    /** Deployments of the project, newest first. */
    readonly list: (scope: OrgScope, projectId: string, page: Page) => Effect.Effect<Found<Deployment>, Unavailable>
  }
>()("gatehouse/domain/Deployments/DeploymentRepository") {}

/**
 * Whose repositories may register: anyone's, those of the owners listed (any case), or only repositories that a project
 * is linked to already.
 */
export type AllowedOwners = "any" | "linked" | ReadonlyArray<string>

export class RegistrationPolicy extends Context.Service<
  RegistrationPolicy,
  { readonly allowedOwners: AllowedOwners }
>()("gatehouse/domain/Deployments/RegistrationPolicy") {}

/** Deployments: registered by CI runs with the provider's token, listed by those who manage the project. */
export class Deployments extends Context.Service<
  Deployments,
  {
    /** The run that a CI token was issued to, if it may register. Everything comes from the token's claims. */
    readonly admit: (token: Redacted.Redacted<string> | undefined) => Effect.Effect<CiRun, Unauthorized | Unavailable>
    /** Registers a run that was admitted. */
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
        switch (registered._tag) {
          case "NotLinked":
            return yield* new Unauthorized({
              error: "No project is linked to the repository, and OIDC_ALLOWED_OWNERS does not let it make one.",
            })
          case "NameReused":
            return yield* new Unauthorized({
              error:
                "A project is linked to this repository's name, but to another repository's id: the name was reused.",
            })
          case "Registered":
            return {
              ok: true,
              projectId: registered.projectId,
              branch: run.branch,
              ...(run.preview ? { preview: true } : {}),
            }
        }
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
