import { Argument, Command, Flag } from "effect/cli"
import { DeliveryState } from "../domain/webhooks/Delivery.ts"
import { call, callPages } from "./call.ts"
import { given, page, time } from "./flags.ts"
import { plain, table } from "./output.ts"

/** Lists deliveries. */
export const deliveries = Command.make(
  "deliveries",
  {
    endpoint: Argument.String("endpoint").pipe(
      Argument.withDescription("The webhook endpoint's id"),
      Argument.optional,
    ),
    job: Flag.String("job").pipe(Flag.withDescription("Only deliveries of this job"), Flag.optional),
    event: Flag.String("event").pipe(Flag.withDescription("Only deliveries of the event with this id"), Flag.optional),
    type: Flag.String("type").pipe(
      Flag.withDescription("Only deliveries of events of this type, such as invoice.paid"),
      Flag.optional,
    ),
    state: Flag.Literals("state", DeliveryState.literals).pipe(
      Flag.withDescription("Only deliveries in this state"),
      Flag.optional,
    ),
    ...page,
  },
  ({ endpoint, event, job, state, type, ...page }) =>
    callPages(
      page,
      (gatehouse, payload) =>
        gatehouse.deliveries.list({
          payload: {
            ...payload,
            ...given({ webhook_endpoint_id: endpoint, job_id: job, event_id: event, event_type: type, state }),
          },
        }),
      ({ deliveries, next_cursor }) => ({
        table: table(
          ["DELIVERY", "ENDPOINT", "JOB", "EVENT", "STATE", "ATTEMPTS", "NEXT ATTEMPT", "CREATED"],
          deliveries.map((one) => [
            one.delivery_id,
            one.webhook_endpoint_id ?? "callback",
            one.job_id,
            one.event,
            one.state,
            one.attempts,
            one.next_attempt_at,
            one.created_at,
          ]),
        ),
        next: next_cursor,
      }),
    ),
).pipe(Command.withDescription("List deliveries, newest first: all, or those of one endpoint"))

/** Resends a delivery. */
export const retry = Command.make(
  "retry",
  { delivery: Argument.String("delivery").pipe(Argument.withDescription("The delivery's id")) },
  ({ delivery }) =>
    call(
      (gatehouse) => gatehouse.deliveries.retry({ payload: { delivery_id: delivery } }),
      () => ({ out: "", note: `The delivery ${delivery} is sent again.` }),
    ),
).pipe(Command.withDescription("Resend a delivery now; its retries start again"))

/** Shows a delivery with its attempts. */
export const delivery = Command.make(
  "delivery",
  { delivery: Argument.String("delivery").pipe(Argument.withDescription("The delivery's id")) },
  ({ delivery }) =>
    call(
      (gatehouse) => gatehouse.deliveries.get({ payload: { delivery_id: delivery } }),
      ({ attempt_log, attempts, event, payload, state }) => ({
        out: table(
          ["ATTEMPT", "STARTED", "MILLISECONDS", "STATUS", "FAILURE", "ANSWER"],
          attempt_log.map((one) => [
            one.number,
            one.started_at,
            one.duration_ms,
            one.status,
            one.failure,
            one.error ?? one.body,
          ]),
        ),
        note: `${event} is ${state} after ${attempts} ${attempts === 1 ? "attempt" : "attempts"}. Body: ${plain(payload)}`,
      }),
    ),
).pipe(Command.withDescription("Show a delivery: its body, and every attempt with the receiver's answer"))

/** Resends what an endpoint missed. */
export const recover = Command.make(
  "recover",
  {
    endpoint: Argument.String("endpoint").pipe(Argument.withDescription("The webhook endpoint's id")),
    since: time("since").pipe(Flag.withDescription("Only events from this time on, for example 2026-11-20T17:00:00Z")),
    until: time("until").pipe(Flag.withDescription("Only events before this time (default: all)"), Flag.optional),
  },
  ({ endpoint, since, until }) =>
    call(
      (gatehouse) =>
        gatehouse.deliveries.recover({ payload: { webhook_endpoint_id: endpoint, since, ...given({ until }) } }),
      ({ recovered }) => ({ out: String(recovered), note: `${recovered} deliveries are sent again.` }),
    ),
).pipe(
  Command.withDescription("Resend the failed, canceled and skipped deliveries of an endpoint since a time"),
  Command.withExamples([
    { command: "gatehouse webhooks recover 01KAHBMKZ3D2X7S5QN8W4V6R9T --since 2026-11-20T17:00:00Z" },
  ]),
)
