import type { ComponentChildren } from "preact"
import type { ResponseBody } from "../../client/Operations.ts"
import { useData } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { Copyable } from "../../components/Button.tsx"
import { Page } from "../../components/Page.tsx"
import { Loaded } from "../../components/Table.tsx"
import { Tabs } from "../../components/Tabs.tsx"
import { orgPath, useParam } from "../../navigation/router.tsx"

export type Project = ResponseBody<"projects.get">

/** The heading and the tabs of the pages of a project, around one of them. */
export const ProjectFrame = ({ children }: { readonly children: (project: Project) => ComponentChildren }) => {
  const may = useMay()
  const orgId = useParam("orgId")
  const projectId = useParam("projectId")
  const response = useData("projects.get", { projectId })
  const here = orgPath(orgId, `/projects/${projectId}`)
  return (
    <Page
      title={response.data?.name ?? "Project"}
      crumbs={[{ to: orgPath(orgId, "/projects"), label: "Projects" }]}
      intro={<Copyable text={projectId} label="Copy the id of the project" />}
    >
      <Loaded of={response} lines={6}>
        {(project) => (
          <>
            <Tabs
              label="Project"
              tabs={[
                { to: here, label: "Deployments" },
                ...(may("docs.get") ? [{ to: `${here}/docs`, label: "Documentation" }] : []),
                ...(may("projects.update") ? [{ to: `${here}/settings`, label: "Settings" }] : []),
              ]}
            />
            {children(project)}
          </>
        )}
      </Loaded>
    </Page>
  )
}
