import { ByteSize, Schema } from "effect"
import { HttpIncomingMessage } from "effect/http"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import {
  ApiKey,
  CreatedApiKey,
  CreateOrgKey,
  CreateProjectKey,
  RotateKey,
  ValidateKey,
  ValidKey,
} from "../../domain/keys/ApiKey.ts"
import { Conflict, Forbidden, LimitReached, NotFound, Unauthorized } from "../../domain/Errors.ts"
import { NextCursor, pageQuery } from "../../domain/Page.ts"
import { Id } from "../../domain/Schemas.ts"
import { idempotencyKey } from "./idempotencyKey.ts"
import { Authorization, Idempotent, OptionalAuthorization } from "./middleware.ts"
import { TooManyRequestsWithRetryAfter } from "./responses.ts"
import { access } from "./security.ts"

export class ApiKeysGroup extends HttpApiGroup.make("keys")
  .add(
    HttpApiEndpoint.post("createForProject", "/api/v0/keys", {
      payload: CreateProjectKey,
      success: CreatedApiKey,
      error: [Forbidden, NotFound, LimitReached],
    })
      .middleware(Idempotent)
      .middleware(Authorization)
      .annotateMerge(access.management)
      .annotateMerge(idempotencyKey)
      .annotate(OpenApi.Summary, "Create an API key of a project")
      .annotate(OpenApi.Description, "The full key is in this answer and nowhere else: it is stored as a hash."),
    HttpApiEndpoint.post("createForOrg", "/api/v0/orgs/:orgId/keys", {
      params: { orgId: Id },
      payload: CreateOrgKey,
      success: CreatedApiKey,
      error: [Forbidden, NotFound, LimitReached],
    })
      .middleware(Idempotent)
      .middleware(Authorization)
      .annotateMerge(access.administrator)
      .annotateMerge(idempotencyKey)
      .annotate(OpenApi.Summary, "Create an API key of an org")
      .annotate(OpenApi.Description, "The full key is in this answer and nowhere else: it is stored as a hash."),
    HttpApiEndpoint.get("list", "/api/v0/orgs/:orgId/keys", {
      params: { orgId: Id },
      query: pageQuery,
      success: Schema.Struct({ keys: Schema.Array(ApiKey), nextCursor: NextCursor }).annotate({
        identifier: "ApiKeyPage",
      }),
      error: [Forbidden, NotFound],
    })
      .middleware(Authorization)
      .annotateMerge(access.management)
      .annotate(OpenApi.Summary, "List an org's API keys")
      .annotate(OpenApi.Description, "Its own and its projects' keys, oldest first, without their secrets."),
    HttpApiEndpoint.delete("remove", "/api/v0/orgs/:orgId/keys/:id", {
      params: { orgId: Id, id: Id },
      success: Schema.Struct({ deleted: Schema.Boolean }).annotate({ identifier: "Deleted" }),
      error: [Forbidden, NotFound],
    })
      .middleware(Authorization)
      .annotateMerge(access.management)
      .annotate(OpenApi.Summary, "Delete an API key")
      .annotate(OpenApi.Description, "Any key of the org, a project's too. It is refused from then on."),
    HttpApiEndpoint.post("rotate", "/api/v0/orgs/:orgId/keys/:id/rotate", {
      params: { orgId: Id, id: Id },
      payload: RotateKey,
      success: CreatedApiKey,
      error: [Forbidden, NotFound, Conflict, LimitReached],
    })
      .middleware(Idempotent)
      .middleware(Authorization)
      .annotateMerge(access.management)
      .annotateMerge(idempotencyKey)
      .annotate(OpenApi.Summary, "Rotate an API key")
      .annotate(
        OpenApi.Description,
        "Makes a new key of the same name, project and rate limit, shown in this answer and nowhere else. The old one " +
          "stays good for the overlap, and no longer than it was to be. One that has expired, or was rotated before, is a 409.",
      ),
    HttpApiEndpoint.post("validate", "/api/v0/keys/validate", {
      payload: ValidateKey,
      success: ValidKey,
      error: [Unauthorized, TooManyRequestsWithRetryAfter],
    })
      .middleware(OptionalAuthorization)
      .annotate(HttpIncomingMessage.MaxBodySize, ByteSize.kibibytes(4))
      .annotateMerge(access.anyone)
      .annotate(OpenApi.Summary, "Validate an API key")
      .annotate(
        OpenApi.Description,
        "Tells whose key it is. Every reason for which a key is not valid gives the same 401. A caller without a " +
          "credential may fail 600 times a minute per client address; a gateway sends a credential of its own. A key with " +
          "a rate limit is a 429 once it is used up.",
      ),
  )
  .annotateMerge(OpenApi.annotations({ title: "API keys", description: "Issue, check and delete API keys." })) {}
