import { Context, DateTime, Duration, Effect, Layer, Redacted, Schema } from "effect"
import { SecureRandom } from "effect/crypto"
import { AuditLog } from "../audit/AuditLog.ts"
import { Forbidden, InvalidRequest, NotFound, Unauthorized, type Unavailable } from "../Errors.ts"
import { nextCursor, type Page } from "../Page.ts"
import {
  actorOf,
  CurrentPrincipal,
  currentTenant,
  noCredential,
  OrgScope,
  personActor,
  portalActor,
  type Principal,
  requireOrg,
} from "../Principal.ts"
import { atMost, expiry, Id, Text } from "../Schemas.ts"
import { KeyHash } from "../keys/ApiKeyRepository.ts"
import { ProjectRepository } from "../projects/Projects.ts"
import { SignedInPerson } from "../Person.ts"
import { type CreatePortalLink, defaultLinkSeconds, type PortalLinkState, rightsOf } from "./Portal.ts"
import { HolderKeys } from "../keys/KeySettings.ts"
import { type SessionKind, SessionRepository, type StoredSession } from "./SessionRepository.ts"
import { removeInBatches } from "../removeInBatches.ts"

/** How long a session lasts. */
const sessionLifetime = Duration.hours(12)
/** How long a session in a frame lasts: a page that still shows it gets another. */
const frameLifetime = Duration.hours(1)
/** The sessions of a credential, and the portal links and sessions that it has made. More replace the oldest. */
const maxSessions = 100
const maxPortals = 10_000
/** Sessions that one statement removes. */
const removeBatchSize = 1_000

export const sessionEnded = new Unauthorized({ error: "The session has ended: sign in again." })
export const linkUsed = new Unauthorized({ error: "The link was opened before, or has ended: ask for a new one." })
export const linkNotFound = () => new NotFound({ error: "There is no such portal link." })
const nothingAllowed = new InvalidRequest({
  error: "webhooks is false, and there are no keys: the portal would show nothing. Set keys, or leave webhooks out.",
})
const notAnonymous = (
  principal: Principal,
): principal is Extract<Principal, { _tag: "Administrator" | "OrgKey" | "ProjectKey" }> =>
  ["Administrator", "OrgKey", "ProjectKey"].includes(principal._tag)

/** A new session, with the token of its cookie. */
export interface SignedIn {
  readonly token: Redacted.Redacted<string>
  readonly session: StoredSession
}

/** A portal link: the token for its fragment, and its end. */
export interface PortalLink {
  readonly linkId: string
  readonly token: Redacted.Redacted<string>
  readonly expiresAt: DateTime.Utc
}

/** Fails when what a session or link stands for has ended. */
type CheckMaker = (session: StoredSession) => Effect.Effect<unknown, Unauthorized | NotFound | Unavailable>

/** A token is `<orgId>.<random>`, so that a session is found by its org. */
export const tokenPattern = /^([0-7][0-9A-HJKMNP-TV-Z]{25})?\.[0-9a-f]{64}$/

/** Sessions of people: each stands for a credential, and ends with it. */
export class Sessions extends Context.Service<Sessions>()("gatehouse/domain/Sessions", {
  make: Effect.gen(function* () {
    const repository = yield* SessionRepository
    const random = yield* SecureRandom.SecureRandom
    const hashOf = yield* KeyHash
    const projects = yield* ProjectRepository
    const audit = yield* AuditLog

    const keyOf = (token: Redacted.Redacted<string>) => {
      const text = Redacted.value(token)
      const [, orgId = ""] = tokenPattern.exec(text) ?? []
      return tokenPattern.test(text) ? { orgId, hash: hashOf(text) } : undefined
    }

    const mint = Effect.fnUntraced(function* (orgId: string, lifetime: Duration.Duration, end?: DateTime.Utc) {
      const bytes = yield* random.randomBytes(32)
      const token = `${orgId}.${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`
      const createdAt = yield* DateTime.now
      const expiresAt = DateTime.addDuration(createdAt, lifetime)
      const stored = { hash: hashOf(token), createdAt, expiresAt: end ? DateTime.min(expiresAt, end) : expiresAt }
      return { token: Redacted.make(token), stored }
    })

    const insert = Effect.fnUntraced(function* (
      made: Pick<StoredSession, "orgId" | "kind" | "credentialHash"> & Partial<StoredSession>,
      actor: string,
      lifetime: Duration.Duration = sessionLifetime,
    ) {
      const { stored, token } = yield* mint(made.orgId, lifetime, made.expiresAt)
      const none = { person: null, sid: null, portal: null, madeBy: null, madeIn: null }
      const session: StoredSession = { id: yield* random.ulid, ...none, ...made, ...stored }
      const { expiresAt, id, kind, person, portal } = session
      const ends = { expiresAt: DateTime.formatIso(expiresAt) }
      const entry = yield* audit.entryOf(actor, person, {
        ...(kind === "link"
          ? { action: "portal_link.create", details: { ...ends, ...portal } }
          : { action: "session.create", details: { ...ends, ...(person && { role: person.role }) } }),
        target: id,
      })
      yield* repository.insert(session, kind === "link" ? maxPortals : maxSessions, entry)
      return { token, session }
    })

    /** A page of the links of the current tenant and the portals that they opened, oldest first. */
    const links = Effect.fn("Sessions.links")(function* (page: Page, check: CheckMaker) {
      const orgId = yield* currentTenant
      yield* requireOrg(orgId)
      const found = yield* repository.links(orgId, page, yield* DateTime.now)
      const stateOf = (link: StoredSession): Effect.Effect<PortalLinkState, Unavailable> =>
        Effect.as(check(link), link.kind === "link" ? ("unopened" as const) : ("open" as const)).pipe(
          Effect.catchTag(["Unauthorized", "NotFound"], () => Effect.succeed("ended" as const)),
        )
      const links = yield* Effect.forEach(found.items, ({ isAlive, ...link }) =>
        Effect.map(isAlive ? stateOf(link) : Effect.succeed("ended" as const), (state) => ({ ...link, state })),
      )
      return { links, next_cursor: nextCursor(found, ({ id }) => id) }
    })

    return {
      /** Exchanges the credential of the current request for a session. Fails for a request that has none. */
      signIn: Effect.gen(function* () {
        const { principal, credential } = yield* CurrentPrincipal
        if (credential === undefined || principal._tag === "Anonymous") return yield* noCredential()
        if (!notAnonymous(principal))
          return yield* new Forbidden({
            error: "This credential cannot sign in: use the administrator's token or an API key.",
          })
        const orgId = principal._tag === "Administrator" ? "" : principal.orgId
        const kind: SessionKind = principal._tag === "Administrator" ? "administrator" : "key"
        yield* audit.takeChange
        return yield* insert({ orgId, kind, credentialHash: hashOf(Redacted.value(credential)) }, actorOf(principal))
      }).pipe(Effect.withSpan("Sessions.signIn")),

      /** Makes a session of a person, which ends with the id token. */
      signInPerson: (
        session: Pick<StoredSession, "orgId" | "credentialHash" | "sid" | "expiresAt"> & {
          readonly person: SignedInPerson
        },
      ) => insert({ ...session, kind: "person" }, personActor(session.person.subject)),

      /** The session of a token. Fails when there is none, or it has ended. The caller checks its credential. */
      find: Effect.fn("Sessions.find")(function* (token: Redacted.Redacted<string>) {
        const key = keyOf(token)
        const session = key && (yield* repository.find(key, yield* DateTime.now))
        return session ?? (yield* sessionEnded)
      }),

      /** Ends the session of the current request, if it has one. */
      signOut: Effect.gen(function* () {
        const { principal, session } = yield* CurrentPrincipal
        if (session === undefined) return
        const { id, person } = session
        const end = { action: "session.end", target: id, details: {} } as const
        yield* repository.remove(session, yield* audit.entryOf(actorOf(principal), person, end))
      }).pipe(Effect.withSpan("Sessions.signOut")),

      /** The token that a session sends with its changes. Another site cannot read it. */
      csrfTokenOf: (token: Redacted.Redacted<string>) => hashOf(`csrf ${Redacted.value(token)}`),

      /**
       * Makes a link that opens the portal of the current tenant. It ends with the session, key or token of who makes
       * it. Only who manages the keys of the org may let it have keys.
       */
      createLink: Effect.fn("Sessions.createLink")(function* (asked: CreatePortalLink) {
        const orgId = yield* currentTenant
        const portal = rightsOf(asked)
        if (!portal.webhooks && portal.keys === null) return yield* nothingAllowed
        if (portal.keys !== null) {
          yield* requireOrg(orgId)
          const { projectId } = portal.keys
          if (projectId !== null) yield* projects.find(OrgScope.OneOrg({ orgId }), projectId)
        }
        yield* audit.takeChange
        const { credential, principal, session } = yield* CurrentPrincipal
        const by =
          session === undefined
            ? { credentialHash: credential === undefined ? "" : hashOf(Redacted.value(credential)) }
            : {
                credentialHash: session.credentialHash,
                person: session.person,
                madeIn: session.hash,
                expiresAt: session.expiresAt,
              }
        const madeBy = actorOf(principal)
        const link = yield* insert(
          { orgId, kind: "link", portal, madeBy, ...by },
          madeBy,
          Duration.seconds(asked.expires_in_seconds ?? defaultLinkSeconds),
        )
        return { token: link.token, linkId: link.session.id, expiresAt: link.session.expiresAt }
      }),

      /**
       * Exchanges the token of a link for a portal session, once. A session in a frame is shorter.
       *
       * @param check fails when the credential that made the link has ended
       */
      openLink: Effect.fn("Sessions.openLink")(function* (
        linkToken: Redacted.Redacted<string>,
        isInFrame: boolean,
        check: CheckMaker,
      ) {
        const key = keyOf(linkToken)
        const link = key && (yield* repository.find(key, yield* DateTime.now, "link"))
        if (link === undefined) return yield* linkUsed
        yield* Effect.catchTag(check(link), ["Unauthorized", "NotFound"], () => Effect.fail(linkUsed))
        const { stored, token } = yield* mint(link.orgId, isInFrame ? frameLifetime : sessionLifetime)
        const details = { madeBy: link.madeBy, expiresAt: DateTime.formatIso(stored.expiresAt) }
        const open = { action: "portal_link.open", target: link.id, details } as const
        const entry = yield* audit.entryOf(portalActor(link.id), null, open)
        const session = yield* repository.openLink(link, stored, maxPortals, entry)
        return session === undefined ? yield* linkUsed : { token, session }
      }),

      links,

      /** Ends a link of the current tenant, and the portal that it opened. */
      revokeLink: Effect.fn("Sessions.revokeLink")(function* (linkId: string) {
        const orgId = yield* currentTenant
        yield* requireOrg(orgId)
        const entry = yield* audit.entry({ action: "portal_link.revoke", target: linkId, details: {} })
        yield* repository.revokeLink(orgId, linkId, entry)
      }),

      /** Removes expired sessions. */
      removeExpired: Effect.gen(function* () {
        const now = yield* DateTime.now
        yield* removeInBatches(removeBatchSize, (size) => repository.removeExpired(now, size))
      }).pipe(Effect.withSpan("Sessions.removeExpired")),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}

/** Who holds a session, or made a request. */
export const PrincipalKind = Schema.Literals([
  "administrator",
  "person",
  "orgKey",
  "projectKey",
  "portal",
  "anonymous",
]).annotate({
  description: "person: somebody with a role. anonymous: nobody has signed in, which open mode allows.",
  examples: ["orgKey"],
})
export type PrincipalKind = typeof PrincipalKind.Type

const orNull = <S extends Schema.Constraint>(schema: S, description: string) =>
  Schema.NullOr(schema).annotate({ description })

/** The principal of a request, and what it may do. */
export const WhoAmI = Schema.Struct({
  principal: PrincipalKind,
  mode: Schema.Literals(["guarded", "open"]).annotate({ description: "The mode of the server." }),
  person: orNull(SignedInPerson, "Who has signed in with the company's identity. null: another principal."),
  orgId: orNull(Id, "The org of the principal. null: every org.").annotate({
    examples: ["01KAHBMKZ3D2X7S5QN8W4V6R9T"],
  }),
  orgName: orNull(Schema.String, "The name of that org.").annotate({ examples: ["Acme"] }),
  projectId: orNull(Id, "The project of a project key.").annotate({ examples: [null] }),
  expiresAt: Schema.NullOr(expiry("The end of the session. null: the request has another credential, or none.")),
  csrfToken: orNull(
    Schema.String,
    "A session sends it in x-csrf-token with every request that is not a GET. null: no session.",
  ).annotate({ examples: ["5f2b…"] }),
  keys: orNull(HolderKeys, "What a portal session may do with API keys. null: nothing, or another principal."),
  token: Schema.optionalKey(
    Schema.String.annotate({
      description:
        "The session of POST /api/v0/sessions/portal with inFrame, as a bearer token. Only that response has it.",
      examples: ["01KAHBMKZ3D2X7S5QN8W4V6R9T.5f2b…"],
    }),
  ),
  operations: Schema.Array(Schema.String).annotate({
    description: "The operationIds that the principal may call. An operation may still refuse another org's resource.",
    examples: [["keys.list", "webhooks.list"]],
  }),
}).annotate({ identifier: "WhoAmI" })
export interface WhoAmI extends Schema.Schema.Type<typeof WhoAmI> {}

export const OpenPortal = Schema.Struct({
  token: Text.check(atMost(200)).annotate({
    description: "The token after the # of a portal link.",
    examples: ["01KAHBMKZ3D2X7S5QN8W4V6R9T.mJ0W4c2v"],
  }),
  inFrame: Schema.optionalKey(Schema.Boolean).annotate({
    description:
      "true: the response has the session as `token`, to be sent as Authorization: Bearer <token>, and sets no cookie. It " +
      "lasts one hour. Default: false.",
    examples: [false],
  }),
}).annotate({ identifier: "OpenPortal" })
