import { Context, Effect, Option, type Redacted, Result } from "effect"
import { HttpServerRequest, HttpServerResponse } from "effect/http"
import { Forbidden, Unauthorized } from "../../domain/Errors.ts"
import { identify } from "./Authorization.ts"
import * as Credentials from "./credentials.ts"
import { isFromThisMachine } from "./localRequest.ts"

/** METRICS_TOKEN. Without it, only this machine and the administrator read the metrics in guarded mode. */
export class MetricsToken extends Context.Reference<Redacted.Redacted<string> | undefined>(
  "gatehouse/http/metricsAccess/MetricsToken",
  { defaultValue: () => undefined },
) {}

const noCredential = new Unauthorized({
  error:
    "The metrics need a credential: Authorization: Bearer <token>, with METRICS_TOKEN or the administrator's token.",
})
const forbidden = new Forbidden({
  error: "This credential may not read the metrics. Send METRICS_TOKEN or the administrator's token.",
})

/** Succeeds if a request may read the metrics: every request in open mode; in guarded mode see `MetricsToken`. */
const makeCheck = Effect.gen(function* () {
  const metricsToken = yield* MetricsToken
  const { open, toCaller } = yield* identify
  const isMetricsToken = Credentials.tokenCheck(metricsToken === undefined ? [] : [metricsToken])

  return Effect.gen(function* () {
    if (open) return
    const request = yield* HttpServerRequest.HttpServerRequest
    const { headers, remoteAddress } = request
    const credential = Result.getOrUndefined(Credentials.parse(headers))
    if (credential?.bearer === true && isMetricsToken(credential.token)) return
    const { principal } = yield* toCaller(request)
    if (principal._tag === "Administrator") return
    if (metricsToken === undefined && isFromThisMachine(Option.getOrUndefined(remoteAddress), headers)) return
    return yield* principal._tag === "Anonymous" ? noCredential : forbidden
  })
})

const refusal =
  (status: number, headers: Readonly<Record<string, string>> = {}) =>
  ({ code, error }: { readonly code: string; readonly error: string }) =>
    Effect.succeed(HttpServerResponse.jsonUnsafe({ error, code }, { status, headers }))

/** Refuses requests that may not read the metrics, with the body of the platform interface. */
export const guardedByToken = <E, R>(answer: Effect.Effect<HttpServerResponse.HttpServerResponse, E, R>) =>
  Effect.map(makeCheck, (check) =>
    check.pipe(
      Effect.matchEffect({
        onSuccess: () => answer,
        onFailure: (fault): Effect.Effect<HttpServerResponse.HttpServerResponse> =>
          fault._tag === "Unauthorized"
            ? refusal(401, { "www-authenticate": "Bearer" })(fault)
            : refusal(fault._tag === "Forbidden" ? 403 : 503)(fault),
      }),
    ),
  )
