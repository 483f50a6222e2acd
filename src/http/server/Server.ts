import { ByteSize, Effect, Layer } from "effect"
import { HttpIncomingMessage, HttpRouter, HttpServerError } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { Api } from "../api/Api.ts"
import * as Authorization from "./Authorization.ts"
import * as ChatBodies from "./requestBody.ts"
import * as Console from "./console.ts"
import * as Docs from "./apiReferencePage.ts"
import * as Faults from "./Faults.ts"
import * as Activity from "../handlers/activityHandlers.ts"
import * as Alerts from "../handlers/alertsHandlers.ts"
import * as ApiKeys from "../handlers/apiKeysHandlers.ts"
import * as AuditLog from "../handlers/auditLogHandlers.ts"
import * as Chat from "../handlers/chatHandlers.ts"
import * as Deployments from "../handlers/deploymentsHandlers.ts"
import * as Events from "../handlers/eventsHandlers.ts"
import * as Jobs from "../handlers/jobsHandlers.ts"
import * as Orgs from "../handlers/orgsHandlers.ts"
import * as ProjectDocs from "../handlers/projectDocsHandlers.ts"
import * as Projects from "../handlers/projectsHandlers.ts"
import * as Sessions from "../handlers/sessionsHandlers.ts"
import * as System from "../handlers/systemHandlers.ts"
import * as Webhooks from "../handlers/webhooksHandlers.ts"
import * as Idempotency from "./idempotentRequests.ts"
import * as Metrics from "./metrics.ts"
import * as RequestErrors from "./RequestErrors.ts"
import * as SignIn from "./signIn.ts"
import { shadowed } from "./knownRoutes.ts"
import * as SpanNames from "./requestTelemetry.ts"

const api = HttpApiBuilder.layer(Api).pipe(
  Layer.provide([ApiKeys.layer, AuditLog.layer, Orgs.layer, Projects.layer, Deployments.layer, System.layer]),
  Layer.provide([Activity.layer, Activity.live, Webhooks.layer, Events.layer, Jobs.layer, Chat.layer]),
  Layer.provide([ProjectDocs.layer, ApiKeys.secretScanning, ApiKeys.roles, Sessions.layer, Alerts.layer]),
  Layer.provide([
    Authorization.layer,
    ChatBodies.layer,
    ApiKeys.githubSignature,
    RequestErrors.layer,
    Idempotency.layer,
  ]),
)

/** A path without a parameter has its own methods only. */
const ownMethods = HttpRouter.use((router) =>
  Effect.forEach(
    shadowed,
    ({ method, path }) =>
      router.add(method as "DELETE", path as `/${string}`, (request) =>
        Effect.fail(new HttpServerError.HttpServerError({ reason: new HttpServerError.RouteNotFound({ request }) })),
      ),
    { discard: true },
  ),
)

/** Serves all operations and pages. Requires the services of the domain and an `HttpServer`. */
export const layer = HttpRouter.serve(
  Layer.mergeAll(api, ownMethods, Docs.layer, Console.layer, SignIn.layer, Metrics.layer, Faults.layer),
  {
    disableLogger: true,
    disableListenLog: true,
    // One spelling of each path, so that a proxy's rule for a path holds.
    routerConfig: { caseSensitive: true, ignoreDuplicateSlashes: false, ignoreTrailingSlash: false },
  },
).pipe(
  Layer.provide(Layer.succeed(HttpIncomingMessage.MaxBodySize, ByteSize.mebibytes(1))),
  Layer.provide([SpanNames.spanNames, SpanNames.spansWithoutQuery]),
)
