import { useState } from "preact/hooks"
import { useCall, usePages } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { Dialog } from "../../components/Dialog.tsx"
import { Field, Form, Input, Select } from "../../components/Form.tsx"
import { useOrg } from "../../navigation/org.ts"
import { SettingFields } from "./SettingFields.tsx"
import { ShownOnce } from "./ShownOnce.tsx"
import { emptyTexts, isMetadata, newSettings } from "./settings.ts"

/** Whom a key may be for: the org, if the reader may create such keys, and each of its projects. */
const useOwners = (orgId: string) => {
  const may = useMay()
  const { rows = [] } = usePages("projects.list", { orgId, limit: 100 }, ({ projects }) => projects)
  return [
    ...(may("keys.createForOrg") ? [{ value: "", label: "Whole org" }] : []),
    ...rows.map(({ name, projectId }) => ({ value: projectId, label: `Project ${name}` })),
  ]
}

export const CreateKey = ({ onClose }: { readonly onClose: () => void }) => {
  const orgId = useOrg()
  const call = useCall()
  const owners = useOwners(orgId)
  const [name, setName] = useState("")
  const [owner, setOwner] = useState<string>()
  const [texts, setTexts] = useState(emptyTexts)
  const [secret, setSecret] = useState<string>()
  const [idempotencyKey] = useState(() => crypto.randomUUID())
  const projectId = owner ?? owners[0]?.value
  const create = async () => {
    const fields = { name, ...newSettings(texts) }
    const created =
      projectId === undefined || projectId === ""
        ? await call("keys.createForOrg", { orgId, ...fields }, idempotencyKey)
        : await call("keys.createForProject", { projectId, ...fields }, idempotencyKey)
    setSecret(created.key)
  }
  if (secret !== undefined) return <ShownOnce title={`The key ${name}`} secret={secret} onClose={onClose} />
  return (
    <Dialog title="Create a key" onClose={onClose}>
      <Form submit="Create key" isReady={isMetadata(texts.metadata)} onSubmit={create} onCancel={onClose}>
        <Field label="Name" hint="So that people recognize the key.">
          <Input name="name" value={name} onInput={setName} required maxLength={255} autocomplete="off" />
        </Field>
        <Field label="For" hint="A key of the whole org manages the org. A key of a project is for what it deploys.">
          <Select name="owner" value={projectId ?? ""} onInput={setOwner} options={owners} />
        </Field>
        <details>
          <summary>Limits, permissions and more</summary>
          <div class="form">
            <SettingFields texts={texts} onChange={setTexts} />
          </div>
        </details>
      </Form>
    </Dialog>
  )
}
