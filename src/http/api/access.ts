import { Context } from "effect"
import { HttpApiMiddleware, OpenApi } from "effect/http-api"
import {
  Conflict,
  Forbidden,
  IdempotencyKeyReused,
  InternalError,
  InvalidRequest,
  PayloadTooLarge,
  Unauthorized,
  Unavailable,
  UnsupportedMediaType,
} from "../../domain/Errors.ts"
import type { CurrentPrincipal } from "../../domain/Principal.ts"
import { type Role, rolesOfAll, rolesOfOrg } from "../../domain/Person.ts"
import type { PrincipalKind } from "../../domain/sessions/Sessions.ts"
import * as WebhookErrors from "./responses.ts"

/** The names of the security schemes in the OpenAPI document. */
export const securitySchemes = {
  adminToken: {
    type: "http",
    scheme: "bearer",
    description:
      "The administrator: a token of the server's ADMIN_TOKEN. Without ADMIN_TOKEN, the server runs in open mode.",
  },
  apiKey: { type: "http", scheme: "bearer", description: "An API key, svc_…: an org key or a project key." },
  apiKeyHeader: { type: "apiKey", in: "header", name: "x-api-key", description: "An API key in its own header." },
  orgId: {
    type: "apiKey",
    in: "header",
    name: "x-org-id",
    description: "The id of the org that the administrator acts for. It is no secret, and ignored beside an API key.",
  },
  session: {
    type: "apiKey",
    in: "cookie",
    name: "gatehouse_session",
    description:
      "A session of the console (behind TLS the cookie is __Host-gatehouse_session). Requests that are not a GET also send " +
      "its csrfToken in x-csrf-token; the administrator's under /v1 also send x-org-id.",
  },
  portalSession: {
    type: "http",
    scheme: "bearer",
    description: "The session of a portal in a frame: the `token` of POST /api/v0/sessions/portal with `inFrame`.",
  },
  githubSignature: {
    type: "apiKey",
    in: "header",
    name: "Github-Public-Key-Signature",
    description: "GitHub's ECDSA signature of the raw body, by the key that Github-Public-Key-Identifier names.",
  },
  ciToken: { type: "http", scheme: "bearer", description: "The OIDC token of a CI run." },
} as const

/** The roles of people that may call an operation: roles of all orgs, and roles of the org that it is about. */
export interface RolesOfOperation {
  readonly ofAll: ReadonlyArray<Role>
  readonly ofOrg: ReadonlyArray<Role>
}

/** The people who may call an operation. Without this annotation, nobody may. */
export const PeopleWho = Context.Reference<RolesOfOperation>("gatehouse/http/access/PeopleWho", {
  defaultValue: () => ({ ofAll: [], ofOrg: [] }),
})

const roles = {
  /** Read what there is. */
  read: { ofAll: rolesOfAll, ofOrg: rolesOfOrg },
  /** Resend, recover and retry what failed. */
  resend: { ofAll: ["administrator", "operator"], ofOrg: ["owner", "developer"] },
  /** Change what an org works with. */
  change: { ofAll: ["administrator"], ofOrg: ["owner", "developer"] },
  /** Keys, and whatever else lets others in. */
  manage: { ofAll: ["administrator"], ofOrg: ["owner"] },
  /** Read about all orgs together. */
  oversee: { ofAll: rolesOfAll, ofOrg: [] },
  /** Orgs themselves, and what concerns all of them. */
  administer: { ofAll: ["administrator"], ofOrg: [] },
  /** For machines alone. */
  nobody: { ofAll: [], ofOrg: [] },
} as const satisfies Record<string, RolesOfOperation>

const text = (summary?: string, description?: string) =>
  OpenApi.annotations({
    ...(summary === undefined ? {} : { summary }),
    ...(description === undefined ? {} : { description }),
  })

type Annotate = (summary?: string, description?: string) => Context.Context<never>

/** The same annotations, with the roles of people that may call the operation. */
const withRoles = (annotate: Annotate) =>
  Object.fromEntries(
    Object.entries(roles).map(([name, people]) => [
      name,
      (summary?: string, description?: string) => Context.add(annotate(summary, description), PeopleWho, people),
    ]),
  ) as Record<keyof typeof roles, Annotate>

/**
 * Annotates an operation with its summary and its description in the OpenAPI document, and with the roles of people
 * that may call it.
 */
export const about = withRoles(text)

/**
 * Which principals an operation admits; its service decides what each may do. `credential`: a valid credential, in open
 * mode anyone. `anyone`: no credential needed, but an invalid one is refused. `key`: an API key, or the administrator
 * with `x-org-id`. `webhooks`: the same, or a portal session. `ciRun`: the OIDC token of a run that may register.
 * `signed`: whoever has signed the body, which another middleware checks.
 */
export const Admits = Context.Reference<"credential" | "anyone" | "key" | "webhooks" | "ciRun" | "signed">(
  "gatehouse/http/access/Admits",
  { defaultValue: () => "credential" },
)

/** The principals that an operation can be of use to, in guarded mode; `whoAmI` tells them. */
export const Callers = Context.Reference<ReadonlyArray<PrincipalKind>>("gatehouse/http/access/Callers", {
  defaultValue: () => [],
})

const holders: ReadonlyArray<PrincipalKind> = ["administrator", "orgKey", "projectKey", "portal"]
const managers: ReadonlyArray<PrincipalKind> = ["administrator", "orgKey"]
const tenants: ReadonlyArray<PrincipalKind> = ["administrator", "orgKey", "projectKey"]

type Scheme = keyof typeof securitySchemes

/**
 * Returns functions that annotate operations with who may call them, and with their summary and description: one for
 * each set of roles. `ofGroup`: for all operations of a group, which have roles and texts of their own.
 */
const describe = (
  admits: typeof Admits.Service,
  callers: ReadonlyArray<PrincipalKind>,
  sentence: string,
  /** A list of schemes is needed together. */
  schemes: ReadonlyArray<Scheme | ReadonlyArray<Scheme>>,
) => {
  const allowed = OpenApi.annotations({
    override: {
      // `{}`: no credential needed, as in open mode.
      security: [
        ...(admits === "credential" || admits === "anyone" ? [{}] : []),
        ...schemes.map((scheme) => Object.fromEntries([scheme].flat().map((name) => [name, []]))),
      ],
      "x-gatehouse-access": sentence,
    },
  }).pipe(Context.add(Admits, admits), Context.add(Callers, callers))
  const annotate: Annotate = (summary, description) => Context.merge(allowed, text(summary, description))
  return { ...withRoles(annotate), ofGroup: annotate() }
}

const ownCredentials = ["adminToken", "apiKey", "apiKeyHeader"] as const
const ofTenants = ["apiKeyHeader", "apiKey", ["adminToken", "orgId"], "session"] as const
const portalKeys = " A portal session whose link has `keys`: those of its holder."
const tenantSentence =
  "Any valid API key, in both modes; the tenant is the org of the key. Also the administrator (open mode: anyone) with " +
  "x-org-id; the tenant is that org."

/** Who may call an operation. The server enforces it, and the OpenAPI document shows it. */
export const access = {
  administrator: describe("credential", ["administrator"], "Guarded mode: the administrator. Open mode: anyone.", [
    "adminToken",
    "session",
  ]),
  management: describe(
    "credential",
    managers,
    "Guarded mode: the administrator, or an org key for its own org. Open mode: anyone.",
    [...ownCredentials, "session"],
  ),
  orgKeys: describe(
    "credential",
    ["administrator", "portal"],
    `Guarded mode: the administrator. Open mode: anyone.${portalKeys}`,
    ["adminToken", "session", "portalSession"],
  ),
  keys: describe(
    "credential",
    [...managers, "portal"],
    `Guarded mode: the administrator, or an org key for its own org. Open mode: anyone.${portalKeys}`,
    [...ownCredentials, "session", "portalSession"],
  ),
  anyone: describe(
    "anyone",
    [...holders, "anonymous"],
    "Anyone, in both modes. With a credential of its own, a client's failures are not limited.",
    [...ownCredentials, "session"],
  ),
  holder: describe(
    "anyone",
    [...holders, "anonymous"],
    "Anyone with the key in the request, in both modes. Failures are limited for each client address (`TRUST_PROXY`).",
    [],
  ),
  proxy: describe(
    "anyone",
    [],
    "Any proxy, in both modes; the credential is the key of the request that it asks about. Failures are limited for each " +
      "client address (`TRUST_PROXY`).",
    ["apiKey", "apiKeyHeader"],
  ),
  chat: describe(
    "credential",
    ["administrator", "orgKey", "projectKey"],
    "A project key, in both modes; an org key is a 403. A session of the console: also that of an org key or the " +
      "administrator. Open mode: also anyone without a credential. Rate limit: 120 a minute for each key, 60 for each client " +
      "address without one.",
    ["apiKey", "apiKeyHeader", "session"],
  ),
  feedback: describe("credential", ["projectKey"], "A project key, in both modes. Rate limit: that of chats.", [
    "apiKey",
    "apiKeyHeader",
    "session",
  ]),
  docsReader: describe(
    "anyone",
    ["administrator", "orgKey", "projectKey", "anonymous"],
    "A key of the project, an org key for its own org, or the administrator; anyone when the documentation is public. Open " +
      "mode: anyone. Rate limit: that of chats.",
    [...ownCredentials, "session"],
  ),
  tenant: describe("key", tenants, tenantSentence, ofTenants),
  tenantManagers: describe(
    "key",
    managers,
    "An org key, for its org; guarded mode refuses a project key with a 403. Also the administrator (open mode: anyone) with " +
      "x-org-id, for that org.",
    ofTenants,
  ),
  webhooks: describe(
    "webhooks",
    holders,
    `${tenantSentence} Also a portal session, for its org, unless its link has \`webhooks\`: false.`,
    [...ofTenants, "portalSession"],
  ),
  signIn: describe(
    "credential",
    tenants,
    "The administrator, or the holder of an API key, in both modes.",
    ownCredentials,
  ),
  self: describe("credential", holders, "Any valid credential or session. Open mode: anyone.", [
    ...ownCredentials,
    "session",
    "portalSession",
  ]),
  link: describe("anyone", [...holders, "anonymous"], "Anyone with the token of a portal link.", []),
  github: describe("signed", [], "Anyone with GitHub's signature of the body, in both modes.", ["githubSignature"]),
  ci: describe("ciRun", [], "A CI run, with its OIDC token.", ["ciToken"]),
}

/**
 * Every operation: an invalid request is a 400 that names the field. Declares the errors that every operation can have.
 */
export class RequestErrors extends HttpApiMiddleware.Service<RequestErrors>()("gatehouse/http/RequestErrors", {
  error: [InvalidRequest, PayloadTooLarge, UnsupportedMediaType, InternalError, Unavailable],
}) {}

/**
 * Finds the principal of a request, and refuses one that the operation's `Admits` or `PeopleWho` excludes. Then refuses
 * an unknown query.
 */
export class Authorization extends HttpApiMiddleware.Service<Authorization, { provides: CurrentPrincipal }>()(
  "gatehouse/http/Authorization",
  { error: [Unauthorized, Forbidden, InvalidRequest, WebhookErrors.TooManyRequestsWithRetryAfter, Unavailable] },
) {}

/** Chats: the body is read when there is memory for it. */
export class ChatBodies extends HttpApiMiddleware.Service<ChatBodies, { requires: CurrentPrincipal }>()(
  "gatehouse/http/ChatBodies",
  { error: [Unavailable] },
) {}

/** Reports of leaked keys: the body must have GitHub's signature. */
export class GithubSignature extends HttpApiMiddleware.Service<GithubSignature>()("gatehouse/http/GithubSignature", {
  error: [Unauthorized, PayloadTooLarge, InvalidRequest, Unavailable],
}) {}

/** `RequestErrors` for the webhook interface. */
export class WebhookRequestErrors extends HttpApiMiddleware.Service<WebhookRequestErrors>()(
  "gatehouse/http/WebhookRequestErrors",
  {
    error: [
      WebhookErrors.InvalidRequest,
      WebhookErrors.PayloadTooLarge,
      WebhookErrors.UnsupportedMediaType,
      WebhookErrors.InternalError,
      WebhookErrors.Unavailable,
    ],
  },
) {}

/** `Authorization` for the webhook interface. */
export class WebhookAuthorization extends HttpApiMiddleware.Service<
  WebhookAuthorization,
  { provides: CurrentPrincipal }
>()("gatehouse/http/WebhookAuthorization", {
  error: [
    WebhookErrors.Unauthorized,
    WebhookErrors.InvalidRequest,
    WebhookErrors.Forbidden,
    WebhookErrors.NotFound,
    WebhookErrors.TooManyWebhookRequests,
    WebhookErrors.Unavailable,
  ],
}) {}

/** Operations that create something: requests with the same `Idempotency-Key` create it once. */
export class Idempotent extends HttpApiMiddleware.Service<Idempotent, { requires: CurrentPrincipal }>()(
  "gatehouse/http/Idempotent",
  { error: [InvalidRequest, Conflict, IdempotencyKeyReused, Unavailable] },
) {}

/** `Idempotent` for the webhook interface. */
export class WebhookIdempotent extends HttpApiMiddleware.Service<WebhookIdempotent, { requires: CurrentPrincipal }>()(
  "gatehouse/http/WebhookIdempotent",
  {
    error: [
      WebhookErrors.InvalidRequest,
      WebhookErrors.Conflict,
      WebhookErrors.IdempotencyKeyReused,
      WebhookErrors.Unavailable,
    ],
  },
) {}
