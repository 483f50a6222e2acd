import { Duration, Effect, Redacted } from "effect"
import { HttpEffect, HttpServerRequest, HttpServerResponse } from "effect/http"
import { CurrentPrincipal, Principal, tenantOf } from "../../domain/Principal.ts"
import type { PrincipalKind, WhoAmI } from "../../domain/sessions/sessionRequests.ts"
import { type SignedIn, Sessions, sessionLifetime } from "../../domain/sessions/Sessions.ts"
import { AdminTokens } from "./AdminTokens.ts"
import { TrustedProxies } from "./clientAddress.ts"
import { hasLoopbackHost } from "./localRequest.ts"
import { operationsOf } from "./operationsOf.ts"

/** Whether the browser reached the service by TLS: a trusted proxy says so, or BASE_URL for requests from elsewhere. */
const isSecure = Effect.gen(function* () {
  const { headers } = yield* HttpServerRequest.HttpServerRequest
  const { baseUrl } = yield* AdminTokens
  const proto = (yield* TrustedProxies) > 0 ? headers["x-forwarded-proto"] : undefined
  return proto === undefined ? baseUrl.startsWith("https:") && !hasLoopbackHost(headers) : proto === "https"
})

const setCookie = (value: string, maxAge: Duration.Duration) =>
  Effect.flatMap(isSecure, (secure) =>
    HttpEffect.appendPreResponseHandler((_, response) =>
      Effect.succeed(
        HttpServerResponse.setCookieUnsafe(response, `${secure ? "__Host-" : ""}gatehouse_session`, value, {
          httpOnly: true,
          sameSite: "strict",
          path: "/",
          secure,
          maxAge,
        }),
      ),
    ),
  )

export const setSessionCookie = ({ token }: SignedIn) => setCookie(Redacted.value(token), sessionLifetime)
export const clearSessionCookie = setCookie("", Duration.zero)

const kinds: Partial<Record<Principal["_tag"], PrincipalKind>> = {
  Administrator: "administrator",
  OrgKey: "orgKey",
  ProjectKey: "projectKey",
  Portal: "portal",
}

/** The principal of the current request, with its own session or the one that it has just got. */
export const whoAmI = Effect.fnUntraced(function* (signedIn?: SignedIn) {
  const { csrfTokenOf } = yield* Sessions
  const { principal, open, session } = yield* CurrentPrincipal
  const own = signedIn && { ...signedIn.session, csrfToken: csrfTokenOf(signedIn.token) }
  const kind = kinds[principal._tag] ?? "anonymous"
  const { csrfToken = null, expiresAt = null } = own ?? session ?? {}
  return {
    principal: kind,
    mode: open ? "open" : "guarded",
    orgId: tenantOf(principal) ?? null,
    projectId: principal._tag === "ProjectKey" ? principal.projectId : null,
    expiresAt,
    csrfToken,
    operations: operationsOf(kind, open),
  } satisfies WhoAmI
})

/** Opens a portal link: sets the cookie of its session, and answers who that is. */
export const openedPortal = Effect.fnUntraced(function* (token: string) {
  const sessions = yield* Sessions
  const { tokens } = yield* AdminTokens
  const signedIn = yield* sessions.openLink(Redacted.make(token))
  yield* setSessionCookie(signedIn)
  const { id, orgId } = signedIn.session
  return yield* Effect.provideService(whoAmI(signedIn), CurrentPrincipal, {
    principal: Principal.Portal({ portalId: id, orgId }),
    open: tokens === undefined,
  })
})
