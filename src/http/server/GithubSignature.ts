import { Effect, Layer } from "effect"
import { HttpServerRequest } from "effect/http"
import { Unauthorized } from "../../domain/Errors.ts"
import { ReportSignatures } from "../../domain/keys/LeakedKeys.ts"
import { GithubSignature } from "../api/security.ts"

const refused = new Unauthorized({
  error: "The signature is not valid: Github-Public-Key-Signature must be GitHub's signature of this request body.",
})

/** Checks the signature of the raw body before the body is decoded. */
export const layer = Layer.effect(
  GithubSignature,
  Effect.map(ReportSignatures, ({ verify }) =>
    Effect.fnUntraced(function* (operation) {
      const request = yield* HttpServerRequest.HttpServerRequest
      const { "github-public-key-identifier": keyId, "github-public-key-signature": signature } = request.headers
      if (keyId === undefined || signature === undefined) return yield* refused
      // The body is kept, and decoded afterwards.
      const body = new Uint8Array(yield* Effect.orDie(request.arrayBuffer))
      if (!(yield* verify({ keyId, signature, body }))) return yield* refused
      return yield* operation
    }),
  ),
)
