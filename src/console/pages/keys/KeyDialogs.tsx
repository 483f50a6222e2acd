import { useState } from "preact/hooks"
import { useCall } from "../../client/queries.ts"
import { Confirm, Dialog } from "../../components/Dialog.tsx"
import { Field, Form, Input, Select } from "../../components/Form.tsx"
import { toast } from "../../components/Toasts.tsx"
import { navigate, orgPath } from "../../navigation/router.tsx"
import type { Key } from "./keyState.ts"
import { SettingFields } from "./SettingFields.tsx"
import { ShownOnce } from "./ShownOnce.tsx"
import { changedSettings, isMetadata, textsOf } from "./settings.ts"

interface KeyDialogProps {
  readonly orgId: string
  readonly of: Key
  readonly onClose: () => void
}

export const EditKey = ({ of: key, onClose, orgId }: KeyDialogProps) => {
  const call = useCall()
  const [before] = useState(() => textsOf(key))
  const [texts, setTexts] = useState(before)
  const [name, setName] = useState(key.name)
  const changes = {
    ...(name === key.name ? {} : { name }),
    ...(isMetadata(texts.metadata) ? changedSettings(before, texts) : {}),
  }
  const save = async () => {
    await call("keys.update", { orgId, id: key.id, ...changes })
    toast("The key is saved. Every replica knows it.")
    onClose()
  }
  const isReady = Object.keys(changes).length > 0 && isMetadata(texts.metadata)
  return (
    <Dialog title={`Change ${key.name}`} onClose={onClose}>
      <Form submit="Save" isReady={isReady} onSubmit={save} onCancel={onClose}>
        <Field label="Name">
          <Input name="name" value={name} onInput={setName} required maxLength={255} autocomplete="off" />
        </Field>
        <SettingFields texts={texts} onChange={setTexts} />
      </Form>
    </Dialog>
  )
}

const overlaps = [
  { value: "0", label: "No overlap: the old key ends at once" },
  { value: "3600", label: "1 hour" },
  { value: "86400", label: "1 day" },
  { value: "604800", label: "7 days" },
]

export const RotateKey = ({ of: key, onClose, orgId }: KeyDialogProps) => {
  const call = useCall()
  const [overlap, setOverlap] = useState("86400")
  const [created, setCreated] = useState<{ readonly key: string; readonly id: string }>()
  const [idempotencyKey] = useState(() => crypto.randomUUID())
  const rotate = async () => {
    const args = { orgId, id: key.id, overlapSeconds: Number(overlap) }
    setCreated(await call("keys.rotate", args, idempotencyKey))
  }
  if (created !== undefined) {
    const open = () => {
      onClose()
      navigate(orgPath(orgId, `/keys/${created.id}`))
    }
    return <ShownOnce title={`The new key of ${key.name}`} secret={created.key} onClose={open} />
  }
  return (
    <Dialog title={`Rotate ${key.name}`} onClose={onClose}>
      <p>
        A new key with the same settings replaces this one. Both share one counter of the rate limit and of the credits.
      </p>
      <Form submit="Rotate key" onSubmit={rotate} onCancel={onClose}>
        <Field label="The old key stays valid for" hint="Long enough to give the new one to everyone who uses it.">
          <Select value={overlap} onInput={setOverlap} options={overlaps} />
        </Field>
      </Form>
    </Dialog>
  )
}

export const DisableKey = ({ of: key, onClose, orgId }: KeyDialogProps) => {
  const call = useCall()
  const disable = async () => {
    await call("keys.update", { orgId, id: key.id, enabled: false })
    toast("The key is disabled. Every replica refuses it.")
  }
  return (
    <Confirm title={`Disable ${key.name}?`} action="Disable key" isDangerous onConfirm={disable} onClose={onClose}>
      <p>Every replica refuses the key at once, until it is enabled again.</p>
    </Confirm>
  )
}

export const DeleteKey = ({ of: key, onClose, orgId }: KeyDialogProps) => {
  const call = useCall(() => navigate(orgPath(orgId, "/keys")))
  const remove = async () => {
    await call("keys.remove", { orgId, id: key.id })
    toast(`${key.name} is deleted.`)
  }
  return (
    <Confirm
      title={`Delete ${key.name}`}
      action="Delete key"
      isDangerous
      typed={key.name}
      onConfirm={remove}
      onClose={onClose}
    >
      <p>Every replica refuses the key at once. This cannot be undone; to stop it for a while, disable it.</p>
    </Confirm>
  )
}
