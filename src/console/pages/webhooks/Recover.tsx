import { useEffect, useState } from "preact/hooks"
import { ago, DateTime, LastTimes } from "../../components/Time.tsx"
import { Dialog } from "../../components/Dialog.tsx"
import { Form } from "../../components/Form.tsx"
import { counted, numberText } from "../../components/numbers.ts"
import { toast } from "../../components/Toasts.tsx"
import { call as callOperation } from "../../client/call.ts"
import type { ResponseBody, Args } from "../../client/Operations.ts"
import { useCall } from "../../client/queries.ts"
import { useOrg } from "../../navigation/org.ts"
import type { EndpointDetail } from "./endpoints.ts"

const hour = 3_600_000
const recoverable = ["failed", "canceled", "skipped"] as const
/** Limit of the deliveries that are counted for each state: ten pages. */
const maxPages = 10
const pageSize = 100

interface Range {
  readonly since: string
  readonly until: string | undefined
}

interface Count {
  readonly count: number
  /** Whether there are more than were counted. */
  readonly isMore: boolean
}

/** Counts the deliveries of a state that a recovery would send again. */
const countState = async (
  orgId: string,
  id: string,
  { since, until }: Range,
  state: (typeof recoverable)[number],
  signal: AbortSignal,
): Promise<Count> => {
  const filters = { webhook_endpoint_id: id, state, since, limit: pageSize, ...(until === undefined ? {} : { until }) }
  let count = 0
  let cursor: string | null = null
  for (let page = 0; page < maxPages; page++) {
    const args: Args<"deliveries.list"> = { ...filters, ...(cursor === null ? {} : { cursor }) }
    const response: ResponseBody<"deliveries.list"> = await callOperation("deliveries.list", args, { orgId, signal })
    count += response.deliveries.length
    cursor = response.next_cursor
    if (cursor === null) break
  }
  return { count, isMore: cursor !== null }
}

/** What a recovery of a range would send again; undefined while it is counted. */
const useCount = (id: string, { since, until }: Range) => {
  const orgId = useOrg()
  const [count, setCount] = useState<Count | Error>()
  useEffect(() => {
    const controller = new AbortController()
    setCount(undefined)
    Promise.all(recoverable.map((state) => countState(orgId, id, { since, until }, state, controller.signal))).then(
      (counts) =>
        setCount({
          count: counts.reduce((sum, { count }) => sum + count, 0),
          isMore: counts.some(({ isMore }) => isMore),
        }),
      (error: Error) => controller.signal.aborted || setCount(error),
    )
    return () => controller.abort()
  }, [since, until])
  return count
}

const CountText = ({ count }: { readonly count: Count | Error | undefined }) => {
  if (count === undefined) return <span class="quiet">Counting what was missed…</span>
  if (count instanceof Error) return <span>The deliveries could not be counted: {count.message}</span>
  if (count.count === 0) return <span>Nothing was missed in this time.</span>
  return (
    <strong>
      {count.isMore ? "More than " : ""}
      {counted(count.count, "delivery", "deliveries")} will be sent again.
    </strong>
  )
}

/** How long before `failing_since` a recovery begins: a delivery is created before its first attempt. */
const marginMillis = 60_000

/** Since when an endpoint has missed deliveries: since it fails, or since it is inactive. */
const beginningOf = ({ deactivated_at, failing_since }: EndpointDetail) => {
  const since = failing_since ?? deactivated_at
  return since === null ? ago(24 * hour) : new Date(Date.parse(since) - marginMillis).toISOString()
}

interface RecoverProps {
  readonly endpoint: EndpointDetail
  readonly onClose: () => void
  /** When the reader wants to begin; undefined: when the endpoint began to miss deliveries. */
  readonly since?: string | undefined
}

/** Sends again what an endpoint missed, after showing how much that is. */
export const Recover = ({ endpoint, onClose, since }: RecoverProps) => {
  const [range, setRange] = useState<Range>({ since: since ?? beginningOf(endpoint), until: undefined })
  const call = useCall()
  const { webhook_endpoint_id } = endpoint
  const count = useCount(webhook_endpoint_id, range)
  const set = (change: Partial<Range>) => setRange((now) => ({ ...now, ...change }))
  return (
    <Dialog title="Recover what the endpoint missed" onClose={onClose}>
      <p>Sends again all deliveries that failed, were canceled, or were skipped while the endpoint was inactive.</p>
      <Form
        submit="Send again"
        isReady={count !== undefined && !isNone(count)}
        onCancel={onClose}
        onSubmit={async () => {
          const more = range.until === undefined ? {} : { until: range.until }
          const { recovered } = await call("deliveries.recover", { webhook_endpoint_id, since: range.since, ...more })
          onClose()
          toast(`${numberText(recovered)} deliveries are sent again.`)
        }}
      >
        <LastTimes onChoose={(since) => set({ since, until: undefined })} />
        <div class="grid-3">
          <DateTime label="Since" value={range.since} isRequired onChange={(since) => since && set({ since })} />
          <DateTime label="Until" value={range.until} onChange={(until) => set({ until })} />
        </div>
        <p role="status">
          <CountText count={count} />
        </p>
      </Form>
    </Dialog>
  )
}

const isNone = (count: Count | Error) => !(count instanceof Error) && count.count === 0
