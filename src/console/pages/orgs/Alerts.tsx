import { useState } from "preact/hooks"
import type { Args, ResponseBody } from "../../client/Operations.ts"
import { useCall, useData } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { Badge } from "../../components/Badge.tsx"
import { Button } from "../../components/Button.tsx"
import { AskButton, FormDialog } from "../../components/Dialog.tsx"
import { ActionButton, Field, Input, Select } from "../../components/Form.tsx"
import { Card, Empty } from "../../components/Page.tsx"
import { Table } from "../../components/Table.tsx"
import { Time } from "../../components/Time.tsx"
import { toast } from "../../components/Toasts.tsx"
import { useOrg } from "../../navigation/org.ts"

type Alert = ResponseBody<"alerts.list">["alerts"][number]

/** What each condition watches, and what its threshold counts. */
const conditions: Record<Alert["condition"], readonly [what: string, threshold?: string]> = {
  endpoint_failing: ["An endpoint fails", "for so many minutes"],
  endpoint_deactivated: ["An endpoint was deactivated"],
  backlog: ["Deliveries are due", "more than"],
  jobs_failed: ["Jobs failed in the last hour", "more than"],
  limit_near: ["A limit is near", "used, in percent"],
  credits_low: ["Credits of a key are low", "fewer than"],
}
/** Those of a form. A webhook has a secret, which the API and the CLI show once. */
const targets = { slack: "Slack", teams: "Microsoft Teams", discord: "Discord", email: "E-mail" }
const optionsOf = (labels: object) =>
  Object.entries(labels).map(([value, label]) => ({ value, label: [label].flat()[0] }))

const State = ({ active, failingSince, firingSince }: Alert) => {
  if (!active) return <Badge tone={failingSince === null ? "calm" : "bad"}>Off</Badge>
  if (failingSince !== null) return <Badge tone="bad">Target fails</Badge>
  return firingSince === null ? <Badge tone="good">OK</Badge> : <Badge tone="warn">Firing</Badge>
}

const CreateAlert = ({ onClose }: { readonly onClose: () => void }) => {
  const orgId = useOrg()
  const call = useCall()
  const [alert, setAlert] = useState({
    name: "",
    condition: "endpoint_failing",
    threshold: "30",
    target: "slack",
    url: "",
  })
  const set = (field: keyof typeof alert) => (text: string) => setAlert({ ...alert, [field]: text })
  const [, threshold] = conditions[alert.condition as Alert["condition"]]
  const create = async () => {
    const settings = { ...alert, threshold: threshold === undefined ? undefined : Number(alert.threshold) }
    await call("alerts.create", { orgId, ...settings } as Args<"alerts.create">)
    toast("The alert is created. Test it.")
  }
  return (
    <FormDialog title="Create an alert" submit="Create alert" onSubmit={create} onClose={onClose}>
      <Field label="Name" hint="What messages call it.">
        <Input value={alert.name} onInput={set("name")} required maxLength={255} autocomplete="off" />
      </Field>
      <div class="grid-fields">
        <Field label="When">
          <Select value={alert.condition} onInput={set("condition")} options={optionsOf(conditions)} />
        </Field>
        {threshold !== undefined && (
          <Field label={threshold}>
            <Input type="number" min={0} value={alert.threshold} onInput={set("threshold")} required />
          </Field>
        )}
        <Field label="Tell">
          <Select value={alert.target} onInput={set("target")} options={optionsOf(targets)} />
        </Field>
      </div>
      <Field
        label="URL"
        hint={
          alert.target === "email"
            ? "smtps://USER:PASSWORD@HOST:PORT?from=ADDRESS&to=ADDRESS. It is not shown again."
            : "Whoever has it can post there. It is not shown again."
        }
      >
        <Input value={alert.url} onInput={set("url")} required maxLength={2048} autocomplete="off" spellcheck={false} />
      </Field>
    </FormDialog>
  )
}

/** Who is told when something of an org is wrong. */
export const Alerts = () => {
  const orgId = useOrg()
  const may = useMay()
  const call = useCall()
  const { data, error, refetch } = useData("alerts.list", { orgId, limit: 100 }, { refetchMillis: 20_000 })
  const [isCreating, setCreating] = useState(false)
  const test = async ({ alertId: id }: Alert) => {
    const { error } = await call("alerts.test", { orgId, id })
    toast(error === null ? "The target was reached." : `The target was not reached: ${error}`)
  }
  const actions = (alert: Alert) => (
    <div class="actions">
      <ActionButton isSmall onPress={() => test(alert)}>
        Test
      </ActionButton>
      <ActionButton isSmall onPress={() => call("alerts.update", { orgId, id: alert.alertId, active: !alert.active })}>
        {alert.active ? "Turn off" : "Turn on"}
      </ActionButton>
      <AskButton
        isSmall
        look="danger"
        icon="trash"
        label={`Delete ${alert.name}`}
        isDangerous
        title={`Delete ${alert.name}?`}
        submit="Delete alert"
        onConfirm={() => call("alerts.remove", { orgId, id: alert.alertId })}
      >
        <p>Nothing more is told.</p>
      </AskButton>
    </div>
  )
  const create = may("alerts.create") && <Button onClick={() => setCreating(true)}>Create an alert…</Button>
  return (
    <Card title="Alerts" isPadded={false} actions={create}>
      <Table
        caption="Alerts"
        rows={data?.alerts}
        error={error}
        refetch={refetch}
        rowKey={({ alertId }) => alertId}
        empty={<Empty title="No alerts yet">Be told in a chat or by e-mail when webhooks or jobs fail.</Empty>}
        columns={[
          { title: "Name", cell: ({ name }) => name },
          { title: "When", align: "words", cell: ({ condition }) => conditions[condition][0] },
          { title: "Threshold", align: "end", cell: ({ threshold }) => threshold ?? "–" },
          { title: "Tells", cell: ({ receiver }) => receiver },
          { title: "State", align: "fit", cell: State },
          {
            title: "Last told",
            align: "fit",
            isExtra: true,
            cell: ({ lastToldAt }) => <Time at={lastToldAt} isRelative />,
          },
          ...(may("alerts.update") ? [{ title: "", align: "fit", cell: actions } as const] : []),
        ]}
      />
      {isCreating && <CreateAlert onClose={() => setCreating(false)} />}
    </Card>
  )
}
