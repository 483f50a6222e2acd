import { Button } from "../../components/Button.tsx"
import { Confirm } from "../../components/Dialog.tsx"
import { ErrorBox } from "../../components/ErrorBox.tsx"
import { useAction } from "../../components/Form.tsx"
import { numberText } from "../../components/numbers.ts"
import { toast } from "../../components/Toasts.tsx"
import { useCall } from "../../client/queries.ts"
import { useOrg } from "../../navigation/org.ts"
import { navigate, orgPath } from "../../navigation/router.tsx"
import type { EndpointDetail } from "./endpoints.ts"

/** Brings an inactive endpoint back, and offers to resend what it missed. */
export const Activate = ({ endpoint, onDone }: { readonly endpoint: EndpointDetail; readonly onDone: () => void }) => {
  const call = useCall()
  const { error, isRunning, run } = useAction()
  const activate = () =>
    run(async () => {
      await call("webhooks.update", { id: endpoint.webhook_endpoint_id, active: true })
      toast("The endpoint is active again.")
      onDone()
    })
  return (
    <div class="stack tight">
      <div>
        <Button icon="play" onClick={activate} disabled={isRunning}>
          Activate again
        </Button>
      </div>
      <ErrorBox error={error} />
    </div>
  )
}

export const Deactivate = ({ id, onClose }: { readonly id: string; readonly onClose: () => void }) => {
  const call = useCall()
  return (
    <Confirm
      title="Deactivate this endpoint?"
      action="Deactivate"
      onClose={onClose}
      onConfirm={() => call("webhooks.update", { id, active: false })}
    >
      <p>It receives nothing from now on, and its pending deliveries are canceled.</p>
      <p>New events are kept as skipped. When you activate it again, Recover sends what it missed.</p>
    </Confirm>
  )
}

export const DeleteEndpoint = ({
  endpoint,
  onClose,
}: {
  readonly endpoint: EndpointDetail
  readonly onClose: () => void
}) => {
  const call = useCall()
  const orgId = useOrg()
  const { pending } = endpoint.deliveries
  return (
    <Confirm
      title="Delete this endpoint?"
      action="Delete endpoint"
      isDangerous
      onClose={onClose}
      onConfirm={async () => {
        await call("webhooks.delete", { id: endpoint.webhook_endpoint_id })
        toast("The endpoint is deleted.")
        navigate(orgPath(orgId, "/endpoints"))
      }}
    >
      <p class="anywhere">
        <code>{endpoint.url}</code> receives nothing from now on.
        {pending > 0 && ` ${numberText(pending)} pending deliveries are canceled.`}
      </p>
      <p>Finished deliveries stay readable. This cannot be undone.</p>
    </Confirm>
  )
}
