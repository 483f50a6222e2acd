import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { AuditEntry, auditFilter } from "../../domain/audit/AuditEntry.ts"
import { Forbidden, NotFound } from "../../domain/Errors.ts"
import { NextCursor, pageQuery } from "../../domain/Page.ts"
import { OrgId } from "../../domain/Schemas.ts"
import { access, Authorization } from "./access.ts"

export class AuditGroup extends HttpApiGroup.make("audit")
  .add(
    HttpApiEndpoint.get("list", "/api/v0/orgs/:orgId/audit", {
      params: { orgId: OrgId },
      query: { ...pageQuery, ...auditFilter },
      success: Schema.Struct({
        entries: Schema.Array(AuditEntry).annotate({ description: "The entries of this page, the newest first." }),
        nextCursor: NextCursor,
      }).annotate({
        identifier: "AuditPage",
      }),
      error: [Forbidden, NotFound],
    }).annotateMerge(
      access.management.read(
        "Read the audit log of an org",
        "Changes of orgs, projects, keys, webhook endpoints and schedules, newest first. A change and its entry are committed " +
          "together. Entries never change.",
      ),
    ),
    HttpApiEndpoint.get("export", "/api/v0/orgs/:orgId/audit/export", {
      params: { orgId: OrgId },
      query: auditFilter,
      success: HttpApiSchema.StreamNdjson({ schema: AuditEntry }),
      error: [Forbidden, NotFound],
    }).annotateMerge(
      access.management.read(
        "Export the audit log of an org",
        "All entries that match, newest first, one JSON object in each line (NDJSON), as they are read. A response that fails on " +
          "the way is cut off.",
      ),
    ),
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Audit log", description: "Who changed what." })) {}
