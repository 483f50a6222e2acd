import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { AuditEntry } from "../../domain/audit/AuditEntry.ts"
import { Forbidden, NotFound } from "../../domain/Errors.ts"
import { NextCursor, pageQuery } from "../../domain/Page.ts"
import { Id } from "../../domain/Schemas.ts"
import { access, Authorization } from "./security.ts"

export class AuditGroup extends HttpApiGroup.make("audit")
  .add(
    HttpApiEndpoint.get("list", "/api/v0/orgs/:orgId/audit", {
      params: { orgId: Id },
      query: pageQuery,
      success: Schema.Struct({ entries: Schema.Array(AuditEntry), nextCursor: NextCursor }).annotate({
        identifier: "AuditPage",
      }),
      error: [Forbidden, NotFound],
    }).annotateMerge(
      access.management(
        "Read the audit log of an org",
        "Changes of orgs, projects, keys, webhook endpoints and schedules, newest first. A change and its entry are committed " +
          "together. Entries never change.",
      ),
    ),
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Audit log", description: "Who changed what." })) {}
