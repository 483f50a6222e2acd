import { useState } from "preact/hooks"
import type { ResponseBody } from "../../client/Operations.ts"
import { useCall, usePages } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { Button } from "../../components/Button.tsx"
import { FormDialog } from "../../components/Dialog.tsx"
import { ErrorBox } from "../../components/ErrorBox.tsx"
import { Filter, Filters } from "../../components/Form.tsx"
import { Card, Empty } from "../../components/Page.tsx"
import { Skeleton } from "../../components/Table.tsx"
import { useQuery } from "../../navigation/router.tsx"
import { type Deployment, DeploymentEntry, shaOf } from "./DeploymentEntry.tsx"
import { type Project, ProjectFrame } from "./ProjectFrame.tsx"

const kinds = [
  { value: "production", label: "Production" },
  { value: "preview", label: "Previews" },
]

/** Asks before a deployment becomes current, and says which one it replaces. */
const Promote = ({
  current,
  deployment,
  onClose,
}: {
  readonly deployment: Deployment
  readonly current: Deployment | undefined
  readonly onClose: () => void
}) => {
  const call = useCall()
  const isBack = current !== undefined && deployment.createdAt < current.createdAt
  const { id: deploymentId, projectId } = deployment
  const said = isBack ? "The project is rolled back." : "The deployment is current."
  const promote = () => call("deployments.promote", { projectId, deploymentId }, { said })
  return (
    <FormDialog
      title={
        isBack ? "Roll back to this deployment?" : `Make this ${deployment.preview ? "preview" : "deployment"} current?`
      }
      submit={isBack ? "Roll back" : "Make current"}
      onSubmit={promote}
      onClose={onClose}
    >
      <p>
        <strong>{deployment.branch}</strong> at <code>{shaOf(deployment)}</code> becomes current
        {current !== undefined && (
          <>
            {" "}
            in the place of <strong>{current.branch}</strong> at <code>{shaOf(current)}</code>
          </>
        )}
        .
      </p>
      <p class="quiet">
        {deployment.preview ? "This is a preview: its code may not be reviewed. " : ""}A newer run of the default branch
        becomes current as usual.
      </p>
    </FormDialog>
  )
}

const filterOf = (kind: string | undefined, branch: string | undefined) => ({
  ...(kind === undefined ? {} : { preview: kind === "preview" }),
  ...(branch === undefined ? {} : { branch }),
})

const Timeline = ({ project }: { readonly project: Project }) => {
  const may = useMay()
  const { branch, kind } = useQuery()
  const [asked, setAsked] = useState<Deployment>()
  const { projectId, currentDeploymentId } = project
  const { error, isLoadingMore, more, refetch, rows } = usePages(
    "deployments.list",
    { projectId, limit: 50, ...filterOf(kind, branch) },
    (response: ResponseBody<"deployments.list">) => response.deployments,
    { keepsPrevious: true },
  )
  const isFiltered = kind !== undefined || branch !== undefined
  return (
    <>
      <Filters>
        <Filter label="Kind" name="kind" options={kinds} />
        <Filter label="Branch or tag" name="branch" placeholder="main" />
      </Filters>
      <ErrorBox error={error} onRetry={refetch} />
      <Card isPadded={false}>
        {rows === undefined ? (
          <div class="card-body">
            <Skeleton lines={6} />
          </div>
        ) : rows.length === 0 ? (
          <Empty icon="branch" title={isFiltered ? "No deployment is like that" : "Nothing was deployed yet"}>
            <p>
              {isFiltered
                ? "Choose another kind or branch."
                : "A CI run registers a deployment with its own OIDC token: see the deployments guide of the documentation."}
            </p>
          </Empty>
        ) : (
          <ol class="timeline">
            {rows.map((deployment) => (
              <DeploymentEntry
                key={deployment.id}
                deployment={deployment}
                isCurrent={deployment.id === currentDeploymentId}
                repository={project.hostOwner === null ? undefined : `${project.hostOwner}/${project.hostRepo}`}
                {...(may("deployments.promote") ? { onPromote: () => setAsked(deployment) } : {})}
              />
            ))}
          </ol>
        )}
        {more !== undefined && (
          <div class="table-foot">
            <Button onClick={more} disabled={isLoadingMore}>
              Show more
            </Button>
          </div>
        )}
      </Card>
      {asked !== undefined && (
        <Promote
          deployment={asked}
          current={rows?.find(({ id }) => id === currentDeploymentId)}
          onClose={() => setAsked(undefined)}
        />
      )}
    </>
  )
}

export default () => <ProjectFrame>{(project) => <Timeline project={project} />}</ProjectFrame>
