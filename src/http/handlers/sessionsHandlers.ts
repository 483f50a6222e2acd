import { Context, DateTime, Duration, Effect, Layer, Redacted, Struct } from "effect"
import { HttpEffect, HttpServerRequest } from "effect/http"
import { HttpApi, HttpApiBuilder } from "effect/http-api"
import { CurrentPrincipal, currentHolder, type Principal, tenantOf } from "../../domain/Principal.ts"
import { Orgs } from "../../domain/orgs/Orgs.ts"
import { linkedKeys, type PortalLinkState, type PortalRights } from "../../domain/sessions/Portal.ts"
import type { StoredSession } from "../../domain/sessions/SessionRepository.ts"
import { signInRules } from "../../domain/sessions/People.ts"
import {
  linkUsed,
  type PortalLink,
  type PrincipalKind,
  Sessions,
  type SignedIn,
  type WhoAmI,
} from "../../domain/sessions/Sessions.ts"
import { Api } from "../api/Api.ts"
import { readingBodies } from "./jsonBody.ts"
import { Admits, Callers, PeopleWho, type RolesOfOperation } from "../api/access.ts"
import { AdminTokens, isBehindTls, setCookie } from "../credentials.ts"
import { makeSessionPrincipal } from "../sessionPrincipal.ts"

const sessions = HttpApiBuilder.group(Api, "sessions", (handlers) =>
  Effect.map(Effect.all([Sessions, makeSessionPrincipal]), ([sessions, principalOf]) =>
    readingBodies(handlers).handleAll({
      create: () => sessions.signIn.pipe(Effect.tap(setSessionCookie), Effect.flatMap(whoAmI)),
      current: () => whoAmI(),
      // First, so that the browser forgets it also when the database cannot end it.
      remove: () => clearSessionCookie.pipe(Effect.andThen(sessions.signOut), Effect.as({ signedOut: true as const })),
      people: () => signInRules,
      openPortal: ({ payload: { inFrame = false, token } }) =>
        Effect.flatMap(sessions.openLink(Redacted.make(token), inFrame, principalOf), (opened) =>
          principalOf(opened.session).pipe(
            // Its maker has ended since the link was checked.
            Effect.catchTag(["Unauthorized", "NotFound"], () => Effect.fail(linkUsed)),
            Effect.flatMap((principal) => openedPortal(opened, principal, inFrame)),
          ),
        ),
    }),
  ),
)

const portal = HttpApiBuilder.group(Api, "portal", (handlers) =>
  Effect.map(Effect.all([Sessions, makeSessionPrincipal]), ([sessions, principalOf]) =>
    readingBodies(handlers).handleAll({
      link: ({ payload = {} }) => Effect.flatMap(sessions.createLink(payload), portalUrl),
      listLinks: ({ payload = { limit: 50 } }) =>
        Effect.map(sessions.links(payload, principalOf), ({ links, next_cursor }) => ({
          links: links.map(linkEntry),
          next_cursor,
        })),
      revokeLink: ({ payload }) =>
        Effect.as(sessions.revokeLink(payload.link_id), {
          success: true as const,
          message: "The portal link is revoked.",
        }),
    }),
  ),
)

export const layer = Layer.merge(sessions, portal)

const secureRequest = Effect.gen(function* () {
  const { headers } = yield* HttpServerRequest.HttpServerRequest
  return yield* isBehindTls(headers, (yield* AdminTokens).baseUrl)
})

const answerWithCookie = (value: string, maxAge: Duration.Duration) =>
  Effect.flatMap(secureRequest, (secure) =>
    HttpEffect.appendPreResponseHandler((_, response) =>
      Effect.succeed(setCookie(response, "session", value, { secure, maxAge })),
    ),
  )

const setSessionCookie = ({ session, token }: SignedIn) =>
  answerWithCookie(Redacted.value(token), DateTime.distance(session.createdAt, session.expiresAt))
const clearSessionCookie = answerWithCookie("", Duration.zero)

const kinds: Partial<Record<Principal["_tag"], PrincipalKind>> = {
  Administrator: "administrator",
  Person: "person",
  OrgPerson: "person",
  OrgKey: "orgKey",
  ProjectKey: "projectKey",
  Portal: "portal",
}

/**
 * The principal of the current request, with its own session or the one that it has just got: as a cookie, or as
 * `token`.
 */
const whoAmI = Effect.fnUntraced(function* (signedIn?: SignedIn, token?: string) {
  const { csrfTokenOf } = yield* Sessions
  const { principal, open, session } = yield* CurrentPrincipal
  const own = signedIn && {
    ...signedIn.session,
    csrfToken: token === undefined ? csrfTokenOf(signedIn.token) : null,
  }
  const kind = kinds[principal._tag] ?? "anonymous"
  const { csrfToken = null, expiresAt = null } = own ?? session ?? {}
  const tenant = tenantOf(principal)
  const person = "person" in principal ? principal.person : null
  return {
    principal: kind,
    mode: open ? "open" : "guarded",
    person,
    orgId: tenant ?? null,
    orgName: tenant === undefined ? null : ((yield* (yield* Orgs).nameOf(tenant)) ?? null),
    projectId: principal._tag === "ProjectKey" ? principal.projectId : null,
    expiresAt,
    csrfToken,
    keys: (yield* currentHolder) ?? null,
    ...(token === undefined ? {} : { token }),
    operations: (person === null
      ? operationsOf(kind, open).filter((one) => principal._tag !== "Portal" || isInPortal(one, principal.may))
      : operations.filter(({ people }) => people[tenant === undefined ? "ofAll" : "ofOrg"].includes(person.role))
    ).map(({ id }) => id),
  } satisfies WhoAmI
})

/** An opened portal link: sets the cookie of its session, or answers with it, and answers who that is. */
const openedPortal = Effect.fnUntraced(function* (signedIn: SignedIn, principal: Principal, isInFrame: boolean) {
  const { tokens } = yield* AdminTokens
  if (!isInFrame) yield* setSessionCookie(signedIn)
  const bearer = isInFrame ? Redacted.value(signedIn.token) : undefined
  return yield* Effect.provideService(whoAmI(signedIn, bearer), CurrentPrincipal, {
    principal,
    open: tokens === undefined,
  })
})

const linkEntry = ({
  createdAt,
  expiresAt,
  id,
  madeBy,
  person,
  portal,
  state,
}: StoredSession & { readonly state: PortalLinkState }) => ({
  link_id: id,
  state,
  made_by: madeBy!,
  person: person && Struct.pick(person, ["subject", "name", "email"]),
  webhooks: portal!.webhooks,
  keys: portal!.keys && linkedKeys(portal!.keys),
  created_at: createdAt,
  expires_at: expiresAt,
})

/** The response with a portal link. The token is in the fragment, which browsers send to no server. */
const portalUrl = ({ expiresAt, linkId, token }: PortalLink) =>
  AdminTokens.useSync(({ baseUrl }) => ({
    success: true as const,
    link_id: linkId,
    url: `${baseUrl}/console/portal#${Redacted.value(token)}`,
    token: Redacted.value(token),
    expires_at: expiresAt,
  }))

/** Whether a portal with these rights may call an operation that admits portals. */
const isInPortal = ({ admits, id }: ListedOperation, { keys, webhooks }: PortalRights) => {
  if (admits === "webhooks" || id === "live.follow") return webhooks
  if (admits !== "credential" || !id.startsWith("keys.")) return true
  if (id === "keys.createForOrg") return keys?.projectId === null
  return keys !== null && (id !== "keys.createForProject" || keys.projectId !== null)
}

interface ListedOperation {
  readonly id: string
  readonly admits: typeof Admits.Service
  readonly callers: ReadonlyArray<PrincipalKind>
  readonly people: RolesOfOperation
}

const operations: Array<ListedOperation> = []
HttpApi.reflect(Api, {
  onGroup: () => {},
  onEndpoint: ({ endpoint, group }) => {
    const id = `${group.identifier}.${endpoint.identifier}`
    const { annotations } = endpoint
    operations.push({
      id,
      admits: Context.get(annotations, Admits),
      callers: Context.get(annotations, Callers),
      people: Context.get(annotations, PeopleWho),
    })
  },
})

const kindsIn = (kind: PrincipalKind, open: boolean): ReadonlyArray<PrincipalKind> => {
  if (!open || kind === "portal") return [kind]
  // In open mode everyone manages every org; without a credential, everyone may chat.
  return kind === "anonymous" ? ["anonymous", "administrator", "projectKey"] : [kind, "administrator"]
}

/** The operations that a principal may call. */
const operationsOf = (kind: PrincipalKind, open: boolean) => {
  const kinds = kindsIn(kind, open)
  return operations.filter(({ callers }) => kinds.some((one) => callers.includes(one)))
}
