import { useState } from "preact/hooks"
import type { Args, ResponseBody } from "../../client/Operations.ts"
import { useCall, usePages } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { Badge } from "../../components/Badge.tsx"
import { Button } from "../../components/Button.tsx"
import { DeleteButton, FormDialog } from "../../components/Dialog.tsx"
import { choice, number, text, useFields } from "../../components/Fields.tsx"
import { ActionButton } from "../../components/Form.tsx"
import { numberText } from "../../components/numbers.ts"
import { breaks, Empty, Page } from "../../components/Page.tsx"
import { ListCard } from "../../components/Table.tsx"
import { Time } from "../../components/Time.tsx"
import { toast } from "../../components/Toasts.tsx"
import { useOrgId } from "../../navigation/org.ts"
import { orgPath } from "../../navigation/router.tsx"

type Alert = ResponseBody<"alerts.list">["alerts"][number]

/** What the threshold of a condition counts, and in which unit. */
const thresholds: Partial<Record<Alert["condition"], readonly [label: string, unit: string]>> = {
  endpoint_failing: ["For so many minutes", "minutes"],
  backlog: ["More than", "deliveries"],
  jobs_failed: ["More than", "jobs"],
  limit_near: ["Used, in percent", "%"],
  credits_low: ["Fewer than", "credits"],
}
/** Those that only an org has. */
const ofOrg = ["limit_near", "credits_low"]

/** The alerts of an org; without one, those that watch every org. Their operations take the same requests. */
const groupOf = (orgId: string | undefined) => (orgId === undefined ? "serviceAlerts" : "alerts")

const useAlertCall = () => {
  const orgId = useOrgId()
  const call = useCall()
  return (name: "create" | "update" | "remove" | "test", args: object) => {
    const id = `${groupOf(orgId)}.${name}` as `alerts.${typeof name}`
    return call(id, { ...args, ...(orgId !== undefined && { orgId }) } as never)
  }
}

const settings = {
  name: { ...text, label: "Name", hint: "What messages call it.", required: true, maxLength: 255 },
  condition: {
    ...choice({
      endpoint_failing: "An endpoint fails",
      endpoint_deactivated: "An endpoint was deactivated",
      backlog: "Deliveries are due",
      jobs_failed: "Jobs failed in the last hour",
      limit_near: "A limit is near",
      credits_low: "Credits of a key are low",
    }),
    label: "When",
  },
  threshold: { ...number, label: "Threshold", min: 0, required: true },
  quietMinutes: {
    ...number,
    label: "Quiet minutes",
    hint: "Until the next message.",
    min: 0,
    max: 10_080,
    required: true,
  },
  // A webhook has a secret, which the API and the CLI show once.
  target: {
    ...choice({ slack: "Slack", teams: "Microsoft Teams", discord: "Discord", email: "E-mail" }),
    label: "Tell",
  },
  url: { ...text, label: "URL", required: true, maxLength: 2048, spellcheck: false },
}

/** What each condition watches. */
const watched = new Map(settings.condition.options.map(({ label, value }) => [value, label]))

const State = ({ active, failingSince, firingSince }: Alert) => {
  if (!active) return <Badge tone={failingSince === null ? "calm" : "bad"}>Off</Badge>
  if (failingSince !== null) return <Badge tone="bad">Target fails</Badge>
  return firingSince === null ? <Badge tone="good">OK</Badge> : <Badge tone="warn">Firing</Badge>
}

/** Creates an alert, or changes one: what it watches stays, and so does its target. */
const EditAlert = ({ of, onClose }: { readonly of: Alert | undefined; readonly onClose: () => void }) => {
  const isOfOrg = useOrgId() !== undefined
  const call = useAlertCall()
  const { changes, field, values } = useFields(settings, { threshold: 30, quietMinutes: 60, ...of, target: "slack" })
  const { condition, name, quietMinutes, target, threshold, url } = values
  const [thresholdLabel] = thresholds[condition] ?? []
  const save = async () => {
    const fields = { name, quietMinutes, ...(thresholdLabel && { threshold }) }
    if (of === undefined) await call("create", { ...fields, condition, target, url })
    else await call("update", { ...changes, id: of.alertId })
    toast(of === undefined ? "The alert is created. Test it." : "The alert is saved.")
  }
  return (
    <FormDialog
      title={of === undefined ? "Create an alert" : `Edit ${of.name}`}
      submit={of === undefined ? "Create alert" : "Save"}
      isReady={of === undefined || Object.keys(changes).length > 0}
      onSubmit={save}
      onClose={onClose}
    >
      {field("name")}
      <div class="grid-fields">
        {of === undefined &&
          field("condition", {
            options: settings.condition.options.filter(({ value }) => isOfOrg || !ofOrg.includes(value)),
          })}
        {thresholdLabel !== undefined && field("threshold", { label: thresholdLabel })}
        {field("quietMinutes")}
        {of === undefined && field("target")}
      </div>
      {of === undefined &&
        field("url", {
          hint:
            target === "email"
              ? "smtps://USER:PASSWORD@HOST:PORT?from=ADDRESS&to=ADDRESS. It is not shown again."
              : "Anyone who has it can post there. It is not shown again.",
        })}
    </FormDialog>
  )
}

/** Who is told when something of an org is wrong, or of any. */
export default () => {
  const orgId = useOrgId()
  const may = useMay()
  const call = useAlertCall()
  const list = `${groupOf(orgId)}.list` as "alerts.list"
  const filter = { limit: 100, ...(orgId !== undefined && { orgId }) } as Omit<Args<"alerts.list">, "cursor">
  const pages = usePages(list, filter, ({ alerts }) => alerts, { refetchMillis: 20_000 })
  const mayChange = may(`${groupOf(orgId)}.update`)
  const [open, setOpen] = useState<Alert | "new">()
  const test = async ({ alertId: id }: Alert) => {
    const { error } = (await call("test", { id })) as ResponseBody<"alerts.test">
    toast(error === null ? "The target was reached." : `The target was not reached: ${error}`)
  }
  const actions = (alert: Alert) => (
    <div class="actions">
      <ActionButton isSmall onPress={() => test(alert)}>
        Test
      </ActionButton>
      <Button isSmall aria-label={`Edit ${alert.name}`} onClick={() => setOpen(alert)}>
        Edit
      </Button>
      <ActionButton isSmall onPress={() => call("update", { id: alert.alertId, active: !alert.active })}>
        {alert.active ? "Turn off" : "Turn on"}
      </ActionButton>
      <DeleteButton
        isSmall
        label={`Delete ${alert.name}`}
        title={`Delete ${alert.name}?`}
        submit="Delete alert"
        onConfirm={() => call("remove", { id: alert.alertId })}
      >
        <p>It sends no more messages.</p>
      </DeleteButton>
    </div>
  )
  return (
    <Page
      title="Alerts"
      crumbs={[orgId === undefined ? { to: "/", label: "Overview" } : { to: orgPath(orgId), label: "Home" }]}
      intro={`Who is told when something of ${orgId === undefined ? "any org" : "this org"} is wrong.`}
      actions={
        mayChange && (
          <Button look="primary" icon="plus" onClick={() => setOpen("new")}>
            Create an alert…
          </Button>
        )
      }
    >
      <ListCard
        caption="Alerts"
        {...pages}
        rowKey={({ alertId }) => alertId}
        empty={<Empty title="No alerts yet">Be told in a chat or by e-mail when webhooks or jobs fail.</Empty>}
        columns={[
          { title: "Name", cell: ({ name }) => name },
          { title: "When", align: "words", cell: ({ condition }) => watched.get(condition) },
          {
            title: "Threshold",
            align: "end",
            cell: ({ condition, threshold }) =>
              threshold === null ? "–" : `${numberText(threshold)} ${thresholds[condition]?.[1]}`,
          },
          { title: "Tells", cell: ({ receiver }) => breaks(receiver) },
          { title: "State", align: "fit", cell: State },
          {
            title: "Last told",
            align: "fit",
            isExtra: true,
            cell: ({ lastToldAt }) => <Time at={lastToldAt} isRelative />,
          },
          ...(mayChange ? [{ title: "", align: "fit", cell: actions } as const] : []),
        ]}
      />
      {open && <EditAlert of={open === "new" ? undefined : open} onClose={() => setOpen(undefined)} />}
    </Page>
  )
}
