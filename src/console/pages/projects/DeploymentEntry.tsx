import type { ComponentChildren } from "preact"
import type { ResponseBody } from "../../client/Operations.ts"
import { Badge } from "../../components/Badge.tsx"
import { Button, CopyButton, Icon } from "../../components/Button.tsx"
import { Time } from "../../components/Time.tsx"

export type Deployment = ResponseBody<"deployments.list">["deployments"][number]

const shownSha = 7
/** The short form of a commit; providers that do not name it have the run in its place. */
export const shaOf = ({ runId, sha }: Deployment) => (sha === "" ? `run ${runId}` : sha.slice(0, shownSha))

/** How the run came about, in words. */
const causes = ({ actor, eventName, pullRequest, workflow }: Deployment) =>
  [
    actor === null ? undefined : `by ${actor}`,
    pullRequest === null ? eventName : `pull request #${pullRequest}`,
    workflow === null ? undefined : `workflow ${workflow}`,
  ]
    .filter((part) => part !== undefined)
    .join(" · ")

/** Where a provider shows commits and runs of a repository: of the providers whose addresses are known. */
const hosts: Readonly<Record<string, readonly [repository: string, commit: string, run: string]>> = {
  github: ["https://github.com", "commit", "actions/runs"],
  gitlab: ["https://gitlab.com", "-/commit", "-/pipelines"],
}

/** The page of a commit or a run at its provider; the text alone when there is none. */
const Outside = ({ children, to }: { readonly to: string | undefined; readonly children: ComponentChildren }) =>
  to === undefined ? (
    <>{children}</>
  ) : (
    <a class="underlined" href={to} target="_blank" rel="noreferrer">
      {children}
    </a>
  )

interface EntryProps {
  readonly deployment: Deployment
  readonly isCurrent: boolean
  /** The repository of the project: "acme/docs"; undefined: none is linked. */
  readonly repository: string | undefined
  /** Absent: the reader may not promote. */
  readonly onPromote?: () => void
}

/** One run on the timeline of a project. */
export const DeploymentEntry = ({ deployment, isCurrent, onPromote, repository }: EntryProps) => {
  const { branch, createdAt, environment, preview, previewReason, provider, runAttempt, runId, sha } = deployment
  const [host, commit, run] = hosts[provider] ?? []
  const page = (kind: string | undefined, id: string) =>
    host === undefined || repository === undefined || id === "" ? undefined : `${host}/${repository}/${kind}/${id}`
  return (
    <li class={`timeline-entry ${isCurrent ? "current" : ""}`}>
      <div class="stack tight">
        <div class="row">
          <Icon name="branch" />
          <strong class="timeline-branch">{branch}</strong>
          <span class="row quiet">
            <Outside to={page(commit, sha)}>
              <code title={sha}>{shaOf(deployment)}</code>
            </Outside>
            {sha !== "" && <CopyButton text={sha} label="Copy the commit" />}
          </span>
          {isCurrent && <Badge tone="good">Current</Badge>}
          {preview && <Badge tone="info">Preview</Badge>}
          {environment !== null && <Badge isPlain>{environment}</Badge>}
        </div>
        <span class="quiet small">
          <Time at={createdAt} isRelative /> · {causes(deployment)} ·{" "}
          <Outside to={page(run, runId)}>
            {provider} run {runId}
          </Outside>
          {runAttempt > 1 && `, attempt ${runAttempt}`}
        </span>
        {previewReason !== null && <span class="quiet small">{previewReason}</span>}
      </div>
      {onPromote !== undefined && !isCurrent && (
        <Button isSmall icon="back" aria-label={`Make current: ${branch} at ${shaOf(deployment)}`} onClick={onPromote}>
          Make current
        </Button>
      )}
    </li>
  )
}
