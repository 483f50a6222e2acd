import { useState } from "preact/hooks"
import { useCall } from "../../client/queries.ts"
import { Dialog } from "../../components/Dialog.tsx"
import { Field, Form, Input } from "../../components/Form.tsx"
import { navigate, orgPath } from "../../navigation/router.tsx"

export const CreateOrg = ({ onClose }: { readonly onClose: () => void }) => {
  const [name, setName] = useState("")
  const [idempotencyKey] = useState(() => crypto.randomUUID())
  const call = useCall()
  const create = async () => {
    const { orgId } = await call("orgs.create", { name }, idempotencyKey)
    onClose()
    navigate(orgPath(orgId))
  }
  return (
    <Dialog title="Create an org" onClose={onClose}>
      <Form submit="Create org" onCancel={onClose} onSubmit={create}>
        <Field label="Name" hint="People see it here. It need not be unique.">
          <Input name="name" value={name} onInput={setName} required maxLength={255} autocomplete="off" />
        </Field>
      </Form>
    </Dialog>
  )
}
