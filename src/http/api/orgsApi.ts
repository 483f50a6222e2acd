import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { Conflict, Forbidden, NotFound } from "../../domain/Errors.ts"
import { CreateOrg, Org, OrgDetail, orgFilters, UpdateOrg } from "../../domain/orgs/Org.ts"
import { findQuery, Named } from "../../domain/orgs/Named.ts"
import { OrgErasure } from "../../domain/orgs/OrgErasure.ts"
import { NextCursor, pageQuery } from "../../domain/Page.ts"
import { OrgId } from "../../domain/Schemas.ts"
import { Deleted } from "./responses.ts"
import { access, Authorization, Idempotent } from "./access.ts"

export class OrgsGroup extends HttpApiGroup.make("orgs")
  .add(
    HttpApiEndpoint.post("create", "/api/v0/orgs", { payload: CreateOrg, success: Org, error: Forbidden })
      .middleware(Idempotent)
      .annotateMerge(
        access.administrator.administer(
          "Create an org",
          "An org is a tenant. It has projects, keys and webhook endpoints.",
        ),
      ),
    HttpApiEndpoint.get("list", "/api/v0/orgs", {
      query: { ...pageQuery, ...orgFilters },
      success: Schema.Struct({
        orgs: Schema.Array(Org).annotate({ description: "The orgs of this page." }),
        nextCursor: NextCursor,
      }).annotate({ identifier: "OrgPage" }),
      error: Forbidden,
    }).annotateMerge(
      access.management.read(
        "List orgs",
        "All orgs that fit all filters, oldest first. An org key sees only its own org. `text` is a part of the " +
          "name or of the id. " +
          "With it, a page looks at 2,000 orgs at most: it can have fewer orgs than `limit` while `nextCursor` " +
          "continues.",
      ),
    ),
    HttpApiEndpoint.get("find", "/api/v0/find", {
      query: findQuery,
      success: Schema.Struct({
        found: Schema.Array(Named).annotate({ description: "What was found, the newest first." }),
        nextCursor: NextCursor,
      }).annotate({ identifier: "NamedPage" }),
      error: Forbidden,
    }).annotateMerge(
      access.management.read(
        "Find by name",
        "Projects, API keys, endpoints and schedules whose name has the text, and changes of a request, in all " +
          "orgs; an org key " +
          "finds what is in its own. A page looks at 2,000 of each at most: it can have fewer than `limit` while " +
          "`nextCursor` continues.",
      ),
    ),
    HttpApiEndpoint.get("get", "/api/v0/orgs/:orgId", {
      params: { orgId: OrgId },
      success: OrgDetail,
      error: [Forbidden, NotFound],
    }).annotateMerge(
      access.management.read("Get an org", "Returns the org with its owners, its limits and their current use."),
    ),
    HttpApiEndpoint.patch("update", "/api/v0/orgs/:orgId", {
      params: { orgId: OrgId },
      payload: UpdateOrg,
      success: OrgDetail,
      error: [Forbidden, NotFound, Conflict],
    }).annotateMerge(
      access.administrator.administer(
        "Change an org",
        "Changes the name, the limits, the retention, the prefix of new keys, strictEvents and the owners. owners " +
          "replaces the list; an owner of another org is a 409. Absent fields stay. null sets a limit, the " +
          "retention or the prefix to the default again. A limit below the current use removes nothing; it refuses " +
          "anything new. Only pendingDeliveries refuses nothing: from the org's next event on, the endpoint with the " +
          "most pending deliveries is deactivated every five seconds, and they are canceled, until the org is below it.",
      ),
    ),
    HttpApiEndpoint.delete("remove", "/api/v0/orgs/:orgId", {
      params: { orgId: OrgId },
      success: Deleted,
      error: [Forbidden, NotFound],
    }).annotateMerge(
      access.administrator.administer(
        "Delete an org",
        "Deletes the org with its projects, keys, endpoints, jobs and schedules, for good. From the response on, " +
          "its keys are " +
          "refused at every replica, its endpoints get nothing, and everything of it is a 404. Its rows are " +
          "erased in the " +
          "background, within an hour; then its owners are free. The administrator can still read its audit log.",
      ),
    ),
    HttpApiEndpoint.get("erasure", "/api/v0/orgs/:orgId/erasure", {
      params: { orgId: OrgId },
      success: OrgErasure,
      error: [Forbidden, NotFound],
    }).annotateMerge(
      access.administrator.oversee(
        "Follow the erasure of an org",
        "How far the erasure of a deleted org is, and what it has erased. At its end this is the receipt, which " +
          "the audit log " +
          "keeps as `org.erase`.",
      ),
    ),
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Orgs", description: "The tenants." })) {}
