import { ByteSize, Schema } from "effect"
import { HttpIncomingMessage } from "effect/http"
import { HttpApi, HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import {
  Conflict,
  Forbidden,
  IpNotAllowed,
  LimitReached,
  NotFound,
  Unauthorized,
  Unavailable,
} from "../../domain/Errors.ts"
import { NextCursor, pageQuery } from "../../domain/Page.ts"
import { KeyId, OrgId } from "../../domain/Schemas.ts"
import {
  ApiKey,
  authorizeQuery,
  CreatedApiKey,
  CreateOrgKey,
  CreateProjectKey,
  ExchangeKey,
  keyFilters,
  KeyToken,
  RotateKey,
  UpdateKey,
  ValidatedKey,
  ValidateKey,
} from "../../domain/keys/ApiKey.ts"
import { UsageInterval, usageQuery } from "../../domain/keys/KeyUsage.ts"
import { ImportedKeys, ImportKeys } from "../../domain/keys/ImportKeys.ts"
import { RoleName } from "../../domain/keys/KeySettings.ts"
import { PutRole, Role, RoleList } from "../../domain/keys/Roles.ts"
import { ReportedTokens, TokenLabel } from "../../domain/keys/LeakedKeys.ts"
import { Deleted, furtherFieldsIgnored, KeyLimitedWithRetryAfter } from "./responses.ts"
import { access, Authorization, GithubSignature, Idempotent } from "./access.ts"

/** A proxy may send any method, and Envoy appends a path; the router gets a GET of this path. */
export const authorizePath = "/api/v0/keys/authorize"
export const validatePath = "/api/v0/keys/validate"
/** Of the body of a validation. One has about 60, with 20 permissions up to 3 KiB. */
export const maxValidateBytes = 4 * 1024

/** The answer to a proxy: only headers, each for the upstream. */
const Authorized = HttpApiSchema.WithHeaders(
  HttpApiSchema.Empty(200).annotate({ description: "The request may pass. The headers are for the upstream." }),
  {
    "x-gatehouse-org": Schema.String.annotate({ description: "The org of the key." }),
    "x-gatehouse-project": Schema.String.annotate({ description: "The project of the key. Empty: a key of the org." }),
    "x-gatehouse-key": Schema.String.annotate({ description: "The id of the key." }),
    "x-gatehouse-external-id": Schema.String.annotate({
      description: "The externalId of the key. What is not visible ASCII is percent-encoded. Empty: it has none.",
    }),
    "x-gatehouse-permissions": Schema.String.annotate({
      description: "The permissions of the key, separated by spaces. Empty: none, or more than 2,048 characters.",
    }),
    "x-gatehouse-credits": Schema.String.annotate({ description: "The credits that are left. Empty: no credits." }),
    ratelimit: Schema.optionalKey(
      Schema.String.annotate({ description: "What is left of the rate limit, and the seconds until it is whole." }),
    ),
    "ratelimit-policy": Schema.optionalKey(
      Schema.String.annotate({ description: "The rate limit: its units, and its window in seconds." }),
    ),
  },
)

const UsageResponse = Schema.Struct({
  usage: Schema.Array(UsageInterval).annotate({ description: "One entry for each interval, the oldest first." }),
}).annotate({ identifier: "Usage" })
const usageDescription =
  "Validations by interval, empty intervals included, at most 1,000 intervals. They are written every few seconds and kept " +
  "for `RETENTION_DAYS`."

export class ApiKeysGroup extends HttpApiGroup.make("keys")
  .add(
    HttpApiEndpoint.post("createForProject", "/api/v0/keys", {
      payload: CreateProjectKey,
      success: CreatedApiKey,
      error: [Forbidden, NotFound, LimitReached],
    })
      .middleware(Idempotent)
      .annotateMerge(
        access.keys.manage(
          "Create an API key of a project",
          "Only this response contains the full key. Gatehouse stores its hash.",
        ),
      ),
    HttpApiEndpoint.post("createForOrg", "/api/v0/orgs/:orgId/keys", {
      params: { orgId: OrgId },
      payload: CreateOrgKey,
      success: CreatedApiKey,
      error: [Forbidden, NotFound, LimitReached],
    })
      .middleware(Idempotent)
      .annotateMerge(
        access.orgKeys.administer(
          "Create an API key of an org",
          "Only this response contains the full key. Gatehouse stores its hash.",
        ),
      ),
    HttpApiEndpoint.post("importKeys", "/api/v0/orgs/:orgId/keys/import", {
      params: { orgId: OrgId },
      payload: ImportKeys,
      success: ImportedKeys,
      error: [Forbidden, NotFound, Conflict, LimitReached],
    })
      .middleware(Idempotent)
      .annotateMerge(
        access.administrator.administer(
          "Import API keys",
          "Keys that were made elsewhere, by their hashes: up to 1,000, all or none. They are validated like others, and have any " +
            "form of 8 to 255 characters. A hash that the org has imported before is in `existing` and changes nothing, so that " +
            "a request is safe to repeat. A hash that is not SHA-256 is replaced by it at the first validation.",
        ),
      ),
    HttpApiEndpoint.get("list", "/api/v0/orgs/:orgId/keys", {
      params: { orgId: OrgId },
      query: { ...pageQuery, ...keyFilters },
      success: Schema.Struct({
        keys: Schema.Array(ApiKey).annotate({ description: "The keys of this page." }),
        nextCursor: NextCursor,
      }).annotate({
        identifier: "ApiKeyPage",
      }),
      error: [Forbidden, NotFound],
    }).annotateMerge(
      access.keys.read(
        "List the API keys of an org",
        "The keys of the org and of its projects, oldest first, that fit all filters. Only their prefixes are shown. `text` is a " +
          "part of the name, the external id, the prefix or the id. With `state` or `text`, or with two filters, a page looks at 2,000 keys at most: it can have fewer keys than `limit` while " +
          "`nextCursor` continues.",
      ),
    ),
    HttpApiEndpoint.get("get", "/api/v0/orgs/:orgId/keys/:id", {
      params: { orgId: OrgId, id: KeyId },
      success: ApiKey,
      error: [Forbidden, NotFound],
    }).annotateMerge(access.keys.read("Get an API key", "The key as in the list.")),
    HttpApiEndpoint.patch("update", "/api/v0/orgs/:orgId/keys/:id", {
      params: { orgId: OrgId, id: KeyId },
      payload: UpdateKey,
      success: ApiKey,
      error: [Forbidden, NotFound, Conflict, LimitReached],
    }).annotateMerge(
      access.keys.manage(
        "Change an API key",
        "Absent fields do not change; null clears. Every replica applies the change within three seconds, usually within " +
          "milliseconds. New limits also hold for keys that share them since a rotation. A key that was reported as leaked cannot be enabled again: 409.",
      ),
    ),
    HttpApiEndpoint.delete("remove", "/api/v0/orgs/:orgId/keys/:id", {
      params: { orgId: OrgId, id: KeyId },
      success: Deleted,
      error: [Forbidden, NotFound],
    }).annotateMerge(
      access.keys.manage(
        "Delete an API key",
        "Deletes an org key or a project key of the org. Every replica refuses the key from now on.",
      ),
    ),
    HttpApiEndpoint.post("rotate", "/api/v0/orgs/:orgId/keys/:id/rotate", {
      params: { orgId: OrgId, id: KeyId },
      payload: RotateKey,
      success: CreatedApiKey,
      error: [Forbidden, NotFound, Conflict, LimitReached],
    })
      .middleware(Idempotent)
      .annotateMerge(
        access.keys.manage(
          "Rotate an API key",
          "Creates a new key with the same name, project and settings, unless the request sets others. Only this response " +
            "contains it. The old key stays valid for the grace period, but not longer than before. Both keys share one counter of " +
            "the rate limit and of the credits. A key that has expired or was rotated before is a 409.",
        ),
      ),
    HttpApiEndpoint.get("usage", "/api/v0/orgs/:orgId/keys/:id/usage", {
      params: { orgId: OrgId, id: KeyId },
      query: usageQuery,
      success: UsageResponse,
      error: [Forbidden, NotFound],
    }).annotateMerge(access.keys.read("Show the usage of an API key", usageDescription)),
    HttpApiEndpoint.get("orgUsage", "/api/v0/orgs/:orgId/usage", {
      params: { orgId: OrgId },
      query: usageQuery,
      success: UsageResponse,
      error: [Forbidden, NotFound],
    }).annotateMerge(access.management.read("Show the usage of all API keys of an org", usageDescription)),
    HttpApiEndpoint.post("validate", validatePath, {
      payload: ValidateKey,
      success: ValidatedKey,
      error: [Unauthorized, Forbidden, IpNotAllowed, KeyLimitedWithRetryAfter],
    })
      .annotate(HttpIncomingMessage.MaxBodySize, ByteSize.bytes(maxValidateBytes))
      .annotateMerge(
        access.anyone.read(
          "Validate an API key",
          "Returns the owner of a key. Every invalid key is the same 401. Without a credential, a client address may fail 600 " +
            "times a minute; a gateway should send a credential of its own. An address outside of `allowedIps` or a missing permission is a 403, and takes nothing. A " +
            "key above its rate limit, or without credits, is a 429.",
        ),
      ),
    HttpApiEndpoint.post("token", "/api/v0/keys/token", {
      payload: ExchangeKey,
      success: KeyToken,
      error: [Unauthorized, Forbidden, IpNotAllowed, KeyLimitedWithRetryAfter],
    })
      .annotate(HttpIncomingMessage.MaxBodySize, ByteSize.kibibytes(4))
      .annotateMerge(
        access.holder.read(
          "Exchange an API key for a token",
          "Returns a JWT that services verify without asking, with the keys of `/.well-known/jwks.json`. Its claims are `iss` " +
            "(`BASE_URL`), `sub` (the id of the key), `org`, `project`, `permissions`, `jti`, `iat` and `exp`. The exchange is one use of the key. A " +
            "token stays valid until it expires, even if its key is deleted or changed.",
        ),
      ),
  )
  .middleware(Authorization)
  // The credential is the key of the request that the proxy asks about.
  .add(
    HttpApiEndpoint.get("authorize", authorizePath, {
      query: authorizeQuery,
      success: Authorized,
      error: [Unauthorized, Forbidden, IpNotAllowed, KeyLimitedWithRetryAfter, Unavailable],
    }).annotateMerge(
      access.proxy.read(
        "Authorize a request of a proxy",
        "For proxies that ask before they pass a request on (nginx, Envoy, Traefik, Caddy and others), with any method. The " +
          "API key is that of the request. A valid use is a 200 with an empty body, and headers for the upstream; everything " +
          "else is what `POST /api/v0/keys/validate` answers. Envoy appends the path of the request to its own: send the query " +
          "as one segment, `/api/v0/keys/authorize/permission=files.read`, or `-` for none. A browser's preflight (`OPTIONS` with " +
          "`Access-Control-Request-Method`) without a key is a 200, with empty headers: the upstream answers it.",
      ),
    ),
  )
  .annotateMerge(
    OpenApi.annotations({ title: "API keys", description: "Create, validate, rotate and delete API keys." }),
  ) {}

const role = { orgId: OrgId, name: RoleName }

export class RolesGroup extends HttpApiGroup.make("roles")
  .add(
    HttpApiEndpoint.get("list", "/api/v0/orgs/:orgId/roles", {
      params: { orgId: OrgId },
      success: RoleList,
      error: [Forbidden, NotFound],
    }).annotateMerge(access.management.read("List the roles of an org", "All of them, in the order of their names.")),
    HttpApiEndpoint.put("put", "/api/v0/orgs/:orgId/roles/:name", {
      params: role,
      payload: PutRole,
      success: Role,
      error: [Forbidden, NotFound, LimitReached],
    }).annotateMerge(
      access.management.manage(
        "Set a role",
        "Creates the role, or replaces its permissions. Every replica applies the change to all keys with the role within three " +
          "seconds, usually within milliseconds. An org has at most 100 roles.",
      ),
    ),
    HttpApiEndpoint.delete("remove", "/api/v0/orgs/:orgId/roles/:name", {
      params: role,
      success: Deleted,
      error: [Forbidden, NotFound],
    }).annotateMerge(
      access.management.manage(
        "Delete a role",
        "Its permissions are taken from all keys with the role. They keep its name, which grants nothing until the role is " +
          "set again.",
      ),
    ),
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Roles", description: "Named sets of permissions for API keys." })) {}

export class SecretScanningGroup extends HttpApiGroup.make("secretScanning")
  .add(
    HttpApiEndpoint.post("github", "/api/v0/secret-scanning/github", {
      payload: ReportedTokens,
      success: Schema.Array(TokenLabel),
    })
      .middleware(GithubSignature)
      .annotate(HttpApi.PayloadParseOptions, furtherFieldsIgnored)
      .annotateMerge(
        access.github.nobody(
          "Report leaked keys",
          "For GitHub's secret scanning partner program. Disables the reported keys for good and labels each token. At most " +
            "1,000 tokens. A body whose signature is not valid is a 401, and nothing happens.",
        ),
      ),
  )
  .annotateMerge(
    OpenApi.annotations({ title: "Secret scanning", description: "Reports of keys that were found in public." }),
  ) {}
