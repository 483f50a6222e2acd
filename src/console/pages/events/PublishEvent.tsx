import { useState } from "preact/hooks"
import { parseJson, pretty } from "../../components/Code.tsx"
import { FormDialog } from "../../components/Dialog.tsx"
import { Field, Input, TextArea } from "../../components/Form.tsx"
import { useCall, useData } from "../../client/queries.ts"
import { useOrg } from "../../navigation/org.ts"
import { navigate, orgPath } from "../../navigation/router.tsx"

interface PublishEventProps {
  readonly onClose: () => void
  /** The event that the form begins with; its data is a JSON text. */
  readonly like?: { readonly type: string; readonly data: string }
}

const sample = { type: "test.event", data: '{ "hello": "world" }' }

/** Publishes an event of the org's own, as its service does. */
export const PublishEvent = ({ like = sample, onClose }: PublishEventProps) => {
  const orgId = useOrg()
  const call = useCall()
  const [type, setType] = useState(like.type)
  const [text, setText] = useState(() => pretty(like.data))
  const { data } = useData("webhooks.list", {})
  const json = parseJson(text)
  const hasReceivers = data === undefined || data.webhook_endpoints.some(({ active }) => active)
  return (
    <FormDialog
      title="Publish an event"
      submit="Publish"
      isReady={json.error === undefined}
      onClose={onClose}
      onSubmit={async () => {
        const { event_id } = await call(
          "events.publish",
          { type, data: json.value },
          { isOnce: true, said: "The event is published." },
        )
        navigate(orgPath(orgId, `/events/${event_id}`))
      }}
    >
      <Field label="Type" hint="At least two words, joined by dots. job.* and the types of Gatehouse itself are taken.">
        <Input value={type} onInput={setType} required maxLength={128} spellcheck={false} autocomplete="off" />
      </Field>
      <Field label="Data" hint="Any JSON, 256 KiB at most." error={json.error}>
        <TextArea value={text} onInput={setText} spellcheck={false} rows={8} />
      </Field>
      <p class="quiet">
        {hasReceivers
          ? "It is sent to every active endpoint that wants this type. Receivers cannot tell it from a real one."
          : "No endpoint is active: nobody receives it."}
      </p>
    </FormDialog>
  )
}
