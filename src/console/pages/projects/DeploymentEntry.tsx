import type { ResponseBody } from "../../client/Operations.ts"
import { Badge } from "../../components/Badge.tsx"
import { Button, CopyButton, Icon } from "../../components/Button.tsx"
import { Time } from "../../components/Time.tsx"

export type Deployment = ResponseBody<"deployments.list">["deployments"][number]

const shownSha = 7
/** The short form of a commit; providers that do not name it have the run in its place. */
export const shaOf = ({ runId, sha }: Deployment) => (sha === "" ? `run ${runId}` : sha.slice(0, shownSha))

/** How the run came about, in words. */
const cause = ({ actor, eventName, provider, pullRequest, runAttempt, runId, workflow }: Deployment) =>
  [
    actor === null ? undefined : `by ${actor}`,
    pullRequest === null ? eventName : `pull request #${pullRequest}`,
    `${provider} run ${runId}${runAttempt > 1 ? `, attempt ${runAttempt}` : ""}`,
    workflow === null ? undefined : `workflow ${workflow}`,
  ]
    .filter((part) => part !== undefined)
    .join(" · ")

interface EntryProps {
  readonly deployment: Deployment
  readonly isCurrent: boolean
  /** Absent: the reader may not promote. */
  readonly onPromote?: () => void
}

/** One run on the timeline of a project. */
export const DeploymentEntry = ({ deployment, isCurrent, onPromote }: EntryProps) => {
  const { branch, createdAt, environment, preview, sha } = deployment
  return (
    <li class={`timeline-entry ${isCurrent ? "current" : ""}`}>
      <div class="stack tight">
        <div class="row">
          <Icon name="branch" />
          <strong class="timeline-branch">{branch}</strong>
          <span class="row quiet">
            <code title={sha}>{shaOf(deployment)}</code>
            {sha !== "" && <CopyButton text={sha} label="Copy the commit" />}
          </span>
          {isCurrent && <Badge tone="good">Current</Badge>}
          {preview && <Badge tone="info">Preview</Badge>}
          {environment !== null && <Badge isPlain>{environment}</Badge>}
        </div>
        <span class="quiet small">
          <Time at={createdAt} isRelative /> · {cause(deployment)}
        </span>
      </div>
      {onPromote !== undefined && !isCurrent && (
        <Button isSmall icon="back" aria-label={`Make current: ${branch} at ${shaOf(deployment)}`} onClick={onPromote}>
          Make current
        </Button>
      )}
    </li>
  )
}
