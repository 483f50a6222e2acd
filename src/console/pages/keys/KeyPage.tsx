import { useState } from "preact/hooks"
import type { Args } from "../../client/Operations.ts"
import { useCall, useData } from "../../client/queries.ts"
import { useMay, useSession } from "../../client/session.tsx"
import { State } from "../../components/Badge.tsx"
import { Button, Copyable } from "../../components/Button.tsx"
import { byDay, Chart, type Series, unitText, useBeginning } from "../../components/Chart.tsx"
import { AskButton, DeleteButton, Dialog, FormDialog } from "../../components/Dialog.tsx"
import { ErrorBox, Notice } from "../../components/ErrorBox.tsx"
import { ActionButton, Field, Form, Select } from "../../components/Form.tsx"
import { Card, Facts, Page } from "../../components/Page.tsx"
import { Loaded } from "../../components/Table.tsx"
import { Segments } from "../../components/Tabs.tsx"
import { durationText, Time, useNow } from "../../components/Time.tsx"
import { numberText } from "../../components/numbers.ts"
import { Link, navigate, orgPath, useChoice, useParam } from "../../navigation/router.tsx"
import { useChanges } from "../audit/useChanges.tsx"
import { Codes, isEnded, type Key, keyStateOf, rateLimitText, ShownOnce, useKeyForm } from "./keySettings.tsx"

interface KeyDialogProps {
  readonly orgId: string
  readonly of: Key
  readonly onClose: () => void
}

const EditKey = ({ of: key, onClose, orgId }: KeyDialogProps) => {
  const call = useCall()
  const { changes, controls, isValid, nameField } = useKeyForm(key)
  const said = "The key is saved. Every replica knows it."
  const save = () => call("keys.update", { orgId, id: key.id, ...changes } as Args<"keys.update">, { said })
  const isReady = Object.keys(changes).length > 0 && isValid
  return (
    <FormDialog title={`Edit ${key.name}`} submit="Save" isReady={isReady} onSubmit={save} onClose={onClose}>
      {nameField}
      {useSession().me.keys === null && controls}
    </FormDialog>
  )
}

const overlaps = [
  { value: "0", label: "No overlap: the old key ends at once" },
  { value: "3600", label: "1 hour" },
  { value: "86400", label: "1 day" },
  { value: "604800", label: "7 days" },
]

const RotateKey = ({ of: key, onClose, orgId }: KeyDialogProps) => {
  const call = useCall()
  const [overlap, setOverlap] = useState("86400")
  const [created, setCreated] = useState<{ readonly key: string; readonly id: string }>()
  const rotate = async () => {
    const args = { orgId, id: key.id, overlapSeconds: Number(overlap) }
    setCreated(await call("keys.rotate", args, { isOnce: true }))
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

const dialogs = { edit: EditKey, rotate: RotateKey }

/** What can be done with a key. */
const useActions = (orgId: string, key: Key | undefined) => {
  const may = useMay()
  const call = useCall()
  const callAndLeave = useCall(() => navigate(orgPath(orgId, "/keys")))
  const now = useNow()
  const [open, setOpen] = useState<keyof typeof dialogs>()
  const isHolder = useSession().me.keys !== null
  if (key === undefined || !may("keys.update")) return {}
  const set = (enabled: boolean, said: string) => call("keys.update", { orgId, id: key.id, enabled }, { said })
  const enable = () => set(true, "The key is enabled.")
  const disable = () => set(false, "The key is disabled. Every replica refuses it.")
  const remove = () => callAndLeave("keys.remove", { orgId, id: key.id }, { said: `${key.name} is deleted.` })
  const Open = open && dialogs[open]
  const buttons = (
    <>
      <Button onClick={() => setOpen("edit")}>Edit</Button>
      {!isEnded(key, now) && key.replacedBy === null && (
        <Button icon="repeat" onClick={() => setOpen("rotate")}>
          Rotate
        </Button>
      )}
      {key.leakedAt === null &&
        !isHolder &&
        (key.enabled ? (
          <AskButton
            {...{ icon: "pause", text: "Disable", submit: "Disable key", isDangerous: true }}
            title={`Disable ${key.name}?`}
            onConfirm={disable}
          >
            <p>Every replica refuses the key at once, until it is enabled again.</p>
          </AskButton>
        ) : (
          <ActionButton icon="play" onPress={enable}>
            Enable
          </ActionButton>
        ))}
      <DeleteButton text="Delete" submit="Delete key" title={`Delete ${key.name}`} typed={key.name} onConfirm={remove}>
        <p>
          The key is refused at once. This cannot be undone{isHolder ? "." : "; to stop it for a while, disable it."}
        </p>
      </DeleteButton>
    </>
  )
  return { buttons, dialog: Open && <Open orgId={orgId} of={key} onClose={() => setOpen(undefined)} /> }
}

export default () => {
  const orgId = useParam("orgId")
  const id = useParam("keyId")
  const now = useNow()
  const response = useData("keys.get", { orgId, id })
  const found = response.data
  const { buttons, dialog } = useActions(orgId, found)
  return (
    <Page
      title={found?.name ?? "API key"}
      crumbs={[{ to: orgPath(orgId, "/keys"), label: "API keys" }]}
      state={found && <State of={keyStateOf(found, now)} />}
      {...(found && { intro: <code>{found.prefix}…</code> })}
      actions={buttons}
    >
      <Loaded of={response} lines={5}>
        {(found) => (
          <>
            <KeyNotices of={found} />
            <KeyUsage orgId={orgId} id={id} />
            <Card title="Settings">
              <KeyFacts of={found} />
            </Card>
          </>
        )}
      </Loaded>
      {dialog}
    </Page>
  )
}

const none = <span class="quiet">none</span>

const Credits = ({ credits }: Key) => {
  if (credits === null) return <span class="quiet">Unlimited</span>
  const { refill, remaining } = credits
  return (
    <span class="stack tight">
      <span>
        {numberText(remaining)} left
        {refill !== undefined && `, refilled to ${numberText(refill.amount)} each ${refill.every} at 00:00 UTC`}
      </span>
      {refill !== undefined && (
        <progress
          class={`bar ${remaining === 0 ? "bad" : remaining < refill.amount * 0.1 ? "warn" : ""}`}
          aria-label="Credits left"
          value={Math.min(remaining, refill.amount)}
          max={Math.max(1, refill.amount)}
        />
      )}
    </span>
  )
}

/** How long the key is still valid, second by second. */
const Countdown = ({ to }: { readonly to: string }) => {
  const left = Date.parse(to) - useNow(1_000)
  return <strong class="number">This key ends in {durationText(Math.max(0, Math.floor(left / 1_000) * 1_000))}.</strong>
}

/** What a reader has to know of a key first. */
const KeyNotices = ({ of: key }: { readonly of: Key }) => {
  const state = keyStateOf(key, useNow(1_000))
  if (state === "leaked") {
    return (
      <Notice tone="bad">
        <strong>
          This key was found in public <Time at={key.leakedAt} isRelative />. It is refused for good.
        </strong>
        <span>Create another key for those who use it, and look below for uses that were not theirs.</span>
      </Notice>
    )
  }
  if (state === "expiring") {
    return (
      <Notice tone="warn" icon="clock">
        <Countdown to={key.expiresAt!} />
        <span>
          At <Time at={key.expiresAt} />. Rotated keys end after their overlap: give everyone the new key before that.
        </span>
      </Notice>
    )
  }
  if (state === "expired") {
    return (
      <Notice tone="bad">
        <strong>
          This key has ended <Time at={key.expiresAt} isRelative />. It is refused.
        </strong>
      </Notice>
    )
  }
  return state === "disabled" ? (
    <Notice tone="calm" icon="pause">
      <strong>This key is disabled. It is refused until somebody enables it.</strong>
    </Notice>
  ) : null
}

/** The project of a key, by its name once that is known. */
const ProjectLink = ({ projectId }: { readonly projectId: string }) => {
  const orgId = useParam("orgId")
  const { data } = useData("projects.get", { projectId })
  return <Link to={orgPath(orgId, `/projects/${projectId}`)}>{data?.name ?? projectId}</Link>
}

const KeyFacts = ({ of: key }: { readonly of: Key }) => {
  const orgId = useParam("orgId")
  const changes = useChanges(key.id)
  const isHolder = useSession().me.keys !== null
  return (
    <Facts
      of={{
        Id: <Copyable text={key.id} label="Copy the id" />,
        For: isHolder ? undefined : key.projectId === null ? (
          "the whole org"
        ) : (
          <ProjectLink projectId={key.projectId} />
        ),
        ...(key.replacedBy !== null && {
          "Replaced by": <Link to={orgPath(orgId, `/keys/${key.replacedBy}`)}>its replacement</Link>,
        }),
        Created: <Time at={key.createdAt} />,
        Imported: key.imported ? "yes: it was made elsewhere, and is known by its hash" : undefined,
        "Last used": <Time at={key.lastUsedAt} isRelative none="never" />,
        "Ends at": <Time at={key.expiresAt} none="never" />,
        "Rate limit": rateLimitText(key) ?? <span class="quiet">Unlimited</span>,
        Credits: <Credits {...key} />,
        Permissions: <Codes of={key.permissions} />,
        Roles: <Codes of={key.roles} />,
        "Allowed networks": key.allowedIps === null ? "all" : <Codes of={key.allowedIps} />,
        "External id": isHolder ? undefined : (key.externalId ?? none),
        "Audit log": changes,
        Metadata: isHolder ? undefined : key.metadata === null ? (
          none
        ) : (
          <pre>{JSON.stringify(key.metadata, undefined, 2)}</pre>
        ),
      }}
    />
  )
}

const ranges = [
  { value: "hour", label: "Last 24 hours" },
  { value: "day", label: "Last 30 days" },
] as const

const validations = [
  { name: "valid", label: "Valid", tone: "good" },
  { name: "limited", label: "Limited", tone: "warn" },
  { name: "forbidden", label: "Forbidden", tone: "bad" },
] as const satisfies ReadonlyArray<Series>
const costs = [{ name: "cost", label: "Cost", tone: "accent" }] as const satisfies ReadonlyArray<Series>

/** How often a key was validated, and what it cost. */
const KeyUsage = ({ id, orgId }: { readonly orgId: string; readonly id: string }) => {
  const [every, setEvery] = useChoice("every", ranges, "hour")
  const from = useBeginning(every)
  const { data, error, refetch } = useData(
    "keys.usage",
    { orgId, id, every: "hour", from },
    { refetchMillis: 10_000, keepsPrevious: true },
  )
  // The days are the reader's, so they are added up from hours.
  const usage = every === "day" ? byDay(data?.usage) : data?.usage
  const unit = unitText(every)
  return (
    <>
      <ErrorBox error={error} onRetry={refetch} />
      <div class="grid-2">
        <Card
          title={`Validations by ${unit}`}
          actions={<Segments label="Range" value={every} options={ranges} onChange={setEvery} />}
        >
          <Chart title="Validations" every={every} series={validations} intervals={usage} />
        </Card>
        <Card title={`Cost by ${unit}`}>
          <Chart title="Cost of valid validations" every={every} series={costs} intervals={usage} />
        </Card>
      </div>
    </>
  )
}
