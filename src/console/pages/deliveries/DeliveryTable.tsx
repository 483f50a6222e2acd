import type { ResponseBody } from "../../client/Operations.ts"
import { State } from "../../components/Badge.tsx"
import { breaks } from "../../components/Page.tsx"
import { type Column, ListCard, type ListCardProps } from "../../components/Table.tsx"
import { durationText, Time, useNow } from "../../components/Time.tsx"
import { useOrg } from "../../navigation/org.ts"
import { orgPath } from "../../navigation/router.tsx"
import { useEndpoints } from "../webhooks/endpoints.ts"

interface DeliveryTableProps extends Omit<ListCardProps<Delivery>, "caption" | "columns" | "rowKey"> {
  /** Whether all rows are of one endpoint, which the page names. */
  readonly isOfEndpoint?: boolean
}

/**
 * When the next attempt comes. A time that has passed is due: the delivery waits for a free slot, or for an earlier
 * one.
 */
const NextAttempt = ({ at }: { readonly at: string | null }) =>
  at !== null && Date.parse(at) < useNow() ? <span title={at}>due</span> : <Time at={at} isRelative />

/** What the last attempt ended with, and how long it took. */
const LastAttempt = ({ attempts, last_duration_ms, last_failure, last_status }: Delivery) =>
  attempts === 0 ? (
    <span class="quiet">–</span>
  ) : (
    <span>
      {outcomeText({ failure: last_failure, status: last_status })}
      <span class="quiet">
        {last_duration_ms !== null && ` · ${durationText(last_duration_ms)}`}
        {attempts > 1 && ` · ${attempts} attempts`}
      </span>
    </span>
  )

/** Deliveries, the newest first. */
export const DeliveryTable = ({ isOfEndpoint = false, ...table }: DeliveryTableProps) => {
  const orgId = useOrg()
  const { byId, nameOf } = useEndpoints(table.rows?.map(({ webhook_endpoint_id: id }) => id))
  const receiver = ({ webhook_endpoint_id: id }: Delivery) => {
    const url = id === null ? undefined : byId.get(id)?.url
    return (
      <span class={url === undefined ? "quiet" : "clip wide"} title={url}>
        {id === null ? "callback of a job" : breaks(nameOf(id))}
      </span>
    )
  }
  const columns: ReadonlyArray<Column<Delivery>> = [
    { title: "Event", link: ({ delivery_id, event }) => [orgPath(orgId, `/deliveries/${delivery_id}`), event] },
    { title: "State", align: "fit", cell: (row) => <State of={shownState(row)} /> },
    ...(isOfEndpoint ? [] : [{ title: "Endpoint", cell: receiver }]),
    { title: "Last attempt", align: "words", cell: (row) => <LastAttempt {...row} /> },
    {
      title: "Next attempt",
      align: "fit",
      isExtra: true,
      cell: ({ next_attempt_at }) => <NextAttempt at={next_attempt_at} />,
    },
    { title: "Created", align: "fit", cell: ({ created_at }) => <Time at={created_at} isRelative /> },
  ]
  return <ListCard caption="Deliveries" {...table} rowKey={({ delivery_id }) => delivery_id} columns={columns} />
}

export type Delivery = ResponseBody<"deliveries.list">["deliveries"][number]
export type DeliveryDetail = ResponseBody<"deliveries.get">
export type Attempt = DeliveryDetail["attempt_log"][number]

export const deliveryStates = ["pending", "delivered", "failed", "canceled", "skipped"] as const
export type DeliveryState = (typeof deliveryStates)[number]

/** A delivery that failed at least once and is tried again is shown as retried. */
export const shownState = ({ attempts, state }: Pick<Delivery, "attempts" | "state">) =>
  state === "pending" && attempts > 0 ? "retrying" : state

const stateTexts: Record<DeliveryState, string> = {
  pending: "An attempt is in flight or follows.",
  delivered: "The receiver answered with a 2xx status.",
  failed: "No attempt is left. Resend it when the receiver works.",
  canceled: "The endpoint was deleted or deactivated before the delivery.",
  skipped: "The endpoint was inactive when the event came.",
}
export const stateText = ({ state }: Pick<Delivery, "state">) => stateTexts[state]

export const failureTexts: Readonly<Record<string, string>> = {
  timeout: "no response in time",
  dns: "the host has no address",
  refused_address: "the address is not allowed",
  token: "no token",
  tls: "TLS failed",
  connection: "no connection",
  bad_response: "no valid response",
  secret: "a secret of the receiver cannot be read",
}

/** What an attempt ended with, in a few words. */
export const outcomeText = ({ failure, status }: { failure: string | null; status: number | string | null }) =>
  status === null ? (failureTexts[failure ?? ""] ?? failure ?? "no response") : `HTTP ${status}`

export const hasSucceeded = ({ failure, status }: Pick<Attempt, "failure" | "status">) =>
  failure === null && status !== null && status >= 200 && status < 300

const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`

/** The request of a delivery as a command. Without the signatures, because nobody but the service has the secret. */
export const curlOf = ({ delivery_id, event, payload }: DeliveryDetail, url: string) =>
  [
    `curl -i ${quoted(url)}`,
    ...["content-type: application/json", `x-event-type: ${event}`, `webhook-id: ${delivery_id}`].map(
      (header) => `-H ${quoted(header)}`,
    ),
    `--data-raw ${quoted(payload)}`,
  ].join(" \\\n  ")
