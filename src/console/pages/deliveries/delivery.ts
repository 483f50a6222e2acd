import type { Answer } from "../../client/Operations.ts"

export type Delivery = Answer<"deliveries.list">["deliveries"][number]
export type DeliveryDetail = Answer<"deliveries.get">
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

const failureTexts: Readonly<Record<string, string>> = {
  timeout: "no answer in time",
  dns: "the host has no address",
  refused_address: "the address is not allowed",
  tls: "TLS failed",
  connection: "no connection",
  bad_response: "no valid answer",
  secret: "the signing secret cannot be read",
}

/** What an attempt ended with, in a few words. */
export const outcomeText = ({ failure, status }: Pick<Attempt, "failure" | "status">) =>
  status === null ? (failureTexts[failure ?? ""] ?? failure ?? "no answer") : `HTTP ${status}`

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
