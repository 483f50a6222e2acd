import { useData } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { Copyable } from "../../components/Copy.tsx"
import { Notice } from "../../components/ErrorBox.tsx"
import { bytesText, counted, numberText } from "../../components/numbers.ts"
import { Facts } from "../../components/Page.tsx"
import { Time } from "../../components/Time.tsx"
import { Link, orgPath } from "../../navigation/router.tsx"
import { shaOf } from "../projects/DeploymentEntry.tsx"
import type { Project } from "../projects/ProjectFrame.tsx"
import { type Docs, isFetchedSoon } from "./docs.ts"

interface StoredDocsProps {
  readonly docs: Docs
  readonly project: Project
}

/** What a reader should know now, and what to do. */
const Fault = ({ docs, project }: StoredDocsProps) => {
  const { failure, state, stored } = docs
  const old = stored === null ? "Chats have no pages of this project yet." : "Until then, chats use the pages below."
  if (failure !== null) {
    return (
      <Notice tone={failure.nextAt === null ? "bad" : "warn"}>
        <strong>The documentation could not be fetched</strong>
        <span class="anywhere">{failure.error}</span>
        <span>
          {counted(failure.attempts, "attempt")}, the last <Time at={failure.at} isRelative />.{" "}
          {failure.nextAt === null ? (
            "It is not tried again: correct the cause, then press Fetch again. "
          ) : (
            <>
              The next is <Time at={failure.nextAt} isRelative />.{" "}
            </>
          )}
          {old}
        </span>
      </Notice>
    )
  }
  if (state !== "waiting") return null
  return (
    <Notice tone="calm">
      {isFetchedSoon(docs, project)
        ? "Gatehouse fetches the zip now."
        : "The address names a deployment: the zip is fetched for the first current one."}{" "}
      {old}
    </Notice>
  )
}

/** The deployment that the pages were fetched for: its branch and commit, if it is among the newest. */
const Deployment = ({ deploymentId, project }: { readonly deploymentId: string; readonly project: Project }) => {
  const { projectId } = project
  const { data } = useData("deployments.list", { projectId, limit: 100 })
  const deployment = data?.deployments.find(({ id }) => id === deploymentId)
  return (
    <span class="row">
      <Link to={orgPath(project.orgId, `/projects/${projectId}`)}>
        {deployment === undefined ? deploymentId : `${deployment.branch} at ${shaOf(deployment)}`}
      </Link>
      {deploymentId !== project.currentDeploymentId && <span class="quiet">no longer current</span>}
    </span>
  )
}

/** Whether the documentation is stored, which one, and why not. */
export const StoredDocs = ({ docs, project }: StoredDocsProps) => {
  const may = useMay()
  const { docsUrl, docsZipUrl, keepQuestions, public: isPublic, stored } = docs
  const deploymentId = stored?.deploymentId ?? null
  return (
    <>
      <Fault docs={docs} project={project} />
      <Facts
        of={{
          Pages: stored === null ? "none yet" : numberText(stored.pages),
          Size: stored === null ? undefined : bytesText(stored.bytes),
          Fetched: stored === null ? undefined : <Time at={stored.at} isRelative />,
          Deployment:
            deploymentId === null || !may("deployments.list") ? undefined : (
              <Deployment deploymentId={deploymentId} project={project} />
            ),
          Zip: <Copyable text={docsZipUrl} label="Copy the URL of the zip" />,
          Site: docsUrl === null ? "none: sources are slugs" : <Copyable text={docsUrl} label="Copy the address" />,
          Readers: isPublic ? "anyone" : "holders of a key of the project or the org",
          Questions: keepQuestions ? "kept" : "not kept",
        }}
      />
    </>
  )
}
