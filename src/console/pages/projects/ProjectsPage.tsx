import { useState } from "preact/hooks"
import { useCall, usePages } from "../../client/queries.ts"
import { FormDialog } from "../../components/Dialog.tsx"
import { Field, Input } from "../../components/Form.tsx"
import { Empty, Page, useCreate } from "../../components/Page.tsx"
import { ListCard } from "../../components/Table.tsx"
import { Time } from "../../components/Time.tsx"
import { useOrg, useOrgId } from "../../navigation/org.ts"
import { navigate, orgPath } from "../../navigation/router.tsx"

/** Creates a project; outside of an org, in the one that the service makes for it. */
export const CreateProject = ({ onClose }: { readonly onClose: () => void }) => {
  const here = useOrgId()
  const call = useCall()
  const [name, setName] = useState("")
  const create = async () => {
    const owner = here === undefined ? {} : { orgId: here }
    const { orgId, projectId } = await call("projects.create", { name, ...owner }, { isOnce: true })
    navigate(orgPath(orgId, `/projects/${projectId}`))
  }
  return (
    <FormDialog title="Create a project" submit="Create project" onSubmit={create} onClose={onClose}>
      <Field label="Name" hint="Usually the name of its repository.">
        <Input name="name" value={name} onInput={setName} required maxLength={255} autocomplete="off" />
      </Field>
    </FormDialog>
  )
}

const none = <span class="quiet">none</span>

export default () => {
  const orgId = useOrg()
  const { close, create, isCreating } = useCreate("Create project", "projects.create")
  const pages = usePages("projects.list", { orgId, limit: 50 }, ({ projects }) => projects)
  return (
    <Page title="Projects" intro="A project has deployments, which its CI registers, and keys." actions={create}>
      <ListCard
        caption="Projects"
        {...pages}
        rowKey={({ projectId }) => projectId}
        empty={
          <Empty icon="cube" title="This org has no project yet">
            <p>Create one here. A CI run of a repository that belongs to this org also creates one.</p>
          </Empty>
        }
        columns={[
          { title: "Project", link: ({ name, projectId }) => [orgPath(orgId, `/projects/${projectId}`), name] },
          {
            title: "Repository",
            cell: ({ hostOwner, hostRepo }) => (hostOwner === null ? none : `${hostOwner}/${hostRepo}`),
          },
          { title: "Default branch", cell: ({ defaultBranch }) => defaultBranch ?? none },
          { title: "Subdomain", cell: ({ subdomain }) => subdomain ?? none },
          { title: "Changed", align: "fit", cell: ({ updatedAt }) => <Time at={updatedAt} isRelative /> },
        ]}
      />
      {isCreating && <CreateProject onClose={close} />}
    </Page>
  )
}
