import { useState } from "preact/hooks"
import type { ResponseBody } from "../../client/Operations.ts"
import { useCall, useData, usePages } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { Badge } from "../../components/Badge.tsx"
import { Button, buttonClass } from "../../components/Button.tsx"
import { Json, parseJson } from "../../components/Code.tsx"
import { AskButton, FormDialog } from "../../components/Dialog.tsx"
import { Check, Field, Input, TextArea } from "../../components/Form.tsx"
import { Card, Empty, Facts, Page, useCreate } from "../../components/Page.tsx"
import { Loaded, Table } from "../../components/Table.tsx"
import { useOrg } from "../../navigation/org.ts"
import { Link, orgPath, useSearch } from "../../navigation/router.tsx"

type EventType = ResponseBody<"eventTypes.get">

const inOrder = new Intl.Collator("en", { numeric: true })
const newestOf = ({ schemas }: EventType) => Object.keys(schemas).toSorted(inOrder.compare).at(-1)

/** One type: what its events have in their data. */
const Details = ({ name }: { readonly name: string }) => {
  const orgId = useOrg()
  const may = useMay()
  const [, select] = useSearch("type")
  const call = useCall(() => select(undefined))
  const response = useData("eventTypes.get", { name })
  const [isEditing, setEditing] = useState(false)
  const actions = (
    <>
      {may("webhooks.create") && (
        <Link class={buttonClass()} to={orgPath(orgId, `/endpoints?new=1&type=${encodeURIComponent(name)}`)}>
          Add an endpoint for it
        </Link>
      )}
      {may("eventTypes.update") && <Button onClick={() => setEditing(true)}>Edit</Button>}
      {may("eventTypes.delete") && (
        <AskButton
          {...{ look: "danger", icon: "trash", label: `Delete the event type ${name}`, isDangerous: true }}
          {...{ title: `Delete ${name}?`, submit: "Delete event type" }}
          onConfirm={() => call("eventTypes.delete", { name })}
        >
          <p>It is no longer in the catalogue. Its events stay.</p>
        </AskButton>
      )}
    </>
  )
  return (
    <Card title={name} actions={actions}>
      <Loaded of={response}>
        {(type) => {
          const newest = newestOf(type)
          return (
            <div class="stack">
              {type.deprecated && <Badge tone="warn">Deprecated</Badge>}
              {type.description !== null && <p>{type.description}</p>}
              <Facts
                of={{ Group: type.group ?? undefined, Versions: Object.keys(type.schemas).join(", ") || "none" }}
              />
              <Json title="Example" value={type.example} none="It has no example." />
              <Json
                title={newest === undefined ? "Schema" : `Schema, version ${newest}`}
                value={newest === undefined ? undefined : type.schemas[newest]}
                none="It has no schema: its data can be anything."
              />
              {isEditing && <Edit of={type} onClose={() => setEditing(false)} />}
            </div>
          )
        }}
      </Loaded>
    </Card>
  )
}

const textOf = (value: unknown) => (value === undefined || value === null ? "" : JSON.stringify(value, null, 2))

/** Adds a type, or changes one. */
const Edit = ({ of, onClose }: { readonly of?: EventType; readonly onClose: () => void }) => {
  const call = useCall()
  const [, select] = useSearch("type")
  const newest = of && newestOf(of)
  const [name, setName] = useState(of?.name ?? "")
  const [description, setDescription] = useState(of?.description ?? "")
  const [group, setGroup] = useState(of?.group ?? "")
  const [version, setVersion] = useState(newest ?? "1")
  const [schema, setSchema] = useState(() => textOf(newest === undefined ? undefined : of!.schemas[newest]))
  const [example, setExample] = useState(() => textOf(of?.example))
  const [deprecated, setDeprecated] = useState(of?.deprecated ?? false)
  const json = { schema: schema.trim() === "" ? {} : parseJson(schema), example: parseJson(example.trim() || "null") }
  const save = async () => {
    const schemas = json.schema.value === undefined ? {} : { schemas: { [version]: json.schema.value } }
    const fields = { name, deprecated, example: json.example.value, ...schemas }
    if (of !== undefined) {
      await call("eventTypes.update", { ...fields, description: description || null, group: group || null })
    } else {
      await call("eventTypes.create", { ...fields, ...(description && { description }), ...(group && { group }) })
      select(name)
    }
  }
  return (
    <FormDialog
      title={of === undefined ? "Add an event type" : `Edit ${of.name}`}
      submit={of === undefined ? "Add event type" : "Save"}
      isReady={json.schema.error === undefined && json.example.error === undefined}
      onSubmit={save}
      onClose={onClose}
    >
      {of === undefined && (
        <Field label="Type" hint="Words joined by dots.">
          <Input value={name} onInput={setName} required maxLength={128} spellcheck={false} autocomplete="off" />
        </Field>
      )}
      <Field label="Description" hint="What happened, for whoever receives it.">
        <Input value={description} onInput={setDescription} maxLength={2000} autocomplete="off" />
      </Field>
      <div class="grid-fields">
        <Field label="Group">
          <Input value={group} onInput={setGroup} maxLength={64} autocomplete="off" />
        </Field>
        <Field label="Version" hint="A new one is added.">
          <Input value={version} onInput={setVersion} required maxLength={32} autocomplete="off" />
        </Field>
      </div>
      <Field label="JSON Schema of the data" hint="Empty: anything, or as it is." error={json.schema.error}>
        <TextArea value={schema} onInput={setSchema} spellcheck={false} rows={8} />
      </Field>
      <Field label="Example" hint="Valid for the newest schema. Empty: none." error={json.example.error}>
        <TextArea value={example} onInput={setExample} spellcheck={false} rows={5} />
      </Field>
      <Check isChecked={deprecated} onChange={setDeprecated}>
        Deprecated: new receivers are to use another type.
      </Check>
    </FormDialog>
  )
}

/** The event types that an org describes for its receivers. */
export default () => {
  const orgId = useOrg()
  const may = useMay()
  const [selected] = useSearch("type")
  const { close, create, isCreating } = useCreate("Add an event type", "eventTypes.create")
  const pages = usePages("eventTypes.list", { limit: 50 }, ({ event_types }) => event_types)
  const list = (
    <Card isPadded={false}>
      <Table
        caption="Event types"
        {...pages}
        rowKey={({ name }) => name}
        empty={
          <Empty icon="list" title="No event type yet">
            {may("eventTypes.create") ? (
              <p>A type has a schema and an example. gatehouse event-types push adds those of a repository.</p>
            ) : (
              <p>The types of events and their data will be described here.</p>
            )}
          </Empty>
        }
        columns={[
          {
            title: "Type",
            link: ({ description, name }) => [
              orgPath(orgId, `/catalogue?type=${encodeURIComponent(name)}`),
              name,
              description,
            ],
          },
          { title: "Group", align: "words", cell: ({ group }) => group ?? "–" },
          {
            title: "Schema",
            align: "fit",
            isExtra: true,
            cell: (type) =>
              type.deprecated ? (
                <Badge tone="warn">Deprecated</Badge>
              ) : (
                (newestOf(type) ?? <span class="quiet">–</span>)
              ),
          },
        ]}
      />
    </Card>
  )
  return (
    <Page
      title="Catalogue"
      intro="What events there are, and what each has in its data."
      crumbs={[{ to: orgPath(orgId, "/events"), label: "Events" }]}
      actions={create}
    >
      {selected === undefined ? (
        list
      ) : (
        <div class="columns">
          {list}
          <Details key={selected} name={selected} />
        </div>
      )}
      {isCreating && <Edit onClose={close} />}
    </Page>
  )
}
