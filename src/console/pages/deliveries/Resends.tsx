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
type Counted = Pick<ResponseBody<"deliveries.resend">, "count" | "is_all">

interface InBulkProps {
  readonly title: string
  /** What happens, in a sentence or two. */
  readonly intro: string
  /** The verb of the button. */
  readonly submit: string
  /** What is counted: "delivery" and "deliveries". */
  readonly noun: readonly [one: string, many: string]
  /** What becomes of them: "will be sent again". */
  readonly verb: string
  /** Does it, or only counts. */
  readonly act: (isDry: boolean, signal?: AbortSignal) => Promise<Counted>
  /** Names the filter: what is counted again when it changes. */
  readonly of: string
  readonly onClose: () => void
}

/** Does something with all that a filter selects, after showing how many that is. */
export const InBulk = ({ act, intro, noun, of, onClose, submit, title, verb }: InBulkProps) => {
  const [count, setCount] = useState<Counted | Error>()
  useEffect(() => {
    const controller = new AbortController()
    setCount(undefined)
    act(true, controller.signal).then(setCount, (error: Error) => controller.signal.aborted || setCount(error))
    return () => controller.abort()
  }, [of])
  const isCounted = count !== undefined && !(count instanceof Error)
  const isNone = isCounted && count.count === 0 && count.is_all
  return (
    <Dialog title={title} onClose={onClose}>
      <p>{intro} You can cancel the rest while it runs.</p>
      <Form
        submit={submit}
        isReady={count !== undefined && !isNone}
        onCancel={onClose}
        onSubmit={async () => {
          const { count } = await act(false)
          onClose()
          toast(`${counted(count, ...noun)} ${verb.replace("will be", "are")}.`)
        }}
      >
        <p role="status">
          {count === undefined ? (
            <span class="quiet">Counting…</span>
          ) : !isCounted ? (
            <span>They could not be counted: {count.message}</span>
          ) : isNone ? (
            <span>No {noun[0]} matches.</span>
          ) : (
            <strong>
              {count.is_all ? "" : "At least "}
              {counted(count.count, ...noun)} {verb}.
            </strong>
          )}
        </p>
      </Form>
    </Dialog>
  )
}

interface ResendManyProps {
  readonly filter: ResendFilter
  readonly onClose: () => void
}

/** Sends again what a filter selects, after showing how much that is. */
export const ResendMany = ({ filter, onClose }: ResendManyProps) => {
  const call = useCall()
  const orgId = useOrg()
  return (
    <InBulk
      title="Resend what matches"
      intro="Sends again the deliveries of your filter that failed, were canceled or were skipped, at all active endpoints, the oldest first."
      submit="Send again"
      noun={["delivery", "deliveries"]}
      verb="will be sent again"
      of={JSON.stringify(filter)}
      act={(isDry, signal) =>
        isDry
          ? callOperation("deliveries.resend", { filter, dry_run: true }, { orgId, signal })
          : call("deliveries.resend", { filter })
      }
      onClose={onClose}
    />
  )
}

interface RunningBarProps {
  /** What runs: "Resending". */
  readonly label: string
  readonly done: number
  readonly count: number
  /** Ends it; absent: the reader may not. */
  readonly onCancel?: (() => Promise<unknown>) | undefined
}

/** Running work in the background, with its progress and what ends it. */
export const RunningBar = ({ count, done, label, onCancel }: RunningBarProps) => {
  const { error, isRunning, run } = useAction()
  return (
    <div class="running" role="group" aria-label={label}>
      <span>
        {label}: {numberText(done)} of {count >= 10_000 && "at least "}
        {numberText(count)}
      </span>
      <progress class="bar" aria-label={label} value={Math.min(done, count)} max={Math.max(1, count)} />
      {onCancel !== undefined && (
        <Button isSmall disabled={isRunning} onClick={() => run(async () => void (await onCancel()))}>
          Cancel the rest
        </Button>
      )}
      <ErrorBox error={error} />
    </div>
  )
}

/** The resends that run, each with its progress and what ends it. */
export const RunningResends = () => {
  const call = useCall()
  const may = useMay()
  const { data } = useData("deliveries.resends", {}, { refetchMillis: 5_000 })
  const cancel = async (resend_id: string) => {
    await call("deliveries.cancelResend", { resend_id })
    toast("The rest is not sent.")
  }
  return (
    <>
      {data?.resends.map(({ count, resend_id, resent }) => (
        <RunningBar
          key={resend_id}
          label="Resending"
          done={resent}
          count={count}
          onCancel={may("deliveries.cancelResend") ? () => cancel(resend_id) : undefined}
        />
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
