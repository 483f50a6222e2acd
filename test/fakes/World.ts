import { Context, Effect, Layer, Option } from "effect"
import type { DateTime } from "effect"
import type { ApiKey } from "#src/domain/keys/ApiKey.ts"
import type { KeyCounter } from "#src/domain/keys/keyLimits.ts"
import type { HourOfKey } from "#src/domain/keys/KeyUsage.ts"
import type { AuditEntry } from "#src/domain/audit/AuditEntry.ts"
import type { OrgScope } from "#src/domain/Principal.ts"
import type { Deployment } from "#src/domain/deployments/Deployment.ts"
import { formatOwner, type RepositoryOwner } from "#src/domain/RepositoryOwner.ts"
import type { Pins } from "#src/domain/projects/RepositoryLink.ts"
import type { RunPosition } from "#src/domain/deployments/registration.ts"
import type { Org } from "#src/domain/orgs/Org.ts"
import {
  DefaultLimits,
  limitReached,
  limitsOf,
  type OrgAmounts,
  type OrgLimitName,
  orgLimitNames,
  type OrgLimitOverrides,
} from "#src/domain/orgs/OrgLimits.ts"
import type { Found, Page } from "#src/domain/Page.ts"
import { cutRows, maxPageBytes } from "#src/domain/Page.ts"
import type { Project } from "#src/domain/projects/Project.ts"
import type { NewQuestion } from "#src/domain/docs/DocsQuestion.ts"
import type { FakeDocs } from "./ProjectDocs.ts"

export interface StoredProject {
  readonly row: Project
  /** The provider of the link; the row has its owner and name. */
  readonly provider: string
  readonly pins: Pins
  /** What runs have proved and measured. */
  readonly proved: {
    readonly repositoryId: string | null
    readonly issuer: string | null
    readonly ownerId: string | null
    readonly newest: RunPosition | null
  }
}

export const nothingProved: StoredProject["proved"] = { repositoryId: null, issuer: null, ownerId: null, newest: null }
export const noPins: Pins = { workflow: null, environment: null }

/** A deployment, with the place of its run. */
export interface StoredDeployment extends Deployment {
  readonly issuer: string
  readonly repositoryId: string
  readonly at: DateTime.Utc
}

export interface StoredOwner extends RepositoryOwner {
  readonly orgId: string
  readonly ownerId: string | null
}

export interface StoredKey {
  readonly row: ApiKey
  readonly orgId: string
  readonly hash: string
  /** The counter of its limits, if it has any. */
  readonly counterId: string
  /** The hash as it was imported. */
  readonly importHash?: string
  readonly importStart?: string | null
  /** Whether its holder made it in a portal. */
  readonly ofHolder?: boolean
}

/** The rows that the fake repositories share, so that a key needs its project and a project its org. */
export class World extends Context.Service<
  World,
  {
    defaultOrgId: string | undefined
    readonly orgs: Map<string, Org>
    /** The limits that were set for an org. */
    readonly overrides: Map<string, OrgLimitOverrides>
    readonly retentionDays: Map<string, number | null>
    readonly keyPrefixes: Map<string, string | null>
    /** The version of the catalogue of each org that publishes strictly. */
    readonly strictEvents: Map<string, string>
    /** The usage of each limit. */
    readonly used: Map<OrgLimitName, (orgId: string) => number>
    readonly projects: Map<string, StoredProject>
    readonly keys: Map<string, StoredKey>
    /** The permissions of each role, by org and name. */
    readonly roles: Map<string, Map<string, ReadonlyArray<string>>>
    readonly deployments: Map<string, StoredDeployment>
    /** The owners of orgs, by their name in lower case. */
    readonly owners: Map<string, StoredOwner>
    readonly counters: Map<string, { readonly orgId: string; readonly counter: KeyCounter }>
    readonly usage: Map<string, HourOfKey>
    /** The documentation of projects. */
    readonly docs: Map<string, FakeDocs>
    readonly questions: Map<string, NewQuestion>
    readonly audit: Map<string, { readonly orgId: string; readonly row: AuditEntry }>
  }
>()("gatehouse/test/World") {
  static readonly layer = Layer.sync(World, () => {
    const projects = new Map<string, StoredProject>()
    const keys = new Map<string, StoredKey>()
    const used: World["Service"]["used"] = new Map([
      ["projects", (orgId: string) => countOf(projects, ({ row }) => row.orgId === orgId)],
      ["keys", (orgId: string) => countOf(keys, (key) => key.orgId === orgId)],
    ])
    return {
      defaultOrgId: undefined,
      orgs: new Map(),
      overrides: new Map(),
      retentionDays: new Map(),
      keyPrefixes: new Map(),
      strictEvents: new Map(),
      used,
      projects,
      keys,
      roles: new Map(),
      counters: new Map(),
      usage: new Map(),
      deployments: new Map(),
      owners: new Map(),
      docs: new Map(),
      questions: new Map(),
      audit: new Map(),
    }
  })
}

const countOf = <A>(rows: Map<string, A>, isOwn: (row: A) => boolean) => [...rows.values()].filter(isOwn).length

/** The usage of an org, for every limit. */
export const amountsOf = ({ used }: Pick<World["Service"], "used">, orgId: string) =>
  Object.fromEntries(orgLimitNames.map((name) => [name, used.get(name)?.(orgId) ?? 0])) as OrgAmounts

/** Fails when `more` would exceed a limit of the org. */
export const needRoom = Effect.fnUntraced(function* (
  world: Pick<World["Service"], "overrides" | "used">,
  name: OrgLimitName,
  orgId: string,
  more = 1,
) {
  const limit = limitsOf(yield* DefaultLimits, world.overrides.get(orgId) ?? {})[name]
  if (more > 0 && amountsOf(world, orgId)[name] + more > limit) return yield* limitReached(name, limit)
  return undefined
})

export const inScope = (scope: OrgScope, orgId: string) => scope._tag === "EveryOrg" || scope.orgId === orgId

/** Whether one of the values has the text that a list is filtered by. */
export const hasText = (text: string | undefined, ...values: ReadonlyArray<string | null>) =>
  text === undefined || values.some((value) => value?.toLowerCase().includes(text.toLowerCase()))

/** The first rows that fit into the bytes of a page, and at least one. */
export const withinBytes = <A>(rows: ReadonlyArray<A>) => {
  let bytes = 0
  const end = rows.findIndex((row) => {
    bytes += Buffer.byteLength(JSON.stringify(row))
    return bytes > maxPageBytes
  })
  return end === -1 ? rows : rows.slice(0, Math.max(end, 1))
}

/** The page of rows after the cursor. */
export const pageOf = <A>(rows: Iterable<A>, id: (row: A) => string, page: Page, order: 1 | -1 = 1): Found<A> => {
  const { hasMore, items } = cutRows(rowsAfter(rows, id, page, order), page.limit)
  const fitting = withinBytes(items)
  return { items: fitting, hasMore: hasMore || fitting.length < items.length }
}

/** Up to `limit + 1` rows after the cursor, in the order of their ids. */
export const rowsAfter = <A>(rows: Iterable<A>, id: (row: A) => string, page: Page, order: 1 | -1 = 1) => {
  const compare = (a: string, b: string) => (a < b ? -order : a > b ? order : 0)
  return [...rows]
    .filter((row) => page.cursor === undefined || compare(id(row), page.cursor) > 0)
    .sort((a, b) => compare(id(a), id(b)))
    .slice(0, page.limit + 1)
}

export const findOr = <A, E>(found: A | undefined, missing: () => E): Effect.Effect<A, E> =>
  Effect.mapError(Effect.fromOption(Option.fromUndefinedOr(found)), missing)

/** The id of the default org. Creates the org when it does not exist. */
export const defaultOrg = (world: World["Service"], newId: string, now: DateTime.Utc) => {
  if (world.defaultOrgId === undefined) {
    world.defaultOrgId = newId
    world.orgs.set(newId, { orgId: newId, name: "Default", createdAt: now })
  }
  return world.defaultOrgId
}

/**
 * Writes the entry of a change. Call it before the change, so that an entry that cannot be written prevents the change.
 */
export const keepEntry = ({ audit }: Pick<World["Service"], "audit">, orgId: string, changed: AuditEntry) => {
  // No list shows the event of an entry.
  const { event: _event, ...entry } = changed
  if (audit.has(entry.id)) throw new Error("The id is taken")
  // Details are stored as JSON.
  audit.set(entry.id, { orgId, row: { ...entry, details: JSON.parse(JSON.stringify(entry.details)) } })
}

const sameText = (a: string | null, b: string) => a?.toLowerCase() === b.toLowerCase()

/** Whether the project is linked to the repository of this name, in any case. */
export const isLinkedTo = (
  { provider, row: { hostOwner, hostRepo } }: StoredProject,
  repository: RepositoryOwner & { readonly repo: string },
) => provider === repository.provider && sameText(hostOwner, repository.owner) && sameText(hostRepo, repository.repo)

export const ownerKey = (owner: RepositoryOwner) => formatOwner(owner).toLowerCase()

/** The projects of orgs that exist. */
export const liveProjects = ({ orgs, projects }: Pick<World["Service"], "orgs" | "projects">) =>
  [...projects.values()].filter(({ row }) => orgs.has(row.orgId))
