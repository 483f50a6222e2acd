import type { ResponseBody, Args } from "../../client/Operations.ts"
import type { Project } from "../projects/ProjectFrame.tsx"

/** The stored documentation of a project. */
export type Docs = ResponseBody<"docs.get">

/** What `docs.put` takes to leave everything as it is. */
export const settingsOf = ({
  docsUrl,
  docsZipUrl,
  keepQuestions,
  projectId,
  public: isPublic,
}: Docs): Args<"docs.put"> => ({ projectId, docsZipUrl, docsUrl, public: isPublic, keepQuestions })

/** Whether the address of the zip names a deployment. */
const namesDeployment = ({ docsZipUrl }: Docs) => /\{(sha|deployment)\}/.test(docsZipUrl)

/** Whether a fetch begins without a deployment and without a wait. */
export const isFetchedSoon = (docs: Docs, { currentDeploymentId }: Project) =>
  docs.state === "waiting" && docs.failure === null && (currentDeploymentId !== null || !namesDeployment(docs))
