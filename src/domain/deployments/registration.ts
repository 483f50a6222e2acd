import { DateTime } from "effect"
import { Unauthorized } from "../Errors.ts"
import type { CiRun } from "./CiRun.ts"
import { isSameOwner, type RepositoryOwner } from "../RepositoryOwner.ts"
import type { LinkRules, Pins } from "../projects/RepositoryLink.ts"

/**
 * The repositories that may register: all, only those that are linked to a project, or only those of the listed owners.
 */
export type AllowedOwners = "any" | "linked" | ReadonlyArray<RepositoryOwner>

/** What the operator has configured about registrations. */
export interface RegistrationRules extends LinkRules {
  readonly allowedOwners: AllowedOwners
  /** The branches that become the default branch of a project without one, when somebody pushes to them. */
  readonly defaultBranches: ReadonlyArray<string>
}

/** The project that is linked to a run's repository. */
export interface LinkedProject {
  readonly id: string
  readonly orgId: string
  readonly hostOwner: string
  readonly hostRepo: string
  /** The id that a run has proved; `null` for a link by name. */
  readonly repositoryId: string | null
  /** The issuer of that id; `null` for a link by name, and for ids from before issuers were stored. */
  readonly issuer: string | null
  readonly ownerId: string | null
  readonly defaultBranch: string | null
  readonly pins: Pins
  /** The newest run that was ever current. */
  readonly newest: RunPosition | null
}

/** The org that has the owner of a run in its `owners`. */
export interface OwningOrg {
  readonly orgId: string
  /** The owner's id that a run has proved. */
  readonly ownerId: string | null
}

/** What the service knows about the repository of a run. */
interface KnownRepository {
  /** The project that is linked to the repository's id, else to its name. */
  readonly linked: LinkedProject | undefined
  readonly owningOrg: OwningOrg | undefined
  /** The owner ids that other projects have proved for this owner's name. */
  readonly ownerIds: ReadonlyArray<string>
}

/** Why a run is refused. */
export type Refusal = "NotLinked" | "OwnerNotAllowed" | "NameReused" | "OwnerReused" | "RepositoryMoved"

/** The decision about a run: record it in a project, create a project for it, or refuse it. */
type Admission =
  | { readonly _tag: "Record"; readonly project: LinkedProject }
  | {
      readonly _tag: "Create"
      /** The org of the new project; `null` is the default org. */
      readonly orgId: string | null
    }
  | { readonly _tag: "Refuse"; readonly reason: Refusal }

const record = (project: LinkedProject): Admission => ({ _tag: "Record", project })
const create = (orgId: string | null): Admission => ({ _tag: "Create", orgId })
const refuse = (reason: Refusal): Admission => ({ _tag: "Refuse", reason })

const sameText = (a: string, b: string) => a.toLowerCase() === b.toLowerCase()

/** Whether the names of a run's repository are trusted: its issuer is the one of its provider's name. */
export const isNamed = ({ issuers }: RegistrationRules, run: Pick<CiRun, "issuer" | "provider">): boolean =>
  issuers.get(run.provider) === run.issuer

const isListed = ({ allowedOwners }: RegistrationRules, run: CiRun) =>
  typeof allowedOwners !== "string" && allowedOwners.some((allowed) => isSameOwner(allowed, run))

/** Whether an id that was proved for an owner's name is not this run's. A run without an id proves nothing. */
const differs = (known: string | null | undefined, run: CiRun) => known != null && known !== run.ownerId

const admitUnlinked = (rules: RegistrationRules, run: CiRun, { owningOrg, ownerIds }: KnownRepository): Admission => {
  const isNameTrusted = isNamed(rules, run)
  if (owningOrg !== undefined && isNameTrusted) {
    return differs(owningOrg.ownerId, run) ? refuse("OwnerReused") : create(owningOrg.orgId)
  }
  switch (rules.allowedOwners) {
    case "any":
      return create(null)
    case "linked":
      return refuse("NotLinked")
    default:
      if (!isNameTrusted || !isListed(rules, run)) return refuse("OwnerNotAllowed")
      return ownerIds.length > 0 && !ownerIds.includes(run.ownerId ?? "") ? refuse("OwnerReused") : create(null)
  }
}

/**
 * Decides about a run by the id and the name of its repository and of its owner. Ids are stronger than names: a name
 * can be given up and taken by somebody else.
 */
export const admitRun = (rules: RegistrationRules, run: CiRun, known: KnownRepository): Admission => {
  const { linked, ownerIds, owningOrg } = known
  if (linked === undefined) return admitUnlinked(rules, run, known)
  if (linked.repositoryId !== null && linked.repositoryId !== run.repositoryId) return refuse("NameReused")

  const isProved = linked.repositoryId !== null
  const isSameName = sameText(linked.hostOwner, run.owner)
  const isSameId = linked.ownerId !== null && linked.ownerId === run.ownerId
  if (isSameName && differs(linked.ownerId, run)) return refuse("OwnerReused")
  if (!isProved && ownerIds.length > 0 && !ownerIds.includes(run.ownerId ?? "")) return refuse("OwnerReused")

  if (isNamed(rules, run) && differs(owningOrg?.ownerId, run)) return refuse("OwnerReused")
  const isOwned = owningOrg?.orgId === linked.orgId && isNamed(rules, run)
  const isAdmitted = isOwned || rules.allowedOwners === "any" || (isListed(rules, run) && isNamed(rules, run))
  if (!isSameName && !isSameId && !isAdmitted) return refuse("RepositoryMoved")
  if (typeof rules.allowedOwners !== "string" && !isAdmitted) return refuse("OwnerNotAllowed")
  return record(linked)
}

/** What a recorded run changes in its project. */
export interface RunEffects {
  /** Why the deployment is a preview; `null` when it is none. */
  readonly previewReason: string | null
  readonly defaultBranch: string | null
  readonly becomesCurrent: boolean
  /** The newest run that was ever current, with this run. */
  readonly newest: RunPosition | null
}

export const positionOf = (run: CiRun, now: DateTime.Utc): RunPosition => ({
  runId: run.runId,
  runAttempt: run.runAttempt,
  at: run.issuedAt ?? now,
})

/**
 * What a run changes in its project. Only a run that is no preview, on the default branch, of the pinned workflow and
 * environment, and newer than every run that was current, becomes current.
 */
export const effectsOf = (
  { defaultBranches }: Pick<RegistrationRules, "defaultBranches">,
  run: CiRun,
  { defaultBranch, newest, pins }: Pick<LinkedProject, "defaultBranch" | "newest" | "pins">,
  now: DateTime.Utc,
): RunEffects => {
  const position = positionOf(run, now)
  // Of a pull request, or of no push to a branch, the provider says it: claimReaders.ts.
  const previewReason = run.previewReason ?? unmetPin(run, pins)
  const preview = previewReason !== null
  const suggested = !preview && defaultBranches.includes(run.branch) ? run.branch : null
  const branch = defaultBranch ?? suggested
  const becomesCurrent = !preview && run.branch === branch && (newest === null || isNewer(position, newest))
  return {
    previewReason,
    defaultBranch: branch,
    becomesCurrent,
    newest: becomesCurrent ? newestOf([newest, position]) : newest,
  }
}

const sentences: Readonly<Record<Refusal, string>> = {
  NotLinked:
    "The repository may not register: no project is linked to it, and its owner is not in OIDC_ALLOWED_OWNERS or in the owners of an org. Link it, or add the owner.",
  OwnerNotAllowed:
    "The repository's owner may not register. Add it to OIDC_ALLOWED_OWNERS, or to the owners of the project's org.",
  NameReused:
    "The project is linked to another repository that had this name before. If you trust the new repository, link the project again.",
  OwnerReused:
    "Another owner had this name before, with another id. If you trust the new owner, ask the administrator to set the owners again.",
  RepositoryMoved:
    "The repository has moved to another owner. Link it to its project again, or add the owner to the owners of the org.",
}

export const refusal = (reason: Refusal) => new Unauthorized({ error: sentences[reason] })

/** The place of a run among the runs of its repository. */
export interface RunPosition {
  readonly runId: string
  readonly runAttempt: number
  /** When its token was issued, or when it registered. */
  readonly at: DateTime.Utc
}

const isNumber = (id: string) => /^[0-9]{1,255}$/.test(id)

/**
 * Whether a run is newer than another one. Numeric run ids have an order, then the attempt. Ids without an order
 * (UUIDs) compare by time.
 */
const isNewer = (run: RunPosition, than: RunPosition): boolean => {
  if (run.runId === than.runId) return run.runAttempt > than.runAttempt
  if (isNumber(run.runId) && isNumber(than.runId)) return BigInt(run.runId) > BigInt(than.runId)
  return DateTime.isGreaterThanOrEqualTo(run.at, than.at)
}

/** The newest of runs; `null` when there is none. */
export const newestOf = (runs: ReadonlyArray<RunPosition | null>): RunPosition | null =>
  runs.reduce((newest, run) => (newest === null || (run !== null && isNewer(run, newest)) ? run : newest), null)

/** Compares `owner/repo/path` with a pin that is such a text, or a path in the run's repository. */
const isSameFile = (file: string, pin: string, { owner, repo }: CiRun) => {
  const folder = `${owner}/${repo}/`
  return isSamePath(file, pin) || (sameText(file.slice(0, folder.length), folder) && file.slice(folder.length) === pin)
}

/** Owners and repositories compare without case, and the path in the repository with it. */
const isSamePath = (file: string, pin: string) => {
  const start = /^[^/]+\/[^/]+\//.exec(pin)?.[0].length ?? 0
  return sameText(file.slice(0, start), pin.slice(0, start)) && file.slice(start) === pin.slice(start)
}

/**
 * Why a run does not meet the pinned workflow and environment, in a sentence; `null` when it does. Only GitHub's names
 * of environments compare without case.
 */
export const unmetPin = (run: CiRun, { environment, workflow }: Pins): string | null => {
  if (workflow !== null && (run.workflowFile === null || !isSameFile(run.workflowFile, workflow, run))) {
    return `The link pins the workflow ${workflow}, and the run is of ${run.workflowFile ?? "none that its token names"}.`
  }
  const isMet =
    run.provider === "github"
      ? sameText(run.environment ?? "", environment ?? "")
      : (run.environment ?? "") === (environment ?? "")
  if (environment === null || isMet) return null
  return `The link pins the environment ${environment}, and the run is in ${run.environment ?? "none"}.`
}
