import { Effect, Layer } from "effect"
import { group } from "./group.ts"
import { counted } from "../../domain/plural.ts"
import { DeliveryLog, type StartedResend } from "../../domain/webhooks/DeliveryLog.ts"
import { SigningKeys } from "../../domain/webhooks/Signatures.ts"
import { WebhookEndpoints } from "../../domain/webhooks/WebhookEndpoints.ts"
import { Api } from "../api/Api.ts"
import { done } from "../api/responses.ts"

const endpoints = group(Api, "webhooks", (handlers) =>
  Effect.zipWith(WebhookEndpoints, SigningKeys, (endpoints, keys) =>
    handlers.handleAll({
      create: ({ payload }) =>
        Effect.map(endpoints.create(payload), (made) => ({ ...done("The webhook endpoint is created."), ...made })),
      list: ({ payload }) => endpoints.list(payload),
      get: ({ payload: { external_id, id } }) =>
        endpoints.get(id === undefined ? { externalId: external_id! } : { id }),
      update: ({ payload }) =>
        Effect.map(endpoints.update(payload), (changed) => ({
          ...done("The webhook endpoint is changed."),
          ...changed,
        })),
      delete: ({ payload }) => Effect.as(endpoints.remove(payload.id), done("The webhook endpoint is deleted.")),
      test: ({ payload }) => Effect.map(endpoints.test(payload), (said) => ({ success: true as const, ...said })),
      publicKey: () => Effect.map(keys.list, (public_keys) => ({ public_keys })),
      rotatePublicKey: () => Effect.map(keys.rotate, (public_keys) => ({ public_keys })),
    }),
  ),
)

/** What a resend does that was counted, and started unless it has no id. */
const sentenceOf = ({ count, isAll, resendId }: StartedResend) => {
  if (count === 0) return isAll ? "Nothing is to be sent again." : "How many are to be sent again is not known yet."
  const many = `${isAll ? "" : "At least "}${counted(count, "delivery", "deliveries")}`
  return `${many} ${resendId === null ? "would be" : count === 1 ? "is being" : "are being"} sent again.`
}

const deliveries = group(Api, "deliveries", (handlers) =>
  Effect.map(DeliveryLog, (log) =>
    handlers.handleAll({
      list: ({ payload }) => log.list(payload),
      get: ({ payload }) => log.get(payload.delivery_id),
      retry: ({ payload }) => Effect.as(log.retry(payload.delivery_id), done("The delivery is sent again.")),
      recover: ({ payload }) =>
        Effect.map(log.recover(payload), (started) => ({ ...done(sentenceOf(started)), recovered: started.count })),
      resend: ({ payload }) =>
        Effect.map(log.resend(payload), (started) => ({
          ...done(sentenceOf(started)),
          count: started.count,
          is_all: started.isAll,
          resend_id: started.resendId,
        })),
      resends: () => log.resends,
      cancelResend: ({ payload }) => Effect.as(log.cancelResend(payload.resend_id), done("The rest is not sent.")),
      causes: ({ payload }) => log.causes(payload),
    }),
  ),
)

export const layer = Layer.merge(endpoints, deliveries)
