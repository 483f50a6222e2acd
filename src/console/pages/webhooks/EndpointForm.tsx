import { useState } from "preact/hooks"
import { Dialog } from "../../components/Dialog.tsx"
import { Form } from "../../components/Form.tsx"
import { toast } from "../../components/Toasts.tsx"
import { useCall } from "../../client/queries.ts"
import type { Args } from "../../client/Operations.ts"
import { EndpointFields } from "./EndpointFields.tsx"
import { changesOf, emptyFields, type Fields, fieldsOf } from "./endpointValues.ts"
import { type EndpointDetail, newSecret } from "./endpoints.ts"

interface CreateProps {
  readonly onClose: () => void
  readonly onCreated: (id: string) => void
}

export const CreateEndpoint = ({ onClose, onCreated }: CreateProps) => {
  const [fields, setFields] = useState<Fields>(() => ({ ...emptyFields, signing_secret: newSecret() }))
  const [idempotencyKey] = useState(() => crypto.randomUUID())
  const call = useCall()
  return (
    <Dialog title="Add an endpoint" isWide onClose={onClose}>
      <Form
        submit="Add endpoint"
        onCancel={onClose}
        onSubmit={async () => {
          const body = { ...changesOf(fields, undefined), url: fields.url, signing_secret: fields.signing_secret }
          const { webhook_endpoint_id } = await call("webhooks.create", body as Args<"webhooks.create">, idempotencyKey)
          onClose()
          onCreated(webhook_endpoint_id)
        }}
      >
        <EndpointFields fields={fields} set={(change) => setFields((now) => ({ ...now, ...change }))} />
      </Form>
    </Dialog>
  )
}

export const EditEndpoint = ({
  endpoint,
  onClose,
}: {
  readonly endpoint: EndpointDetail
  readonly onClose: () => void
}) => {
  const [fields, setFields] = useState<Fields>(() => fieldsOf(endpoint))
  const call = useCall()
  const changes = changesOf(fields, endpoint)
  return (
    <Dialog title="Edit the endpoint" isWide onClose={onClose}>
      <Form
        submit="Save"
        isReady={Object.keys(changes).length > 0}
        onCancel={onClose}
        onSubmit={async () => {
          await call("webhooks.update", { id: endpoint.webhook_endpoint_id, ...changes } as Args<"webhooks.update">)
          onClose()
          toast("The endpoint is changed. Its next attempt uses the new settings.")
        }}
      >
        <EndpointFields
          fields={fields}
          set={(change) => setFields((now) => ({ ...now, ...change }))}
          stored={endpoint}
        />
      </Form>
    </Dialog>
  )
}
