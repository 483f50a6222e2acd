import { useState } from "preact/hooks"
import { useCall, usePages } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { Button } from "../../components/Button.tsx"
import { Dialog } from "../../components/Dialog.tsx"
import { Field, Form, Input } from "../../components/Form.tsx"
import { Card, Empty, Page } from "../../components/Page.tsx"
import { Table } from "../../components/Table.tsx"
import { Time } from "../../components/Time.tsx"
import { useOrg } from "../../navigation/org.ts"
import { Link, navigate, orgPath, useLocation } from "../../navigation/router.tsx"

const CreateProject = ({ onClose }: { readonly onClose: () => void }) => {
  const orgId = useOrg()
  const call = useCall()
  const [name, setName] = useState("")
  const [idempotencyKey] = useState(() => crypto.randomUUID())
  const create = async () => {
    const { projectId } = await call("projects.create", { name, orgId }, idempotencyKey)
    onClose()
    navigate(orgPath(orgId, `/projects/${projectId}`))
  }
  return (
    <Dialog title="Create a project" onClose={onClose}>
      <Form submit="Create project" onCancel={onClose} onSubmit={create}>
        <Field label="Name" hint="Usually the name of its repository.">
          <Input name="name" value={name} onInput={setName} required maxLength={255} autocomplete="off" />
        </Field>
      </Form>
    </Dialog>
  )
}

const none = <span class="quiet">none</span>

export default () => {
  const orgId = useOrg()
  const may = useMay()
  const [isCreating, setCreating] = useState(useLocation().search.has("new"))
  const pages = usePages("projects.list", { orgId, limit: 50 }, ({ projects }) => projects)
  return (
    <Page
      title="Projects"
      intro="A project has deployments, which its CI registers, and keys."
      actions={
        may("projects.create") && (
          <Button look="primary" icon="plus" onClick={() => setCreating(true)}>
            Create project
          </Button>
        )
      }
    >
      <Card isPadded={false}>
        <Table
          caption="Projects"
          {...pages}
          rowKey={({ projectId }) => projectId}
          empty={
            <Empty icon="cube" title="This org has no project yet">
              <p>Create one here. A CI run of a repository that belongs to this org also creates one.</p>
            </Empty>
          }
          columns={[
            {
              title: "Project",
              cell: ({ name, projectId }) => (
                <Link class="main" to={orgPath(orgId, `/projects/${projectId}`)}>
                  {name}
                </Link>
              ),
            },
            {
              title: "Repository",
              cell: ({ hostOwner, hostRepo }) => (hostOwner === null ? none : `${hostOwner}/${hostRepo}`),
            },
            { title: "Default branch", cell: ({ defaultBranch }) => defaultBranch ?? none },
            { title: "Subdomain", cell: ({ subdomain }) => subdomain ?? none },
            { title: "Changed", align: "fit", cell: ({ updatedAt }) => <Time at={updatedAt} isRelative /> },
          ]}
        />
      </Card>
      {isCreating && <CreateProject onClose={() => setCreating(false)} />}
    </Page>
  )
}
