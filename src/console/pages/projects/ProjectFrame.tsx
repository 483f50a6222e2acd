import type { ComponentChildren } from "preact"
import type { ResponseBody } from "../../client/Operations.ts"
import { useData } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { Copyable } from "../../components/Button.tsx"
import { ErrorBox } from "../../components/ErrorBox.tsx"
import { Page } from "../../components/Page.tsx"
import { Skeleton } from "../../components/Table.tsx"
import { Tabs } from "../../components/Tabs.tsx"
import { orgPath, useParam } from "../../navigation/router.tsx"

export type Project = ResponseBody<"projects.get">

/** The heading and the tabs of the pages of a project, around one of them. */
export const ProjectFrame = ({ children }: { readonly children: (project: Project) => ComponentChildren }) => {
  const may = useMay()
  const orgId = useParam("orgId")
  const projectId = useParam("projectId")
  const { data, error, refetch } = useData("projects.get", { projectId })
  const here = orgPath(orgId, `/projects/${projectId}`)
  return (
    <Page
      title={data?.name ?? "Project"}
      crumbs={[{ to: orgPath(orgId, "/projects"), label: "Projects" }]}
      intro={<Copyable text={projectId} label="Copy the id of the project" />}
    >
      {data === undefined ? (
        error === null ? (
          <Skeleton lines={6} />
        ) : (
          <ErrorBox error={error} onRetry={refetch} />
        )
      ) : (
        <>
          <Tabs
            label="Project"
            tabs={[
              { to: here, label: "Deployments" },
              ...(may("docs.get") ? [{ to: `${here}/docs`, label: "Documentation" }] : []),
              ...(may("projects.update") ? [{ to: `${here}/settings`, label: "Settings" }] : []),
            ]}
          />
          {children(data)}
        </>
      )}
    </Page>
  )
}
