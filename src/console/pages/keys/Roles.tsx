import { useState } from "preact/hooks"
import type { ResponseBody } from "../../client/Operations.ts"
import { useCall, useData } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { Button } from "../../components/Button.tsx"
import { DeleteButton, FormDialog } from "../../components/Dialog.tsx"
import { Field, Input, Lines, linesOf } from "../../components/Form.tsx"
import { Card } from "../../components/Page.tsx"
import { Table } from "../../components/Table.tsx"
import { useOrg } from "../../navigation/org.ts"
import { Codes, useUsedPermissions } from "./keySettings.tsx"

type Role = ResponseBody<"roles.list">["roles"][number]

/** The roles of an org: named sets of permissions, which keys have beside their own. */
export const Roles = () => {
  const orgId = useOrg()
  const may = useMay()
  const { data, error, refetch } = useData("roles.list", { orgId })
  const call = useCall()
  const [open, setOpen] = useState<Role>()
  const buttons = (role: Role) => (
    <span class="row nowrap">
      <Button isSmall aria-label={`Edit the role ${role.name}`} onClick={() => setOpen(role)}>
        Edit
      </Button>
      <DeleteButton
        label={`Delete the role ${role.name}`}
        isSmall
        title={`Delete the role ${role.name}?`}
        submit="Delete role"
        onConfirm={() => call("roles.remove", { orgId, name: role.name })}
      >
        <p>Its permissions are taken from all keys with the role at once. The keys stay.</p>
      </DeleteButton>
    </span>
  )
  return (
    <Card
      title="Roles"
      isPadded={false}
      actions={may("roles.put") && <Button onClick={() => setOpen({ name: "", permissions: [] })}>Add role</Button>}
    >
      <Table
        caption="Roles"
        {...{ error, refetch, rows: data?.roles }}
        rowKey={({ name }) => name}
        empty={
          <p class="card-body quiet">None. A role is a set of permissions that many keys have, changed in one place.</p>
        }
        columns={[
          { title: "Role", align: "fit", cell: ({ name }) => <strong>{name}</strong> },
          { title: "Permissions", cell: ({ permissions }) => <Codes of={permissions} /> },
          ...(may("roles.put", "roles.remove") ? [{ title: "", align: "fit" as const, cell: buttons }] : []),
        ]}
      />
      {open && <SetRole role={open} onClose={() => setOpen(undefined)} />}
    </Card>
  )
}

const SetRole = ({ onClose, role }: { readonly role: Role; readonly onClose: () => void }) => {
  const orgId = useOrg()
  const call = useCall()
  const [name, setName] = useState(role.name)
  const [permissions, setPermissions] = useState(role.permissions.join("\n"))
  const known = useUsedPermissions()
  return (
    <FormDialog
      title={role.name === "" ? "Add a role" : `Edit the role ${role.name}`}
      submit="Save role"
      onSubmit={() => call("roles.put", { orgId, name, permissions: linesOf(permissions) })}
      onClose={onClose}
    >
      {role.name === "" ? (
        <Field
          label="Role"
          hint="Letters, digits, and _ . - after the first. The name of another role replaces that role."
        >
          <Input value={name} onInput={setName} required maxLength={64} placeholder="reader" autocomplete="off" />
        </Field>
      ) : (
        <p>Every key with this role has the new permissions at once.</p>
      )}
      <Lines
        label="Permissions"
        hint="One on each line, such as models.gpt-5.use or files.*."
        value={permissions}
        onInput={setPermissions}
        {...{ known, knownAs: "In use:" }}
      />
    </FormDialog>
  )
}
