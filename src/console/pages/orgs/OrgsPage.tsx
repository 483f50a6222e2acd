import { useState } from "preact/hooks"
import type { ResponseBody } from "../../client/Operations.ts"
import { useCall, useData, usePages } from "../../client/queries.ts"
import { Badge } from "../../components/Badge.tsx"
import { FormDialog } from "../../components/Dialog.tsx"
import { Field, Filter, Filters, Input } from "../../components/Form.tsx"
import { Empty, Page, useCreate } from "../../components/Page.tsx"
import { ListCard } from "../../components/Table.tsx"
import { Time } from "../../components/Time.tsx"
import { numberText, shortNumber } from "../../components/numbers.ts"
import { navigate, orgPath, useSearch } from "../../navigation/router.tsx"
import { limitLabels, limitNames, limitTone } from "./limits.ts"

type Overview = ResponseBody<"activity.overview">
const waiting = <span class="skeleton w-50" />

const sums = ({ deliveries, jobs, validations }: Overview) => ({
  attempts: deliveries.reduce((all, { delivered, failed, retried }) => all + delivered + retried + failed, 0),
  failures: deliveries.reduce((all, { failed, retried }) => all + retried + failed, 0),
  validations: validations.reduce((all, { valid, limited, forbidden }) => all + valid + limited + forbidden, 0),
  jobs: jobs.reduce((all, { canceled, completed, failed }) => all + completed + failed + canceled, 0),
})

/** One figure of what an org did in the last day. The figures of a row come with one request. */
const Figure = ({ name, orgId }: { readonly orgId: string; readonly name: keyof ReturnType<typeof sums> }) => {
  const { data } = useData("activity.overview", { orgId, every: "hour" }, { isLive: false })
  if (data === undefined) return waiting
  const value = sums(data)[name]
  return (
    <span class={name === "failures" && value > 0 ? "attention" : undefined} title={numberText(value)}>
      {shortNumber(value)}
    </span>
  )
}

/** The limits that an org has nearly reached. */
const LimitState = ({ orgId }: { readonly orgId: string }) => {
  const { data } = useData("orgs.get", { orgId }, { isLive: false })
  if (data === undefined) return waiting
  const near = limitNames.flatMap((name) => {
    const tone = limitTone(data.used[name], data.limits[name])
    return tone === undefined ? [] : [{ name, tone } as const]
  })
  if (near.length === 0) return <span class="quiet">not near</span>
  return (
    <span class="row">
      {near.map(({ name, tone }) => (
        <Badge key={name} tone={tone}>
          {limitLabels[name]}
        </Badge>
      ))}
    </span>
  )
}

const figures = [
  { name: "attempts", title: "Attempts" },
  { name: "failures", title: "Failed attempts" },
  { name: "validations", title: "Validations" },
  { name: "jobs", title: "Jobs" },
] as const

export default () => {
  const { close, create, isCreating } = useCreate("Create org", "orgs.create")
  const [wanted] = useSearch("text")
  const text = wanted?.trim()
  const filter = { limit: 25, order: "newest", ...(text ? { text } : {}) } as const
  const pages = usePages("orgs.list", filter, ({ orgs }) => orgs, { keepsPrevious: true })
  return (
    <Page
      title="Orgs"
      intro="An org is a tenant: it owns projects, keys and webhook endpoints. The figures are of the last 24 hours."
      actions={create}
    >
      <Filters>
        <Filter label="Org" name="text" placeholder="Its name or id" />
      </Filters>
      <ListCard
        caption="Orgs"
        {...pages}
        rowKey={({ orgId }) => orgId}
        filtered={text && "org"}
        empty={
          <Empty icon="people" title="There is no org yet">
            <p>Create the first one here. The first project without an org makes one, too.</p>
          </Empty>
        }
        columns={[
          { title: "Org", link: ({ name, orgId }) => [orgPath(orgId), name] },
          ...figures.map(({ name, title }) => ({
            title,
            align: "end" as const,
            cell: ({ orgId }: { readonly orgId: string }) => <Figure orgId={orgId} name={name} />,
          })),
          { title: "Limits", cell: ({ orgId }) => <LimitState orgId={orgId} /> },
          { title: "Created", align: "fit", cell: ({ createdAt }) => <Time at={createdAt} isRelative /> },
        ]}
      />
      {isCreating && <CreateOrg onClose={close} />}
    </Page>
  )
}

const CreateOrg = ({ onClose }: { readonly onClose: () => void }) => {
  const [name, setName] = useState("")
  const call = useCall()
  const create = async () => navigate(orgPath((await call("orgs.create", { name }, { isOnce: true })).orgId))
  return (
    <FormDialog title="Create an org" submit="Create org" onSubmit={create} onClose={onClose}>
      <Field label="Name" hint="People see it here. It need not be unique.">
        <Input name="name" value={name} onInput={setName} required maxLength={255} autocomplete="off" />
      </Field>
    </FormDialog>
  )
}
