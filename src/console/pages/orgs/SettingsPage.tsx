import { useState } from "preact/hooks"
import type { ResponseBody } from "../../client/Operations.ts"
import { useCall, useData } from "../../client/queries.ts"
import { bytesOf, bytesText } from "../../components/numbers.ts"
import { useMay } from "../../client/session.tsx"
import { DangerCard } from "../../components/Dialog.tsx"
import { flag, list, number, optional, text, useFields } from "../../components/Fields.tsx"
import { Field, Form, Input, linesOf } from "../../components/Form.tsx"
import { Card, Page } from "../../components/Page.tsx"
import { Loaded } from "../../components/Table.tsx"
import { useOrg } from "../../navigation/org.ts"
import { navigate, orgPath } from "../../navigation/router.tsx"
import { type LimitName, limitLabels, limitNames, limitText } from "./limits.ts"

type Org = ResponseBody<"orgs.get">
interface OrgProps {
  readonly org: Org
}

const settings = {
  name: { ...text, label: "Name", required: true, maxLength: 255 },
  keyPrefix: {
    ...optional,
    label: "Prefix of new keys",
    hint: "3 to 24 lower-case letters, digits or underscores, such as acme_live. Empty: svc.",
    maxLength: 255,
  },
  owners: {
    ...list,
    label: "Owners of repositories",
    hint: "One on each line: the owner on GitHub, or provider:owner. Their CI runs register deployments in this org.",
    class: "input",
    placeholder: "acme\ngitlab:acme",
    write: linesOf,
  },
  strictEvents: {
    ...flag,
    label: "Publish only events of a type in the catalogue, with data that is valid for its newest schema.",
  },
  retentionDays: {
    ...number,
    label: "Days to keep events and finished jobs",
    hint: "Empty: as long as the service keeps those of every org, which is also the longest.",
    min: 1,
  },
}

interface SettingProps extends OrgProps {
  readonly name: keyof typeof settings
  /** What is saved, in a word. */
  readonly noun: string
}

const Setting = ({ name, noun, org }: SettingProps) => {
  const call = useCall()
  const { changes, field } = useFields(settings, org)
  const said = `The ${noun} ${noun.endsWith("s") ? "are" : "is"} saved.`
  const save = () => call("orgs.update", { orgId: org.orgId, ...changes }, { said })
  return (
    <Form submit={`Save the ${noun}`} isReady={name in changes} onSubmit={save}>
      {field(name)}
    </Form>
  )
}

/** The limit of a field; null: the default; undefined: no number. */
const limitOf = (name: LimitName, text: string) => {
  if (text.trim() === "") return null
  const value = (name === "storedBytes" ? bytesOf(text) : Number(text)) ?? Number.NaN
  return Number.isInteger(value) && value >= 0 ? value : undefined
}

/** In the largest unit that changes nothing. */
const exactBytes = (bytes: number) => (bytesOf(bytesText(bytes)) === bytes ? bytesText(bytes) : String(bytes))

const LimitsForm = ({ org }: OrgProps) => {
  const call = useCall()
  const [texts, setTexts] = useState<Partial<Record<LimitName, string>>>({})
  const changed = limitNames.filter((name) => texts[name] !== undefined)
  const wrong = changed.filter((name) => limitOf(name, texts[name]!) === undefined)
  const save = async () => {
    const limits = Object.fromEntries(changed.map((name) => [name, limitOf(name, texts[name]!)]))
    await call("orgs.update", { orgId: org.orgId, limits }, { said: "The limits are saved." })
    setTexts({})
  }
  return (
    <Form submit="Save the limits" isReady={changed.length > 0 && wrong.length === 0} onSubmit={save}>
      <div class="grid-3">
        {limitNames.map((name) => (
          <Field
            key={name}
            label={limitLabels[name]}
            hint={`${limitText(name, org.used[name])} of ${limitText(name, org.limits[name])} used`}
            error={
              wrong.includes(name)
                ? `Enter ${name === "storedBytes" ? "a size such as 10 GiB" : "a whole number"}, or nothing for the default.`
                : undefined
            }
          >
            <Input
              name={name}
              inputMode={name === "storedBytes" ? "text" : "numeric"}
              autocomplete="off"
              value={texts[name] ?? (name === "storedBytes" ? exactBytes(org.limits[name]) : String(org.limits[name]))}
              onInput={(text) => setTexts({ ...texts, [name]: text })}
            />
          </Field>
        ))}
      </div>
      <p class="hint">
        An empty field is the default of the service. A limit below what is used removes nothing. Only that of pending
        deliveries deactivates endpoints, and cancels their deliveries.
      </p>
    </Form>
  )
}

const DeleteOrg = ({ org }: OrgProps) => {
  const call = useCall(() => navigate(orgPath(org.orgId)))
  const { endpoints, keys, projects } = org.used
  return (
    <DangerCard
      title="Delete this org"
      action="Delete org"
      name={org.name}
      warning={`Everything of this org is deleted for good: ${projects} projects, ${keys} keys and ${endpoints} endpoints.`}
      onConfirm={() => call("orgs.remove", { orgId: org.orgId }, { said: `${org.name} is deleted.` })}
    >
      Its keys are refused at once, its endpoints get nothing more, and its projects, jobs and schedules are erased.
      This cannot be undone.
    </DangerCard>
  )
}

export default () => {
  const orgId = useOrg()
  const may = useMay()
  const response = useData("orgs.get", { orgId })
  return (
    <Page title="Settings" intro="The name of the org, whose repositories belong to it, and how much it may use.">
      <Loaded of={response} lines={5}>
        {(org) => {
          const setting = (name: SettingProps["name"], noun: string) => <Setting {...{ name, noun, org }} />
          return (
            <>
              <div class="grid-2">
                <Card title="Name">
                  {setting("name", "name")}
                  {setting("keyPrefix", "prefix")}
                </Card>
                <Card title="Repositories">{setting("owners", "owners")}</Card>
              </div>
              <Card title="Events and jobs">
                {setting("strictEvents", "setting")}
                {setting("retentionDays", "retention")}
              </Card>
              <Card title="Limits">
                <LimitsForm org={org} />
              </Card>
              {may("orgs.remove") && <DeleteOrg org={org} />}
            </>
          )
        }}
      </Loaded>
    </Page>
  )
}
