import type { DateTime, Result } from "effect"
import type { Unauthorized } from "../Errors.ts"
import type { Deployment } from "./Deployment.ts"

/** What the claims of a token say about a run: the fields of its deployment, and its repository. */
export interface ClaimedRun extends Pick<
  Deployment,
  | "branch"
  | "ref"
  | "sha"
  | "preview"
  | "pullRequest"
  | "runId"
  | "runAttempt"
  | "workflow"
  | "actor"
  | "eventName"
  | "environment"
> {
  /** The owner and the name of the repository, as the provider writes them. */
  readonly owner: string
  readonly repo: string
  /** The provider's id of the owner; `null` when the token does not say it. */
  readonly ownerId: string | null
  /** The provider's id of the repository. It survives renames and is never reused. */
  readonly repositoryId: string
  /** The file that defines the run, as `owner/name/path`; `null` when the token does not say it. */
  readonly workflowFile: string | null
}

/** A CI run with the provider that vouches for it. */
export interface CiRun extends ClaimedRun {
  /** The name of the provider: `github`. */
  readonly provider: string
  /** The exact issuer of the token. Ids of two issuers are never the same. */
  readonly issuer: string
  /** When the provider issued the token; `null` when the token does not say it. */
  readonly issuedAt: DateTime.Utc | null
}

/** Reads a run from the payload of a verified token. Fails with a sentence that does not repeat the token. */
export type ReadRun = (payload: unknown) => Result.Result<ClaimedRun, Unauthorized>
