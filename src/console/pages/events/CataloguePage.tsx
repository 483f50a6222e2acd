import { useState } from "preact/hooks"
import type { Args, ResponseBody } from "../../client/Operations.ts"
import { useCall, useData, usePages } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { Badge } from "../../components/Badge.tsx"
import { Button, buttonClass } from "../../components/Button.tsx"
import { Json } from "../../components/Code.tsx"
import { DeleteButton, FormDialog } from "../../components/Dialog.tsx"
import { flag, json, optional, text, useFields } from "../../components/Fields.tsx"
import { Card, Empty, Facts, Page, useCreate } from "../../components/Page.tsx"
import { ListCard, Loaded } from "../../components/Table.tsx"
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
        <DeleteButton
          label={`Delete the event type ${name}`}
          title={`Delete ${name}?`}
          submit="Delete event type"
          onConfirm={() => call("eventTypes.delete", { name })}
        >
          <p>It is no longer in the catalogue. Its events stay.</p>
        </DeleteButton>
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

const settings = {
  name: { ...text, label: "Type", hint: "Words joined by dots.", required: true, maxLength: 128, spellcheck: false },
  description: {
    ...optional,
    label: "Description",
    hint: "What happened, for those who receive it.",
    maxLength: 2000,
  },
  group: { ...optional, label: "Group", maxLength: 64 },
  version: { ...text, label: "Version", hint: "A new one is added.", required: true, maxLength: 32 },
  schema: {
    ...json,
    label: "JSON Schema of the data",
    hint: "Empty: anything, or as it is.",
    class: "input",
    rows: 8,
  },
  example: {
    ...json,
    label: "Example",
    hint: "Valid for the newest schema. Empty: none.",
    class: "input",
    rows: 5,
  },
  deprecated: { ...flag, label: "Deprecated: new receivers are to use another type." },
}

/** Adds a type, or changes one. */
const Edit = ({ of, onClose }: { readonly of?: EventType; readonly onClose: () => void }) => {
  const call = useCall()
  const [, select] = useSearch("type")
  const version = of && newestOf(of)
  const schema = version === undefined ? undefined : of?.schemas[version]
  const { changes, field, fields, isValid, values } = useFields(settings, { ...of, version: version ?? "1", schema })
  const save = async () => {
    const { name, schema } = values
    // Only what differs: somebody else may have changed the rest.
    const { schema: newSchema, version, ...others } = changes
    const hasSchema = schema !== undefined && (newSchema !== undefined || version !== undefined)
    const type = {
      ...others,
      name,
      ...("example" in changes && { example: values.example ?? null }),
      ...(hasSchema && { schemas: { [values.version]: schema } }),
    }
    if (of !== undefined) return call("eventTypes.update", type)
    await call("eventTypes.create", type as Args<"eventTypes.create">)
    return select(name)
  }
  return (
    <FormDialog
      title={of === undefined ? "Add an event type" : `Edit ${of.name}`}
      submit={of === undefined ? "Add event type" : "Save"}
      isReady={isValid && Object.keys(changes).length > 0}
      onSubmit={save}
      onClose={onClose}
    >
      {of === undefined && field("name")}
      {field("description")}
      <div class="grid-fields">{fields("group", "version")}</div>
      {fields("schema", "example", "deprecated")}
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
    <ListCard
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
            type.deprecated ? <Badge tone="warn">Deprecated</Badge> : (newestOf(type) ?? <span class="quiet">–</span>),
        },
      ]}
    />
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
