import { OpenApi } from "effect/http-api"

const parameter = {
  name: "idempotency-key",
  in: "header",
  required: false,
  description:
    "Makes the request safe to repeat: 1 to 255 visible ASCII characters, a new key for each thing to create. For 24 " +
    "hours, the same request with the same key gets the same answer, with `idempotency-replayed: true`. Another " +
    "request with this key is a 422. A request while the first is in progress is a 409.",
  schema: { type: "string", minLength: 1, maxLength: 255, pattern: "^[\\x21-\\x7e]+$" },
  example: "8e03978e-40d5-43dd-bc93-6894a57f9324",
} as const

/** Adds the header `Idempotency-Key` to an operation of the OpenAPI document. */
export const idempotencyKey = OpenApi.annotations({
  transform: (operation) => ({ ...operation, parameters: [...operation["parameters"], parameter] }),
})
