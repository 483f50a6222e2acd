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
import { Authorization, Idempotent } from "./middleware.ts"
import { Deleted, TooManyRequestsWithRetryAfter } from "./responses.ts"
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
      .annotate(OpenApi.Description, "Only this answer contains the full key. Gatehouse stores its hash."),
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
      .annotate(OpenApi.Description, "Only this answer contains the full key. Gatehouse stores its hash."),
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
      .annotate(OpenApi.Summary, "List the API keys of an org")
      .annotate(
        OpenApi.Description,
        "The keys of the org and of its projects, oldest first. Only their prefixes are shown.",
      ),
    HttpApiEndpoint.delete("remove", "/api/v0/orgs/:orgId/keys/:id", {
      params: { orgId: Id, id: Id },
      success: Deleted,
      error: [Forbidden, NotFound],
    })
      .middleware(Authorization)
      .annotateMerge(access.management)
      .annotate(OpenApi.Summary, "Delete an API key")
      .annotate(
        OpenApi.Description,
        "Deletes an org key or a project key of the org. Every replica refuses the key from now on.",
      ),
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
        "Creates a new key with the same name, project and rate limit. Only this answer contains it. The old key stays valid " +
          "for the overlap, but not longer than before. A key that has expired or was rotated before is a 409.",
      ),
    HttpApiEndpoint.post("validate", "/api/v0/keys/validate", {
      payload: ValidateKey,
      success: ValidKey,
      error: [Unauthorized, TooManyRequestsWithRetryAfter],
    })
      .middleware(Authorization)
      .annotate(HttpIncomingMessage.MaxBodySize, ByteSize.kibibytes(4))
      .annotateMerge(access.anyone)
      .annotate(OpenApi.Summary, "Validate an API key")
      .annotate(
        OpenApi.Description,
        "Returns the owner of a key. Every invalid key is the same 401. Without a credential, a client address may fail 600 " +
          "times a minute; a gateway should send a credential of its own. A key above its rate limit is a 429.",
      ),
  )
  .annotateMerge(
    OpenApi.annotations({ title: "API keys", description: "Create, validate, rotate and delete API keys." }),
  ) {}
