import { Context } from "effect"
import { HttpApi, OpenApi } from "effect/http-api"
import { version } from "../../domain/version.ts"
import { ActivityGroup, LiveGroup } from "./activityApi.ts"
import { AlertsGroup, ServiceAlertsGroup } from "./alertsApi.ts"
import { ApiKeysGroup, RolesGroup, SecretScanningGroup } from "./apiKeysApi.ts"
import { AuditGroup } from "./auditLogApi.ts"
import { ChatGroup } from "./chatApi.ts"
import { DeploymentsGroup } from "./deploymentsApi.ts"
import { EventsGroup, EventTypesGroup } from "./eventsApi.ts"
import { JobsGroup, SchedulesGroup, WorkflowsGroup } from "./jobsApi.ts"
import { OrgsGroup } from "./orgsApi.ts"
import { ProjectDocsGroup } from "./projectDocsApi.ts"
import { ProjectsGroup } from "./projectsApi.ts"
import { PortalGroup, SessionsGroup } from "./sessionsApi.ts"
import { SystemGroup } from "./systemApi.ts"
import { DeliveriesGroup, WebhooksGroup } from "./webhooksApi.ts"
import { Idempotent, PeopleWho, RequestErrors, WebhookIdempotent } from "./access.ts"
import { describeApi, type OperationFacts } from "./openapi.ts"
import { knownFieldsOnly } from "./responses.ts"

/** The definition of all operations. The server, the client and the OpenAPI document come from it. */
export class Api extends HttpApi.make("gatehouse")
  .add(ApiKeysGroup)
  .add(RolesGroup)
  .add(SecretScanningGroup)
  .add(OrgsGroup)
  .add(AuditGroup)
  .add(AlertsGroup)
  .add(ServiceAlertsGroup)
  .add(ProjectsGroup)
  .add(DeploymentsGroup)
  .add(ChatGroup)
  .add(ProjectDocsGroup)
  .add(SystemGroup)
  .add(SessionsGroup)
  .add(ActivityGroup)
  .add(LiveGroup)
  .middleware(RequestErrors)
  .add(WebhooksGroup)
  .add(DeliveriesGroup)
  .add(EventsGroup)
  .add(EventTypesGroup)
  .add(JobsGroup)
  .add(SchedulesGroup)
  .add(WorkflowsGroup)
  .add(PortalGroup)
  .annotate(HttpApi.PayloadParseOptions, knownFieldsOnly)
  .annotate(HttpApi.QueryParseOptions, knownFieldsOnly)
  .annotateMerge(
    OpenApi.annotations({
      title: "Gatehouse",
      version,
      license: { name: "MIT" },
      description: [
        "Gatehouse creates and validates API keys for your tenants, delivers signed webhooks and retries them, queues background",
        "jobs, and registers deployments that CI proves with its own OIDC token.",
        "",
        "**Open mode** (without `ADMIN_TOKEN`; the server listens on loopback only): operations under `/api/v0` need no",
        "credential. The empty security requirement `{}` on an operation says so. **Guarded mode** (with `ADMIN_TOKEN`): an",
        "operation needs one of its listed credentials. The empty one does not count, except on",
        "`POST /api/v0/keys/validate`. In both modes, a credential that is sent is checked: an invalid one is a 401.",
        "",
        "Operations under `/v1` need an API key in both modes, as a bearer token or in `x-api-key`. The tenant is the org of",
        "the key. The administrator (open mode: anyone) acts for an org with `x-org-id: <orgId>`; an unknown org is a 404.",
        "",
        "Operations that create something accept an `Idempotency-Key`. The same request with the same key within 24 hours",
        "creates nothing more and gets the same response.",
        "",
        "A field that the operation does not have is a 400 that names it and the nearest field: `/api/v0` uses `expiresAt`,",
        "`/v1` uses `lease_seconds`. So is a query parameter that the operation does not have. Only the chat,",
        "`register-deployment` and secret scanning ignore further fields.",
        "",
        'Every response that is not 2xx is `{ "error": "<sentence>", "code": "<snake_case>" }`. Under `/v1` it is',
        '`{ "success": false, "message": "<sentence>", "code": "<snake_case>" }`. Every response has an `x-request-id`: the',
        "request's own if it has one. Another method at a known path is a 405 with `Allow`. A 401 has",
        "`WWW-Authenticate: Bearer`.",
        "",
        "A request body has at most 1 MiB (4 KiB for `/api/v0/keys/validate`, 1 KiB for `/api/v0/register-deployment`, 8 MiB",
        "for `/api/svc/chat` and `/v1/events/publish-batch`) and at most 50,000 JSON values, 20,000 of them members of",
        "objects (fewer where an operation needs fewer). Numbers keep their text. The server first checks the length, then",
        "the credential, and then reads the body.",
      ].join("\n"),
      transform: (spec): Record<string, unknown> => describeApi(spec, factsOfOperations()),
    }),
  ) {}

const factsOfOperations = () => {
  const facts = new Map<string, OperationFacts>()
  HttpApi.reflect(Api, {
    onGroup: () => {},
    onEndpoint: ({ endpoint, group, middleware }) => {
      const { ofAll, ofOrg } = Context.get(endpoint.annotations, PeopleWho)
      const named = [ofAll.join(", "), ofOrg.length === 0 ? "" : `of the org: ${ofOrg.join(", ")}`].filter(Boolean)
      const all: ReadonlySet<unknown> = middleware
      facts.set(`${group.identifier}.${endpoint.identifier}`, {
        roles: named.join("; ") || "none",
        isRepeatable: all.has(Idempotent) || all.has(WebhookIdempotent),
      })
    },
  })
  return facts
}
