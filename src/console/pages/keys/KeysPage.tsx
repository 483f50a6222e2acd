import { useState } from "preact/hooks"
import type { Args } from "../../client/Operations.ts"
import { useMatches, withoutKey } from "../../client/matches.ts"
import { useAll, useCall, useData, usePages } from "../../client/queries.ts"
import { type Me, useMay, useSession } from "../../client/session.tsx"
import { Badge, State } from "../../components/Badge.tsx"
import { Button } from "../../components/Button.tsx"
import { Dialog } from "../../components/Dialog.tsx"
import { Check, Field, Filter, Filters, Form, Input, Select } from "../../components/Form.tsx"
import { Empty, Page, useCreate } from "../../components/Page.tsx"
import { type Column, ListCard } from "../../components/Table.tsx"
import { Time, useNow } from "../../components/Time.tsx"
import { shortNumber } from "../../components/numbers.ts"
import { useOrg } from "../../navigation/org.ts"
import { orgPath, useQuery } from "../../navigation/router.tsx"
import { type Key, keyStateOf, rateLimitText, ShownOnce, useKeyForm } from "./keySettings.tsx"
import { ImportKeys } from "./ImportKeys.tsx"
import { Roles } from "./Roles.tsx"

const unlimited = <span class="quiet">Unlimited</span>

const lastUses = [
  { value: "never", label: "Never" },
  { value: "7", label: "In the last 7 days" },
  { value: "-30", label: "Not in 30 days" },
  { value: "-90", label: "Not in 90 days" },
]
const dayMillis = 86_400_000

/** Whether a key was used in so many days; not in them when they are negative. */
const isUsed = ({ lastUsedAt }: Key, use: string, now: number) => {
  const days = lastUsedAt === null ? Infinity : (now - Date.parse(lastUsedAt)) / dayMillis
  return use === "never" ? lastUsedAt === null : Number(use) > 0 ? days <= Number(use) : days > -Number(use)
}

/** The project of a key, or its org. */
const OwnerName = ({ projectId }: Pick<Key, "projectId">) => {
  const enabled = useMay()("projects.get") && projectId !== null
  const { data } = useData("projects.get", { projectId: projectId ?? "" }, { enabled, isLive: false })
  const name = projectId === null ? "Whole org" : (data?.name ?? "A project")
  return (
    <span class="clip" title={name}>
      {name}
    </span>
  )
}

export default () => {
  const orgId = useOrg()
  const may = useMay()
  const now = useNow()
  const { externalId, text, used } = useQuery()
  const held = useSession().me.keys
  const { close, create, isCreating } = useCreate(
    "Create key",
    held?.projectId === null ? "keys.createForOrg" : "keys.createForProject",
  )
  const [isImporting, setImporting] = useState(false)
  const all = usePages(
    "keys.list",
    {
      orgId,
      limit: 100,
      order: "newest",
      ...(externalId === undefined ? {} : { externalId }),
      ...(text?.trim() ? { text: text.trim() } : {}),
    },
    ({ keys }) => keys,
    { keepsPrevious: true },
  )
  const isFiltered = text !== undefined || used !== undefined
  const pages = useMatches(all, isFiltered ? (key) => used === undefined || isUsed(key, used, now) : undefined)
  const columns = (
    [
      { title: "Key", link: ({ id, name }) => [orgPath(orgId, `/keys/${id}`), name] },
      { title: "Prefix", align: "fit", cell: ({ prefix }) => <code>{prefix}…</code> },
      {
        title: "State",
        align: "fit",
        cell: (key) => (
          <span class="row">
            <State of={keyStateOf(key, now)} />
            {key.imported && <Badge isPlain>Imported</Badge>}
          </span>
        ),
      },
      !held && {
        title: "Belongs to",
        cell: ({ projectId }) => <OwnerName projectId={projectId} />,
      },
      { title: "Rate limit", align: "words", isExtra: true, cell: (key) => rateLimitText(key) ?? unlimited },
      {
        title: "Credits left",
        align: "end",
        isExtra: true,
        cell: ({ credits }) => (credits === null ? unlimited : shortNumber(credits.remaining)),
      },
      {
        title: "Last used",
        align: "fit",
        cell: ({ lastUsedAt }) => <Time at={lastUsedAt} isRelative none="never" />,
      },
    ] satisfies ReadonlyArray<Column<Key> | false>
  ).filter((column) => column !== false)
  return (
    <Page
      title="API keys"
      intro={
        held
          ? "Make a key for your program. Keep it secret: anyone who has it may use it."
          : "Keys of the org and of its projects. Only their prefixes are stored in the clear."
      }
      actions={
        <>
          {may("keys.importKeys") && <Button onClick={() => setImporting(true)}>Import keys…</Button>}
          {create}
        </>
      }
    >
      <Filters>
        <Filter label="Name, prefix or id" name="text" placeholder="svc_4fTz" clean={withoutKey} />
        {!held && <Filter label="External id" name="externalId" placeholder="customer_42" />}
        <Filter label="Last used" name="used" options={lastUses} />
      </Filters>
      <ListCard
        caption="API keys"
        {...pages}
        rowKey={({ id }) => id}
        filtered={isFiltered && "key"}
        empty={
          externalId === undefined ? (
            <Empty icon="key" title="There is no key yet">
              <p>Create one, give it to those who call your API, and let your gateway validate it at each request.</p>
            </Empty>
          ) : (
            <Empty icon="search" title="No key has this external id">
              <p>The external id must be the same, letter by letter.</p>
            </Empty>
          )
        }
        columns={columns}
      />
      {may("roles.list") && <Roles />}
      {isImporting && <ImportKeys onClose={() => setImporting(false)} />}
      {isCreating && (held ? <CreateOwnKey of={held} onClose={close} /> : <CreateKey onClose={close} />)}
    </Page>
  )
}

/** Whom a key may be for: the org, if the reader may create such keys, and each of its projects. */
const useOwners = (orgId: string) => {
  const may = useMay()
  const { rows } = useAll("projects.list", { orgId, limit: 100 }, ({ projects }) => projects)
  // One project is chosen. Of several, and of those not known yet, the reader chooses: a key of the org manages it.
  return [
    ...(rows === undefined || rows.length > 1 ? [{ value: "?", label: "Choose…" }] : []),
    ...(rows ?? []).map(({ name, projectId }) => ({ value: projectId, label: `Project ${name}` })),
    ...(may("keys.createForOrg") ? [{ value: "", label: "Whole org" }] : []),
  ]
}

/** Makes a key of a project, or of the org, and shows it once. */
const useNewKey = (onClose: () => void) => {
  const orgId = useOrg()
  const call = useCall()
  const [made, setMade] = useState<{ readonly name: string; readonly key: string }>()
  const make = async (projectId: string | null, fields: Omit<Args<"keys.createForOrg">, "orgId">) => {
    const { key } = projectId
      ? await call("keys.createForProject", { projectId, ...fields }, { isOnce: true })
      : await call("keys.createForOrg", { orgId, ...fields }, { isOnce: true })
    setMade({ name: fields.name, key })
  }
  const shown = made && <ShownOnce title={`The key ${made.name}`} secret={made.key} onClose={onClose} />
  return { make, shown }
}

const CreateKey = ({ onClose }: { readonly onClose: () => void }) => {
  const owners = useOwners(useOrg())
  const [owner, setOwner] = useState<string>()
  const { changes, controls, isValid, nameField } = useKeyForm()
  const { make, shown } = useNewKey(onClose)
  const projectId = owner ?? owners[0]?.value ?? ""
  const create = () => make(projectId, changes as Omit<Args<"keys.createForOrg">, "orgId">)
  if (shown) return shown
  return (
    <Dialog title="Create a key" onClose={onClose}>
      <Form
        submit="Create key"
        isReady={isValid && projectId !== "?"}
        why={projectId === "?" ? "Choose whom the key is for." : undefined}
        onSubmit={create}
        onCancel={onClose}
      >
        {nameField}
        <Field
          label="Belongs to"
          hint="Required. A key of the whole org manages the org. A key of a project is for what it deploys."
        >
          <Select name="owner" value={projectId} onInput={setOwner} options={owners} />
        </Field>
        {controls}
      </Form>
    </Dialog>
  )
}

interface CreateOwnKeyProps {
  readonly of: NonNullable<Me["keys"]>
  readonly onClose: () => void
}

/** Makes a key for the holder of a portal, with permissions that their link allows. */
const CreateOwnKey = ({ of: { maxKeys, permissions, projectId }, onClose }: CreateOwnKeyProps) => {
  const [name, setName] = useState("")
  const [chosen, setChosen] = useState(permissions)
  const { make, shown } = useNewKey(onClose)
  if (shown) return shown
  return (
    <Dialog title="Create a key" onClose={onClose}>
      <Form submit="Create key" onSubmit={() => make(projectId, { name, permissions: chosen })} onCancel={onClose}>
        <Field label="Name" hint="So that people recognize the key.">
          <Input name="name" value={name} onInput={setName} required maxLength={255} autocomplete="off" />
        </Field>
        {permissions.length > 1 && (
          <fieldset class="form">
            <legend>Permissions</legend>
            {permissions.map((one) => (
              <Check
                key={one}
                isChecked={chosen.includes(one)}
                onChange={(is) => setChosen(permissions.filter((all) => (all === one ? is : chosen.includes(all))))}
              >
                <code>{one}</code>
              </Check>
            ))}
          </fieldset>
        )}
        <p class="quiet">You may have {maxKeys} keys, besides those that you have rotated.</p>
      </Form>
    </Dialog>
  )
}
