import { useState } from "preact/hooks"
import { Button } from "../../components/Button.tsx"
import { Copyable } from "../../components/Copy.tsx"
import { Dialog } from "../../components/Dialog.tsx"
import { Field, Form, Input } from "../../components/Form.tsx"
import { Card, Empty, Page } from "../../components/Page.tsx"
import { Table } from "../../components/Table.tsx"
import { Time } from "../../components/Time.tsx"
import { useCall, usePages } from "../../client/queries.ts"
import { Link, navigate, orgPath } from "../../navigation/router.tsx"

const CreateOrg = ({ onClose }: { readonly onClose: () => void }) => {
  const [name, setName] = useState("")
  const [idempotencyKey] = useState(() => crypto.randomUUID())
  const call = useCall()
  return (
    <Dialog title="Create an org" onClose={onClose}>
      <Form
        submit="Create org"
        onCancel={onClose}
        onSubmit={async () => {
          const { orgId } = await call("orgs.create", { name }, idempotencyKey)
          onClose()
          navigate(orgPath(orgId))
        }}
      >
        <Field label="Name" hint="People see it here. It need not be unique.">
          <Input name="name" value={name} onInput={setName} required maxLength={255} autocomplete="off" />
        </Field>
      </Form>
    </Dialog>
  )
}

export default () => {
  const [isCreating, setCreating] = useState(false)
  const pages = usePages("orgs.list", { limit: 50 }, ({ orgs }) => orgs)
  const create = (
    <Button look="primary" icon="plus" onClick={() => setCreating(true)}>
      Create org
    </Button>
  )
  return (
    <Page title="Orgs" intro="An org is a tenant: it owns projects, keys and webhook endpoints." actions={create}>
      <Card isPadded={false}>
        <Table
          caption="Orgs"
          {...pages}
          rowKey={({ orgId }) => orgId}
          empty={
            <Empty icon="people" title="There is no org yet">
              <p>Create the first one here. The first project without an org makes one, too.</p>
            </Empty>
          }
          columns={[
            {
              title: "Name",
              cell: ({ name, orgId }) => (
                <Link class="main" to={orgPath(orgId)}>
                  {name}
                </Link>
              ),
            },
            { title: "Id", cell: ({ orgId }) => <Copyable text={orgId} label="Copy the id" /> },
            { title: "Created", align: "fit", cell: ({ createdAt }) => <Time at={createdAt} isRelative /> },
          ]}
        />
      </Card>
      {isCreating && <CreateOrg onClose={() => setCreating(false)} />}
    </Page>
  )
}
