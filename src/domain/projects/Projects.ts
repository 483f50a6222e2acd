import { Context, DateTime, Effect, Layer } from "effect"
import { SecureRandom } from "effect/crypto"
import type { AuditEntry } from "../audit/AuditEntry.ts"
import { AuditLog } from "../audit/AuditLog.ts"
import { CurrentPrincipal, managedScope, orgNotFound, OrgScope } from "../Principal.ts"
import { isSameOwner, type RepositoryOwner } from "../RepositoryOwner.ts"
import { LinkPolicy, type PutRepositoryLink, type RepositoryLink } from "./RepositoryLink.ts"
import { type Conflict, Forbidden, InvalidRequest, type LimitReached, NotFound, type Unavailable } from "../Errors.ts"
import { KeyMemory } from "../KeyMemory.ts"
import { OrgRepository } from "../orgs/Orgs.ts"
import { type Found, nextCursor, type Page } from "../Page.ts"
import type { CreateProject, Project, UpdateProject } from "./Project.ts"

/** A new project. Without `orgId` it belongs to the default org. */
export interface NewProject {
  readonly projectId: string
  readonly name: string
  readonly orgId: string | undefined
  /** The id of the default org, in case the project creates it. */
  readonly newOrgId: string
  readonly now: DateTime.Utc
}

/** The projects of orgs. */
export class ProjectRepository extends Context.Service<
  ProjectRepository,
  {
    /**
     * Inserts a project. Without `orgId` it belongs to the default org, which is inserted too when there is none. Fails
     * when the org is unknown or has reached its limit of projects.
     */
    readonly insert: (
      project: NewProject,
      entry: AuditEntry,
    ) => Effect.Effect<Project, NotFound | LimitReached | Unavailable>
    readonly find: (scope: OrgScope, projectId: string) => Effect.Effect<Project, NotFound | Unavailable>
    /** Projects of the scope, oldest first. */
    readonly list: (scope: OrgScope, page: Page) => Effect.Effect<Found<Project>, Unavailable>
    /**
     * Applies all changes or none. Fails with a `Conflict` when another project has the subdomain or the repository.
     */
    readonly update: (
      scope: OrgScope,
      projectId: string,
      changes: UpdateProject,
      now: DateTime.Utc,
      entry: AuditEntry,
    ) => Effect.Effect<Project, NotFound | Conflict | LimitReached | Unavailable>
    /**
     * Deletes a project, notifies every replica, and begins its erasure, which is a sweep. Its name, subdomain and
     * repository are free at once. Returns its org.
     */
    readonly remove: (
      scope: OrgScope,
      projectId: string,
      now: DateTime.Utc,
      entry: AuditEntry,
    ) => Effect.Effect<string, NotFound | Unavailable>
    /** The link of a project. Fails when there is no such project, or it has no link. */
    readonly findLink: (scope: OrgScope, projectId: string) => Effect.Effect<RepositoryLink, NotFound | Unavailable>
    /**
     * Links a project and sets its pins. The same repository keeps the ids that its runs have proved. Fails with a
     * `Conflict` when another project has the repository.
     */
    readonly putLink: (
      scope: OrgScope,
      projectId: string,
      link: RepositoryLink,
      now: DateTime.Utc,
      entry: AuditEntry,
    ) => Effect.Effect<RepositoryLink, NotFound | Conflict | LimitReached | Unavailable>
    /** Removes the link of a project, with its pins. Fails like `findLink`. */
    readonly removeLink: (
      scope: OrgScope,
      projectId: string,
      now: DateTime.Utc,
      entry: AuditEntry,
    ) => Effect.Effect<void, NotFound | Unavailable>
  }
>()("gatehouse/domain/Projects/ProjectRepository") {}

export const projectNotFound = () => new NotFound({ error: "There is no such project." })
export const linkNotFound = () => new NotFound({ error: "No repository is linked to the project." })

/** The projects that the current principal manages. */
export class Projects extends Context.Service<Projects>()("gatehouse/domain/Projects", {
  make: Effect.gen(function* () {
    const repository = yield* ProjectRepository
    const orgs = yield* OrgRepository
    const random = yield* SecureRandom.SecureRandom
    const audit = yield* AuditLog
    const rules = yield* LinkPolicy
    const { forgetOwner } = yield* KeyMemory

    /**
     * Fails for a repository whose runs could never register. Nobody can sit on the name of another's repository: an
     * org key links only repositories of its org's owners.
     */
    const checkLink = Effect.fnUntraced(function* (scope: OrgScope, owner: RepositoryOwner) {
      if (!rules.issuers.has(owner.provider)) {
        const known = `provider must be one of ${[...rules.issuers.keys()].join(", ")}.`
        const here = `${owner.provider} is no configured CI provider, so that no run could register`
        return yield* new InvalidRequest({ error: `${here}: ${known}` })
      }
      if (owner.provider === "github" && owner.owner.includes("/")) {
        return yield* new InvalidRequest({ error: "hostOwner must have no /: GitHub has no nested groups." })
      }
      if (scope._tag === "EveryOrg") return
      const owners = yield* orgs.owners(scope.orgId)
      if (owners.some((own) => isSameOwner(own, owner))) return
      return yield* new Forbidden({
        error:
          "An org key can link only repositories whose owner is in the org's owners. Ask the administrator to add the owner, or to link this repository.",
      })
    })

    return {
      // `Effect.fn` would take a stack trace at each call, which costs a tenth of a creation.
      /**
       * Creates a project in the given org, else in the org of the caller's key, else as `ProjectRepository.insert`
       * says.
       */
      create: Effect.fnUntraced(function* (input: typeof CreateProject.Type) {
        const scope = yield* managedScope
        const { principal } = yield* CurrentPrincipal
        const ownOrg = principal._tag === "OrgKey" || principal._tag === "OrgPerson" ? principal.orgId : undefined
        if (scope._tag === "OneOrg" && input.orgId !== undefined && input.orgId !== scope.orgId) {
          return yield* new Forbidden({
            error: "An org key, or a person with a role in one org, creates projects in that org only.",
          })
        }
        const { name } = input
        const projectId = yield* random.ulid
        const orgId = input.orgId ?? ownOrg
        const project = { projectId, name, orgId, newOrgId: yield* random.ulid, now: yield* DateTime.now }
        const entry = yield* audit.entry({ action: "project.create", target: projectId, details: { name } })
        return yield* repository.insert(project, entry)
      }, Effect.withSpan("Projects.create")),

      /** A page of the projects, of one org when `orgId` is given. */
      list: Effect.fn("Projects.list")(function* (query: Page & { readonly orgId?: string | undefined }) {
        const scope = yield* managedScope
        if (query.orgId !== undefined && scope._tag === "OneOrg" && scope.orgId !== query.orgId) {
          return yield* orgNotFound()
        }
        const wanted = query.orgId === undefined ? scope : OrgScope.OneOrg({ orgId: query.orgId })
        const found = yield* repository.list(wanted, query)
        if (found.items.length === 0 && wanted._tag === "OneOrg") yield* orgs.find(wanted.orgId)
        return { projects: found.items, nextCursor: nextCursor(found, (project) => project.projectId) }
      }),

      get: Effect.fn("Projects.get")(function* (projectId: string) {
        return yield* repository.find(yield* managedScope, projectId)
      }),

      /** Changes a project. A link to a repository lets the CI runs of the repository register. */
      update: Effect.fn("Projects.update")(function* (projectId: string, changes: UpdateProject) {
        const scope = yield* managedScope
        if (changes.hostOwner != null) yield* checkLink(scope, { provider: "github", owner: changes.hostOwner })
        const entry = yield* audit.entry({ action: "project.update", target: projectId, details: { ...changes } })
        return yield* repository.update(scope, projectId, changes, yield* DateTime.now, entry)
      }),

      /** Deletes a project with everything in it. */
      remove: Effect.fn("Projects.remove")(function* (projectId: string) {
        const scope = yield* managedScope
        const entry = yield* audit.entry({ action: "project.delete", target: projectId, details: {} })
        const orgId = yield* repository.remove(scope, projectId, yield* DateTime.now, entry)
        yield* forgetOwner(orgId, projectId)
      }),

      /** The repository of a project, and the pins of its runs. */
      getLink: Effect.fn("Projects.getLink")(function* (projectId: string) {
        return yield* repository.findLink(yield* managedScope, projectId)
      }),

      /**
       * Links a project to a repository of any provider, with pins. In guarded mode, an org key links only its org's
       * owners.
       */
      putLink: Effect.fn("Projects.putLink")(function* (projectId: string, asked: PutRepositoryLink) {
        const scope = yield* managedScope
        const { provider, hostOwner: owner, environment = null, workflow = null } = asked
        yield* checkLink(scope, { provider, owner })
        const fault = rules.pinFault(provider, { environment, workflow })
        if (fault !== undefined) return yield* new InvalidRequest({ error: fault })
        const link = { ...asked, workflow, environment }
        const entry = yield* audit.entry({ action: "project.link", target: projectId, details: { ...link } })
        return yield* repository.putLink(scope, projectId, link, yield* DateTime.now, entry)
      }),

      removeLink: Effect.fn("Projects.removeLink")(function* (projectId: string) {
        const scope = yield* managedScope
        const entry = yield* audit.entry({ action: "project.unlink", target: projectId, details: {} })
        yield* repository.removeLink(scope, projectId, yield* DateTime.now, entry)
      }),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}
