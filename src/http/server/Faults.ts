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
import { noOrg, RequestOrg } from "../../domain/Principal.ts"
import { hintAt, methodsAt, operationAt } from "./knownRoutes.ts"
import { maxBodyAt, tooLarge, unreadable, withBoundedBody } from "./requestBody.ts"
import { logged, measured, requestIdOf } from "./requestTelemetry.ts"

/** One response in the format of each interface. */
interface Reply {
  /** Under /api/v0, and everywhere else. */
  readonly platform: HttpServerResponse.HttpServerResponse
  /** Under /v1. */
  readonly webhook: HttpServerResponse.HttpServerResponse
}

const reply = (status: number, { error, code }: { readonly error: string; readonly code: string }): Reply => ({
  platform: HttpServerResponse.jsonUnsafe({ error, code }, { status }),
  webhook: HttpServerResponse.jsonUnsafe({ success: false, message: error, code }, { status }),
})

const withHeader = ({ platform, webhook }: Reply, name: string, value: string): Reply => ({
  platform: HttpServerResponse.setHeader(platform, name, value),
  webhook: HttpServerResponse.setHeader(webhook, name, value),
})

const invalid = reply(400, unreadable)
const unknownPath = reply(
  404,
  new NotFound({ error: "There is no operation at this path. /docs lists all operations." }),
)
const notJson = reply(
  415,
  new UnsupportedMediaType({ error: "The request body must be JSON: Content-Type: application/json." }),
)
const fault = reply(
  500,
  new InternalError({
    error: "The request failed in the service. Find the cause in the log, under the x-request-id of this response.",
  }),
)
/** Nobody reads it. Metrics have the status, so that an alert about 5xx does not count clients that went away. */
const clientLeft = reply(499, { error: "The client closed the connection.", code: "client_closed_request" })
const closing = reply(503, new Unavailable({ error: "The server is shutting down; try again." }))

const encodedPath = (encoded: string) =>
  reply(
    404,
    new NotFound({
      error: `There is no operation at this path: send ${decodeURIComponent(encoded)} as it is, not as ${encoded}.`,
    }),
  )

const elsewhere = (hint: string) => reply(404, new NotFound({ error: `There is no operation at this path. ${hint}` }))

/** The path with a slash at its end, where the path without it is one. */
const endsWithSlash = (url: string) => {
  const path = url.split("?", 1)[0]!
  return (
    path.length > 1 && path.endsWith("/") && !path.startsWith("/console/") && methodsAt(path.slice(0, -1)).length > 0
  )
}

/** A path under the prefix of the other interface, or of another version. */
const otherPrefix = /^\/(?:api\/)?v\d+(?=\/)/

/** The response to a request that matches no operation: 405 if the path has other methods, else 404. */
const notRouted = ({ method, url }: HttpServerRequest.HttpServerRequest): Reply => {
  const methods = methodsAt(url)
  const there = ["/api/v0", "/v1"].flatMap((prefix) => operationAt(method, url.replace(otherPrefix, prefix)) ?? [])
  if (methods.length === 0 && there.length > 0) return elsewhere(`Did you mean ${there[0]!.name}?`)
  const hint = methods.length === 0 ? hintAt(method, url) : undefined
  if (hint !== undefined) return elsewhere(hint)
  if (methods.length === 0 || methods.includes(method)) return unknownPath
  const allow = methods.join(", ")
  const answer = reply(405, { error: `This path takes ${allow}, not ${method}.`, code: "method_not_allowed" })
  return withHeader(answer, "allow", allow)
}

/**
 * The response to a request whose Content-Length is above the limit. It closes the connection, because nobody reads the
 * body.
 */
const refused = (limit: number): Reply => withHeader(reply(413, tooLarge(limit)), "connection", "close")

const isLeftByClient = (cause: Cause.Cause<unknown>) =>
  cause.reasons.some((reason) => reason._tag === "Interrupt" && reason.annotations.has(HttpServerError.ClientAbort.key))

/** The response to a request that failed with an error that its operation does not declare. */
const replyTo = (request: HttpServerRequest.HttpServerRequest, cause: Cause.Cause<unknown>): Effect.Effect<Reply> => {
  for (const reason of cause.reasons) {
    const error = reason._tag === "Fail" ? reason.error : reason._tag === "Die" ? reason.defect : undefined
    if (error instanceof PayloadTooLarge) return Effect.succeed(reply(413, error))
    if (error instanceof InvalidRequest) return Effect.succeed(reply(400, error))
    if (error instanceof UnsupportedMediaType) return Effect.succeed(reply(415, error))
    if (error instanceof Unavailable) return Effect.succeed(reply(503, error))
    if (!HttpServerError.isHttpServerError(error)) continue
    if (error.reason._tag === "RouteNotFound") return Effect.succeed(notRouted(request))
    if (error.reason._tag === "RequestParseError") return Effect.succeed(invalid)
  }
  if (Cause.hasInterruptsOnly(cause)) return Effect.succeed(isLeftByClient(cause) ? clientLeft : closing)
  return Effect.as(Effect.logError("A request failed", cause), fault)
}

/** Adds the documented body to an error response that Effect made without one. */
const withBody = (response: HttpServerResponse.HttpServerResponse): Reply => {
  // Pages for browsers are ours, too.
  if (response.status < 400 || /^(application\/json|text\/html)/.test(response.headers["content-type"] ?? "")) {
    return { platform: response, webhook: response }
  }
  if (response.status === 404) return unknownPath
  if (response.status === 415) return notJson
  return response.status < 500 ? reply(response.status, unreadable) : fault
}

/** An operation as the router has it: its declared errors are responses by now. */
type Operation = Effect.Effect<
  HttpServerResponse.HttpServerResponse,
  Types.unhandled,
  HttpServerRequest.HttpServerRequest
>

/**
 * `;` or `#` in a path. The router takes them for the start of the query, a proxy for a part of the path. Refused, so
 * that a proxy's rule for a path holds.
 */
const otherSeparator = /^[^?]*[;#]/

/**
 * A character of a path that needs no encoding, encoded: `%65` for `e`. The router decodes it, while rules by path, of
 * this service and of proxies, read it as it is. Source: RFC 3986, sections 2.3 and 6.2.2.2.
 */
const needlesslyEncoded = /^[^?]*?(%(?:2[DE]|3\d|4[1-9A-F]|5[\dAF]|6[1-9A-F]|7[\dAE]))/i

/** Paths of the webhook interface. */
export const underV1 = /^\/v1(?:[/?]|$)/

/** The Content-Security-Policy of HTML pages: they load and call only this server. */
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
 * Adds the headers that every response has: the request id; `no-store` unless the response has its own rule, and for
 * events `no-transform`, because proxies that compress hold back what is short; with a 503 the seconds to wait; with a
 * 401 how to send a credential.
 */
const withHeaders = (response: HttpServerResponse.HttpServerResponse, requestId: string) =>
  HttpServerResponse.setHeaders(response, {
    "x-request-id": requestId,
    "cache-control":
      response.headers["cache-control"] ??
      (response.headers["content-type"]?.startsWith("text/event-stream") ? "no-store, no-transform" : "no-store"),
    "x-content-type-options": "nosniff",
    ...(response.status === 503 ? { "retry-after": "1" } : {}),
    ...(response.status === 401 ? { "www-authenticate": "Bearer" } : {}),
    ...(response.headers["content-type"]?.startsWith("text/html")
      ? { "content-security-policy": response.headers["content-security-policy"] ?? pagePolicy }
      : {}),
  })

/**
 * Wraps every request. Gives undeclared errors their documented body, adds the common headers, puts the request id on
 * the log lines, and measures the duration.
 */
export const layer = HttpRouter.middleware(
  (operation): Operation => {
    const documented = Effect.map(operation, withBody)
    /** Refuses ambiguous paths and, before anything else is read, bodies with too large a Content-Length. */
    const answer = (request: HttpServerRequest.HttpServerRequest, maxBodyBytes: number) => {
      if (otherSeparator.test(request.url)) return Effect.succeed(unknownPath)
      if (endsWithSlash(request.url)) return Effect.succeed(elsewhere("Leave out the slash at its end."))
      const [, encoded] = needlesslyEncoded.exec(request.url) ?? []
      if (encoded !== undefined) return Effect.succeed(encodedPath(encoded))
      if (
        Number(request.headers["content-length"]) > maxBodyBytes &&
        operationAt(request.method, request.url)?.readsBody
      ) {
        return Effect.succeed(refused(maxBodyBytes))
      }
      return Effect.catchCause(documented, (cause) => replyTo(request, cause))
    }
    return Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) => {
      const requestId = requestIdOf(request.headers["x-request-id"])
      const maxBodyBytes = maxBodyAt(request.url)
      return answer(request, maxBodyBytes).pipe(
        Effect.map(({ platform, webhook }) => withHeaders(underV1.test(request.url) ? webhook : platform, requestId)),
        // Innermost: it reads the route from the context that the router leaves behind.
        (answer) => measured(request.method, answer),
        // In one step: each `provideService` would cost two context switches per request.
        Effect.updateContext((context: Context.Context<HttpServerRequest.HttpServerRequest>) =>
          context.pipe(
            Context.add(HttpServerRequest.HttpServerRequest, withBoundedBody(request, maxBodyBytes)),
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
