import type { Types } from "effect"
import { Cause, Context, Effect } from "effect"
import { HttpRouter, HttpServerError, HttpServerRequest, HttpServerResponse } from "effect/http"
import { RequestId } from "../../domain/audit/AuditLog.ts"
import {
  InternalError,
  InvalidRequest,
  NotFound,
  PayloadTooLarge,
  Unavailable,
  UnsupportedMediaType,
} from "../../domain/Errors.ts"
import { noOrg, RequestOrg } from "../../domain/orgs/RequestOrg.ts"
import { tooLarge, withBoundedBody } from "./requestBody.ts"
import { requestIdOf } from "./requestId.ts"
import { logged } from "./requestLog.ts"
import { measured } from "./requestMetrics.ts"
import { maxBodyAt, methodsAt, operationAt } from "./routes.ts"

/** One answer in the shape of either interface: A, the platform's, and B, that of everything under /v1. */
interface Answer {
  readonly a: HttpServerResponse.HttpServerResponse
  readonly b: HttpServerResponse.HttpServerResponse
}

const reply = (status: number, { error, code }: { readonly error: string; readonly code: string }): Answer => ({
  a: HttpServerResponse.jsonUnsafe({ error, code }, { status }),
  b: HttpServerResponse.jsonUnsafe({ success: false, message: error, code }, { status }),
})

const invalidRequest = new InvalidRequest({ error: "The request could not be read." })
const invalid = reply(400, invalidRequest)
const unknownPath = reply(404, new NotFound({ error: "There is nothing at this path." }))
const notJson = reply(
  415,
  new UnsupportedMediaType({ error: "The request body must be JSON: Content-Type: application/json." }),
)
const fault = reply(
  500,
  new InternalError({ error: "Something went wrong here; the log has it under this answer's x-request-id." }),
)
const closing = reply(503, new Unavailable({ error: "The server is shutting down; try again." }))

/** The answer to a method and a path that are no operation: 405 where the path has other methods. */
const notRouted = ({ method, url }: HttpServerRequest.HttpServerRequest): Answer => {
  const methods = methodsAt(url)
  if (methods.length === 0 || methods.includes(method)) return unknownPath
  const allow = methods.join(", ")
  const { a, b } = reply(405, { error: `This path takes ${allow}, not ${method}.`, code: "method_not_allowed" })
  return { a: HttpServerResponse.setHeader(a, "allow", allow), b: HttpServerResponse.setHeader(b, "allow", allow) }
}

/** The answer to a body that is not read, as its length says that it is too large: it ends the connection. */
const refused = (limit: number): Answer => {
  const { a, b } = reply(413, tooLarge(limit))
  return {
    a: HttpServerResponse.setHeader(a, "connection", "close"),
    b: HttpServerResponse.setHeader(b, "connection", "close"),
  }
}

/** The answer to a request that ended in a cause that no operation declares. */
const answerTo = (request: HttpServerRequest.HttpServerRequest, cause: Cause.Cause<unknown>): Effect.Effect<Answer> => {
  for (const reason of cause.reasons) {
    const error = reason._tag === "Fail" ? reason.error : reason._tag === "Die" ? reason.defect : undefined
    if (error instanceof PayloadTooLarge) return Effect.succeed(reply(413, error))
    if (error instanceof InvalidRequest) return Effect.succeed(reply(400, error))
    if (error instanceof Unavailable) return Effect.succeed(reply(503, error))
    if (!HttpServerError.isHttpServerError(error)) continue
    if (error.reason._tag === "RouteNotFound") return Effect.succeed(notRouted(request))
    if (error.reason._tag === "RequestParseError") return Effect.succeed(invalid)
  }
  if (Cause.hasInterruptsOnly(cause)) return Effect.succeed(closing)
  return Effect.as(Effect.logError("A request failed", cause), fault)
}

/** The documented answer in the place of one that the platform made without a body. */
const withBody = (response: HttpServerResponse.HttpServerResponse): Answer => {
  if (response.status < 400 || response.headers["content-type"]?.startsWith("application/json")) {
    return { a: response, b: response }
  }
  if (response.status === 404) return unknownPath
  if (response.status === 415) return notJson
  return response.status < 500 ? reply(response.status, invalidRequest) : fault
}

/** What an operation is to the router: its declared errors are answers already, others are its own affair. */
type Operation = Effect.Effect<
  HttpServerResponse.HttpServerResponse,
  Types.unhandled,
  HttpServerRequest.HttpServerRequest
>

/** What the router takes for the beginning of a query and a proxy for a part of the path: its rule for a path must hold. */
const otherSeparator = /^[^?]*[;#]/

/** Paths of the webhook interface. */
export const underV1 = /^\/v1(?:[/?]|$)/

/** A page runs scripts that are files of this server, calls this server, and loads nothing from anywhere else. */
const pagePolicy = [
  "default-src 'none'",
  "script-src 'self'",
  "connect-src 'self'",
  "style-src 'self' 'unsafe-inline'",
  "img-src 'self' data: blob:",
  "font-src 'self' data:",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ")

/**
 * The headers of every answer: its request's id, no cache for what does not say otherwise, with a 503 when to come back,
 * in seconds, and with a 401 how to send a credential.
 */
const withHeaders = (response: HttpServerResponse.HttpServerResponse, requestId: string) =>
  HttpServerResponse.setHeaders(response, {
    "x-request-id": requestId,
    "cache-control": response.headers["cache-control"] ?? "no-store",
    ...(response.status === 503 ? { "retry-after": "1" } : {}),
    ...(response.status === 401 ? { "www-authenticate": "Bearer" } : {}),
    ...(response.headers["content-type"]?.startsWith("text/html") ? { "content-security-policy": pagePolicy } : {}),
  })

/**
 * Around every request: the documented shape for whatever no operation declares, the request's id on the answer and on
 * its log lines, its time among the metrics, and the headers that every answer has.
 */
export const layer = HttpRouter.middleware(
  (operation): Operation => {
    const documented = Effect.map(operation, withBody)
    /** Refuses a path that can be read as another, and a body by its length before anything else is looked at. */
    const answer = (request: HttpServerRequest.HttpServerRequest, maxBody: number) => {
      if (otherSeparator.test(request.url)) return Effect.succeed(unknownPath)
      if (Number(request.headers["content-length"]) > maxBody && operationAt(request.method, request.url)?.readsBody) {
        return Effect.succeed(refused(maxBody))
      }
      return Effect.catchCause(documented, (cause) => answerTo(request, cause))
    }
    return Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) => {
      const requestId = requestIdOf(request.headers["x-request-id"])
      const maxBody = maxBodyAt(request.url)
      return answer(request, maxBody).pipe(
        Effect.map(({ a, b }) => withHeaders(underV1.test(request.url) ? b : a, requestId)),
        // Before anything is provided: it reads the route that the router has left.
        (answer) => measured(request.method, answer),
        // All at once: each of its own would be put on and taken off with every request.
        Effect.updateContext((context: Context.Context<HttpServerRequest.HttpServerRequest>) =>
          context.pipe(
            Context.add(HttpServerRequest.HttpServerRequest, withBoundedBody(request, maxBody)),
            Context.add(RequestOrg, noOrg),
            Context.add(RequestId, requestId),
            logged({ requestId, method: request.method, path: request.url.split("?", 1)[0]! }),
          ),
        ),
      )
    })
  },
  { global: true },
)
