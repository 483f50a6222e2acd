import { OpenApi } from "effect/http-api"

const parameter = {
  name: "idempotency-key",
  in: "header",
  required: false,
  description:
    "Makes the request safe to repeat: 1 to 255 visible ASCII characters, a new key for each thing to create. For 24 " +
    "hours, the same request with the same key gets the same answer, with `idempotency-replayed: true`. Another " +
    "request with this key is a 422. A request while the first is in progress is a 409.",
  // Without an example: a tool that sends it twice would get the first answer again.
  schema: { type: "string", minLength: 1, maxLength: 255, pattern: "^[\\x21-\\x7e]+$" },
} as const

/** Adds the header `Idempotency-Key` to an operation of the OpenAPI document. */
export const idempotencyKey = OpenApi.annotations({
  transform: (operation) => ({ ...operation, parameters: [...operation["parameters"], parameter] }),
})
