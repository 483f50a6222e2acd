import { Argument, Command, Flag } from "effect/cli"
import { DeliveryState } from "../domain/webhooks/Delivery.ts"
import { call } from "./call.ts"
import { given, page } from "./flags.ts"
import { more, table } from "./output.ts"

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
  ({ cursor, endpoint, event, job, limit, state, type }) =>
    call(
      (gatehouse) =>
        gatehouse.deliveries.list({
          payload: {
            limit,
            ...given({
              webhook_endpoint_id: endpoint,
              job_id: job,
              event_id: event,
              event_type: type,
              state,
              cursor,
            }),
          },
        }),
      ({ deliveries, next_cursor }) => ({
        out: table(
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
        note: more(next_cursor),
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
