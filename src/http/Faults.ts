import type { Types } from "effect"
import { Cause, Effect, Schema } from "effect"
import { SecureRandom } from "effect/crypto"
import { HttpRouter, HttpServerError, HttpServerRequest, HttpServerResponse } from "effect/http"
import {
  InternalError,
  InvalidRequest,
  NotFound,
  PayloadTooLarge,
  Unavailable,
  UnsupportedMediaType,
} from "../domain/Errors.ts"

const reply = <S extends Schema.Codec<unknown, unknown>>(status: number, schema: S) => {
  const encode = Schema.encodeSync(schema)
  return (error: S["Type"]) => HttpServerResponse.jsonUnsafe(encode(error), { status })
}
const invalid = reply(400, InvalidRequest)(new InvalidRequest({ error: "The request could not be read." }))
const unknownPath = reply(404, NotFound)(new NotFound({ error: "There is nothing at this path." }))
const tooLarge = reply(413, PayloadTooLarge)(new PayloadTooLarge({ error: "The request body is larger than 1 MiB." }))
const notJson = reply(
  415,
  UnsupportedMediaType,
)(new UnsupportedMediaType({ error: "The request body must be JSON: Content-Type: application/json." }))
const fault = reply(
  500,
  InternalError,
)(new InternalError({ error: "Something went wrong here; the log has it under this answer's x-request-id." }))
const closing = reply(503, Unavailable)(new Unavailable({ error: "The server is shutting down; try again." }))

/** The answer to a request that ended in a cause that no operation declares. */
const respond = (cause: Cause.Cause<unknown>) => {
  for (const reason of cause.reasons) {
    const error = reason._tag === "Fail" ? reason.error : reason._tag === "Die" ? reason.defect : undefined
    if (!HttpServerError.isHttpServerError(error)) continue
    if (error.reason._tag === "RouteNotFound") return Effect.succeed(unknownPath)
    if (error.reason._tag === "RequestParseError") {
      return Effect.succeed(error.reason.reason === "BodyTooLarge" ? tooLarge : invalid)
    }
  }
  if (Cause.hasInterruptsOnly(cause)) return Effect.succeed(closing)
  return Effect.as(Effect.logError("A request failed", cause), fault)
}

/** Answers that the platform made without a body, in the documented shape. */
const withBody = (response: HttpServerResponse.HttpServerResponse) => {
  if (response.status < 400 || response.headers["content-type"]?.startsWith("application/json")) return response
  if (response.status === 404) return unknownPath
  if (response.status === 413) return tooLarge
  if (response.status === 415) return notJson
  return response.status < 500 ? HttpServerResponse.setStatus(invalid, response.status) : fault
}

/** What an operation is to the router: its declared errors are answers already, others are its own affair. */
type Operation = Effect.Effect<
  HttpServerResponse.HttpServerResponse,
  Types.unhandled,
  HttpServerRequest.HttpServerRequest
>

const saneId = /^[A-Za-z0-9._:/+=-]{1,128}$/

/**
 * Around every request: the documented shape for whatever no operation declares, the request's id on the answer and on
 * its log lines, and no cache for anything under a versioned path.
 */
export const layer = HttpRouter.middleware(
  Effect.map(
    SecureRandom.SecureRandom,
    (random) =>
      (operation): Operation =>
        Effect.gen(function* () {
          const request = yield* HttpServerRequest.HttpServerRequest
          const sent = request.headers["x-request-id"]
          const requestId = sent !== undefined && saneId.test(sent) ? sent : yield* random.ulid
          const response = yield* operation.pipe(
            Effect.catchCause((cause) => respond(cause as Cause.Cause<unknown>)),
            Effect.annotateLogs({ requestId, method: request.method, path: request.url.split("?", 1)[0]! }),
          )
          const headers = { "x-request-id": requestId, "cache-control": "no-store" }
          return HttpServerResponse.setHeaders(withBody(response), headers)
        }),
  ),
  { global: true },
)
