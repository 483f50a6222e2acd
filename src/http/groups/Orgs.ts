import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { Forbidden } from "../../domain/Errors.ts"
import { CreateOrg, Org } from "../../domain/Org.ts"
import { NextCursor, pageQuery } from "../../domain/Page.ts"
import { idempotencyKey } from "../idempotencyKey.ts"
import { Authorization, Idempotent } from "../middleware.ts"
import { access } from "../security.ts"

export class OrgsGroup extends HttpApiGroup.make("orgs")
  .add(
    HttpApiEndpoint.post("create", "/api/v0/orgs", { payload: CreateOrg, success: Org, error: Forbidden })
      .middleware(Idempotent)
      .annotateMerge(access.administrator)
      .annotateMerge(idempotencyKey)
      .annotate(OpenApi.Summary, "Create an org")
      .annotate(OpenApi.Description, "An org is a tenant: it has projects, keys and webhook endpoints."),
    HttpApiEndpoint.get("list", "/api/v0/orgs", {
      query: pageQuery,
      success: Schema.Struct({ orgs: Schema.Array(Org), nextCursor: NextCursor }).annotate({ identifier: "OrgPage" }),
      error: Forbidden,
    })
      .annotateMerge(access.management)
      .annotate(OpenApi.Summary, "List orgs")
      .annotate(OpenApi.Description, "All orgs, oldest first; for an org key, its own."),
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Orgs", description: "The tenants." })) {}
