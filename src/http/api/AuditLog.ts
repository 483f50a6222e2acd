import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { AuditEntry } from "../../domain/audit/AuditEntry.ts"
import { Forbidden, NotFound } from "../../domain/Errors.ts"
import { NextCursor, pageQuery } from "../../domain/Page.ts"
import { Id } from "../../domain/Schemas.ts"
import { Authorization } from "./middleware.ts"
import { access } from "./security.ts"

export class AuditGroup extends HttpApiGroup.make("audit")
  .add(
    HttpApiEndpoint.get("list", "/api/v0/orgs/:orgId/audit", {
      params: { orgId: Id },
      query: pageQuery,
      success: Schema.Struct({ entries: Schema.Array(AuditEntry), nextCursor: NextCursor }).annotate({
        identifier: "AuditPage",
      }),
      error: [Forbidden, NotFound],
    })
      .annotateMerge(access.management)
      .annotate(OpenApi.Summary, "Read an org's audit log")
      .annotate(
        OpenApi.Description,
        "Who changed what, newest first: orgs, projects, keys, webhook endpoints and schedules. Each change is committed " +
          "together with its entry, and no entry is ever changed.",
      ),
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Audit log", description: "Who changed what." })) {}
