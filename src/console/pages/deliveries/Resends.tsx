import { useEffect, useState } from "preact/hooks"
import { call as callOperation } from "../../client/call.ts"
import type { Args, ResponseBody } from "../../client/Operations.ts"
import { useCall, useData } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { Button } from "../../components/Button.tsx"
import { Dialog } from "../../components/Dialog.tsx"
import { ErrorBox } from "../../components/ErrorBox.tsx"
import { Form, useAction } from "../../components/Form.tsx"
import { Card } from "../../components/Page.tsx"
import { toast } from "../../components/Toasts.tsx"
import { counted, numberText } from "../../components/numbers.ts"
import { useOrg } from "../../navigation/org.ts"
import { Link, orgPath } from "../../navigation/router.tsx"
import { outcomeText } from "./DeliveryTable.tsx"

export type ResendFilter = Args<"deliveries.resend">["filter"]
type Counted = ResponseBody<"deliveries.resend">

/** What a resend of a filter would send; undefined while it is counted. */
const useCount = (filter: ResendFilter) => {
  const orgId = useOrg()
  const [count, setCount] = useState<Counted | Error>()
  useEffect(() => {
    const controller = new AbortController()
    setCount(undefined)
    callOperation("deliveries.resend", { filter, dry_run: true }, { orgId, signal: controller.signal }).then(
      setCount,
      (error: Error) => controller.signal.aborted || setCount(error),
    )
    return () => controller.abort()
  }, [JSON.stringify(filter)])
  return count
}

const CountText = ({ count }: { readonly count: Counted | Error | undefined }) => {
  if (count === undefined) return <span class="quiet">Counting…</span>
  if (count instanceof Error) return <span>They could not be counted: {count.message}</span>
  if (count.count === 0 && count.is_all) return <span>No unsuccessful delivery of an active endpoint matches.</span>
  return (
    <strong>
      {count.is_all ? "" : "At least "}
      {counted(count.count, "delivery", "deliveries")} will be sent again.
    </strong>
  )
}

interface ResendManyProps {
  readonly filter: ResendFilter
  readonly onClose: () => void
}

/** Sends again what a filter selects, after showing how much that is. */
export const ResendMany = ({ filter, onClose }: ResendManyProps) => {
  const call = useCall()
  const count = useCount(filter)
  const isNone = count !== undefined && !(count instanceof Error) && count.count === 0 && count.is_all
  return (
    <Dialog title="Resend what matches" onClose={onClose}>
      <p>
        Sends again the deliveries of your filter that failed, were canceled or were skipped, at all active endpoints,
        the oldest first. You can cancel the rest while it runs.
      </p>
      <Form
        submit="Send again"
        isReady={count !== undefined && !isNone}
        onCancel={onClose}
        onSubmit={async () => {
          const { count } = await call("deliveries.resend", { filter })
          onClose()
          toast(`${numberText(count)} deliveries are sent again.`)
        }}
      >
        <p role="status">
          <CountText count={count} />
        </p>
      </Form>
    </Dialog>
  )
}

type Resend = ResponseBody<"deliveries.resends">["resends"][number]

const Running = ({ resend }: { readonly resend: Resend }) => {
  const call = useCall()
  const may = useMay()
  const { error, isRunning, run } = useAction()
  const { count, resend_id, resent } = resend
  return (
    <div class="running" role="group" aria-label="Running resend">
      <span>
        Resending: {numberText(resent)} of {count >= 10_000 && "at least "}
        {numberText(count)}
      </span>
      <progress class="bar" aria-label="Resent" value={Math.min(resent, count)} max={Math.max(1, count)} />
      {may("deliveries.cancelResend") && (
        <Button
          isSmall
          disabled={isRunning}
          onClick={() =>
            run(async () => {
              await call("deliveries.cancelResend", { resend_id })
              toast("The rest is not sent.")
            })
          }
        >
          Cancel the rest
        </Button>
      )}
      <ErrorBox error={error} />
    </div>
  )
}

/** The resends that run, each with its progress and what ends it. */
export const RunningResends = () => {
  const { data } = useData("deliveries.resends", {}, { refetchMillis: 5_000 })
  return (
    <>
      {data?.resends.map((resend) => (
        <Running key={resend.resend_id} resend={resend} />
      ))}
    </>
  )
}

interface CausesProps {
  readonly endpoint?: string
  readonly since?: string
}

/** The failures of an org or of an endpoint, grouped by what the attempts ended with. */
export const Causes = ({ endpoint, since }: CausesProps) => {
  const orgId = useOrg()
  const filter = {
    ...(endpoint !== undefined && { webhook_endpoint_id: endpoint }),
    ...(since !== undefined && { since }),
  }
  const { data } = useData("deliveries.causes", filter, { isLive: false, refetchMillis: 15_000, keepsPrevious: true })
  if (data === undefined || data.causes.length === 0) return null
  const to = (cause: string) => {
    const query = new URLSearchParams({ cause, ...(endpoint && { endpoint }), ...(since && { since }) })
    return orgPath(orgId, `/deliveries?${query}`)
  }
  return (
    <Card title="What fails, and why" isPadded={false}>
      <ul class="causes">
        {data.causes.map((cause) => (
          <li key={causeOf(cause)}>
            <Link class="main" to={to(causeOf(cause))}>
              {outcomeText(cause)}
            </Link>
            <span class="number">× {numberText(cause.deliveries)}</span>
            <span class="quiet">{endpoint === undefined && counted(cause.endpoints, "endpoint")}</span>
            <Link class="quiet truncate" to={orgPath(orgId, `/deliveries/${cause.latest.delivery_id}`)}>
              {cause.latest.text?.trim() || "Show the newest"}
            </Link>
          </li>
        ))}
      </ul>
    </Card>
  )
}

/** A cause as the address of a page has it: a status, or a kind of failure. */
const causeOf = ({ failure, status }: { readonly status: number | null; readonly failure: string | null }) =>
  failure ?? String(status)

/** A cause as people read it. */
export const causeText = (cause: string) =>
  outcomeText(/^\d/.test(cause) ? { status: cause, failure: null } : { status: null, failure: cause })

/** The fields that filter by a cause. */
export const filterOfCause = (cause: string | undefined): Pick<ResendFilter, "status" | "failure"> => {
  if (cause === undefined) return {}
  return /^\d+$/.test(cause) ? { status: Number(cause) } : { failure: cause as NonNullable<ResendFilter["failure"]> }
}
