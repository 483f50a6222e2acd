import { OpenApi } from "effect/http-api"

const parameter = {
  name: "idempotency-key",
  in: "header",
  required: false,
  description:
    "Makes repeating the request safe: 1 to 255 visible ASCII characters, a new one for each thing to create. The same " +
    "request under the same key gets the same answer for 24 hours, marked `idempotency-replayed: true`; another " +
    "request is a 422, and one that comes while the first is under way a 409.",
  schema: { type: "string", minLength: 1, maxLength: 255, pattern: "^[\\x21-\\x7e]+$" },
  example: "8e03978e-40d5-43dd-bc93-6894a57f9324",
} as const

/** For the OpenAPI document: the operation takes an `Idempotency-Key`. */
export const idempotencyKey = OpenApi.annotations({
  transform: (operation) => ({ ...operation, parameters: [...operation["parameters"], parameter] }),
})
