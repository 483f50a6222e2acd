import { HttpApi, OpenApi } from "effect/http-api"
import { ApiKeysGroup } from "./ApiKeys.ts"
import { AuditGroup } from "./AuditLog.ts"
import { ChatGroup } from "./Chat.ts"
import { DeploymentsGroup } from "./Deployments.ts"
import { JobsGroup, SchedulesGroup } from "./Jobs.ts"
import { OrgsGroup } from "./Orgs.ts"
import { ProjectsGroup } from "./Projects.ts"
import { SystemGroup } from "./System.ts"
import { DeliveriesGroup, WebhooksGroup } from "./Webhooks.ts"
import { RequestErrors } from "./middleware.ts"
import { describeApi } from "./openapi.ts"

/** The definition of everything the service answers; the server, the client and the OpenAPI document come from it. */
export class Api extends HttpApi.make("gatehouse")
  .add(ApiKeysGroup)
  .add(OrgsGroup)
  .add(AuditGroup)
  .add(ProjectsGroup)
  .add(DeploymentsGroup)
  .add(ChatGroup)
  .add(SystemGroup)
  .middleware(RequestErrors)
  .add(WebhooksGroup)
  .add(DeliveriesGroup)
  .add(JobsGroup)
  .add(SchedulesGroup)
  // All that is wrong with a body is said at once.
  .annotate(HttpApi.PayloadParseOptions, { errors: "all" })
  .annotateMerge(
    OpenApi.annotations({
      title: "Gatehouse",
      version: "0.1.0",
      license: { name: "MIT" },
      description: [
        "API keys, projects, deployments registered by the CI's own token, and webhooks.",
        "",
        "**Open mode** (the server has no `ADMIN_TOKEN`; it listens on loopback only): operations under `/api/v0` need no",
        "credential, as the empty security requirement `{}` on them says. **Guarded mode** (`ADMIN_TOKEN` is set): the",
        "credentials listed on an operation are what it lets in, and the empty one does not count, except on",
        "`POST /api/v0/keys/validate`. In both modes a credential that is sent is checked: a wrong one is a 401.",
        "",
        "Operations under `/v1` want an API key in `x-api-key` in either mode; the tenant is the key's org.",
        "",
        "Operations that create something take an `Idempotency-Key`: sent again under the same one within 24 hours, a request",
        "creates nothing more and gets the same answer.",
        "",
        "Fields that an operation does not know are ignored, so mind their spelling: `/api/v0` writes `expiresAt`, `/v1`",
        "`lease_seconds`.",
        "",
        'Every answer that is not a 2xx is `{ "error": "<sentence>", "code": "<snake_case>" }`, under `/v1`',
        '`{ "success": false, "message": "<sentence>", "code": "<snake_case>" }`. Every answer carries an `x-request-id`: the',
        "caller's own when it sent one. A method that a path does not have is a 405 with `Allow`; a 401 carries",
        "`WWW-Authenticate: Bearer`.",
        "",
        "A request body has at most 1 MiB (4 KiB for `/api/v0/keys/validate`, 1 KiB for `/api/v0/register-deployment`, 8 MiB",
        "for `/api/svc/chat`) and 100,000 JSON values. Too large a length is refused first, then the credential is checked,",
        "then the body is read.",
      ].join("\n"),
      transform: describeApi,
    }),
  ) {}
