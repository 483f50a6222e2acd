import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { Forbidden, Unauthorized } from "../../domain/Errors.ts"
import { NextCursor, pageQuery } from "../../domain/Page.ts"
import { CreatePortalLink, PortalLinkEntry } from "../../domain/sessions/Portal.ts"
import { SignInRules } from "../../domain/sessions/People.ts"
import { OpenPortal, WhoAmI } from "../../domain/sessions/Sessions.ts"
import { Id, time } from "../../domain/Schemas.ts"
import { Done, NotFound } from "./responses.ts"
import { access, Authorization, WebhookAuthorization, WebhookRequestErrors } from "./access.ts"

export class SessionsGroup extends HttpApiGroup.make("sessions")
  .add(
    HttpApiEndpoint.post("create", "/api/v0/sessions", { success: WhoAmI, error: Forbidden }).annotateMerge(
      access.signIn.nobody(
        "Sign in",
        "Exchanges the administrator's token or an API key for a session of 12 hours, in a cookie that scripts cannot read. The " +
          "session ends with its token or key. A request with a session that is not a GET sends the csrfToken in x-csrf-token.",
      ),
    ),
    HttpApiEndpoint.get("current", "/api/v0/sessions/current", { success: WhoAmI }).annotateMerge(
      access.self.read(
        "Read who you are",
        "The principal of the request, the operations that it may call, and its session.",
      ),
    ),
    HttpApiEndpoint.delete("remove", "/api/v0/sessions/current", {
      success: Schema.Struct({
        signedOut: Schema.Literal(true).annotate({ description: "true: the session has ended." }),
      }).annotate({ identifier: "SignedOut" }),
    }).annotateMerge(
      access.self.read("Sign out", "Ends the session of the request at every replica, and removes its cookie."),
    ),
    HttpApiEndpoint.get("people", "/api/v0/people", { success: SignInRules, error: Forbidden }).annotateMerge(
      access.administrator.administer(
        "Read who may sign in",
        "The groups, or other claims, of the company's identity provider that have a role in the console, as CONSOLE_OIDC_ROLES " +
          "gives them.",
      ),
    ),
  )
  .middleware(Authorization)
  // A link is opened before there is a credential.
  .add(
    HttpApiEndpoint.post("openPortal", "/api/v0/sessions/portal", {
      payload: OpenPortal,
      success: WhoAmI,
      error: Unauthorized,
    }).annotateMerge(
      access.link.read(
        "Open a portal link",
        "Exchanges the token of a portal link, once, for a session that may use what the link allows: in a cookie, or with " +
          "`inFrame` as a bearer token.",
      ),
    ),
  )
  .annotateMerge(OpenApi.annotations({ title: "Sessions", description: "Sign in to the console, and sign out." })) {}

export class PortalGroup extends HttpApiGroup.make("portal")
  .add(
    HttpApiEndpoint.post("link", "/v1/portal/link", {
      payload: [CreatePortalLink, Schema.Undefined],
      success: Schema.Struct({
        success: Done.fields.success,
        link_id: Id.annotate({ description: "Names the link, and the portal that it opens, to revoke it." }),
        url: Schema.String.annotate({
          description: "Opens the console for the webhooks of the org, once.",
          examples: ["https://gatehouse.example.com/console/portal#01KAHBMKZ3D2X7S5QN8W4V6R9T.mJ0W4c2v"],
        }),
        token: Schema.String.annotate({
          description: "What the element <gatehouse-portal> opens the portal with, in a page of your own, once.",
          examples: ["01KAHBMKZ3D2X7S5QN8W4V6R9T.mJ0W4c2v"],
        }),
        expires_at: time("Until when the link can be opened."),
      }).annotate({ identifier: "PortalLink" }),
    }).annotateMerge(
      access.tenant.manage(
        "Create a portal link",
        "Opens the console for the org's webhook endpoints, deliveries and events alone, and with `keys` for the API keys of " +
          "one holder. For the people who receive the webhooks, or use the keys. The link can be opened once. Its session lasts " +
          "12 hours (in a frame, one hour). Both end with the session, key or token of who made the link, which " +
          "has at most 10,000 unopened ones: another ends the oldest. `keys` needs a caller who manages the keys of the org: " +
          "a project key is a 403.",
      ),
    ),
    HttpApiEndpoint.post("listLinks", "/v1/portal/links/list", {
      payload: [Schema.Struct(pageQuery).annotate({ identifier: "ListPortalLinks" }), Schema.Undefined],
      success: Schema.Struct({
        links: Schema.Array(PortalLinkEntry).annotate({ description: "The links, the oldest first." }),
        next_cursor: NextCursor,
      }).annotate({
        identifier: "PortalLinkPage",
      }),
    }).annotateMerge(
      access.tenantManagers.manage(
        "List portal links",
        "The links of the org and the portals that they opened, oldest first, without their tokens. A project key is a 403.",
      ),
    ),
    HttpApiEndpoint.post("revokeLink", "/v1/portal/links/revoke", {
      payload: Schema.Struct({ link_id: Id.annotate({ description: "The link, by its id." }) }).annotate({
        identifier: "RevokePortalLink",
      }),
      success: Done,
      error: NotFound,
    }).annotateMerge(
      access.tenantManagers.manage(
        "Revoke a portal link",
        "Ends the link, or the portal that it opened, at every replica at once. A project key is a 403.",
      ),
    ),
  )
  .middleware(WebhookAuthorization)
  .middleware(WebhookRequestErrors)
  .annotateMerge(OpenApi.annotations({ title: "Portal", description: "The console for a tenant's own people." })) {}
