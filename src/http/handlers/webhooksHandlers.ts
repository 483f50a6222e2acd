import { Effect, Layer } from "effect"
import { group } from "./group.ts"
import { counted } from "../../domain/counted.ts"
import { DeliveryLog } from "../../domain/webhooks/DeliveryLog.ts"
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

const deliveries = group(Api, "deliveries", (handlers) =>
  Effect.map(DeliveryLog, (log) =>
    handlers.handleAll({
      list: ({ payload }) => log.list(payload),
      get: ({ payload }) => log.get(payload.delivery_id),
      retry: ({ payload }) => Effect.as(log.retry(payload.delivery_id), done("The delivery is sent again.")),
      recover: ({ payload }) =>
        Effect.map(log.recover(payload), ({ count, isAll }) => ({
          ...done(
            isAll
              ? "The missed deliveries are sent again."
              : `The missed deliveries are sent again. There are at least ${count} of them.`,
          ),
          recovered: count,
        })),
      resend: ({ payload }) =>
        Effect.map(log.resend(payload), ({ count, isAll, resendId }) => {
          const verb = resendId === null ? "would be" : count === 1 ? "is" : "are"
          const many = `${isAll ? "" : "At least "}${counted(count, "delivery", "deliveries")}`
          return { ...done(`${many} ${verb} sent again.`), count, is_all: isAll, resend_id: resendId }
        }),
      resends: () => log.resends,
      cancelResend: ({ payload }) => Effect.as(log.cancelResend(payload.resend_id), done("The rest is not sent.")),
      causes: ({ payload }) => log.causes(payload),
    }),
  ),
)

export const layer = Layer.merge(endpoints, deliveries)
