import { Context, DateTime, type Effect, Option, type Redacted, Result } from "effect"
import type { Unauthorized, Unavailable } from "../Errors.ts"
import type { Deployment } from "./Deployment.ts"
import type { PinFault } from "../projects/RepositoryLink.ts"

/** What the claims of a token say about a run: the fields of its deployment, and its repository. */
export interface ClaimedRun extends Pick<
  Deployment,
  | "branch"
  | "ref"
  | "sha"
  | "previewReason"
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

/** A provider of CI tokens that the operator trusts. */
export interface CiProvider {
  /** The name that deployments, links and owners have: `github`. Several issuers may share it. */
  readonly provider: string
  /** The issuer, exactly as in the tokens: `https://token.actions.githubusercontent.com`. */
  readonly issuer: string
  /** A token must have one of these audiences. */
  readonly audiences: ReadonlyArray<string>
  /** A token must be signed with one of these algorithms. */
  readonly algorithms: ReadonlyArray<string>
  /** The address of the keys; `undefined`: the issuer's discovery document names it. */
  readonly jwks: string | undefined
  readonly read: ReadRun
  readonly pinFault: PinFault
}

/** The run of a verified token's payload, with the provider that vouches for it. */
export const runOf = ({ issuer, provider, read }: CiProvider, payload: unknown): Result.Result<CiRun, Unauthorized> =>
  Result.map(read(payload), (run) => {
    const { iat } = payload as { readonly iat?: unknown }
    const issuedAt = typeof iat === "number" ? Option.getOrNull(DateTime.make(iat * 1000)) : null
    return { ...run, provider, issuer, issuedAt: issuedAt === null ? null : DateTime.toUtc(issuedAt) }
  })

/** Verifies CI tokens with the published keys of their provider. */
export class CiTokenVerifier extends Context.Service<
  CiTokenVerifier,
  {
    /**
     * Returns the run of a token with a known issuer and a valid signature, audience and lifetime. Fails with
     * `Unauthorized` and a sentence without the token, or with `Unavailable` when the provider is down and the key of
     * the token is not known.
     */
    readonly verify: (token: Redacted.Redacted<string>) => Effect.Effect<CiRun, Unauthorized | Unavailable>
  }
>()("gatehouse/domain/CiToken/CiTokenVerifier") {}
