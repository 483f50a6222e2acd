import { layer } from "@effect/vitest"
import { Layer } from "effect"
import * as ApiKeysSql from "#src/infrastructure/sql/ApiKeys.ts"
import * as AuditLogSql from "#src/infrastructure/sql/AuditLog.ts"
import * as DeploymentsSql from "#src/infrastructure/sql/Deployments.ts"
import * as IdempotencySql from "#src/infrastructure/sql/Idempotency.ts"
import * as OrgsSql from "#src/infrastructure/sql/Orgs.ts"
import * as ProjectsSql from "#src/infrastructure/sql/Projects.ts"
import * as fakes from "../fakes/repositories.ts"
import { databases } from "../support/databases.ts"
import { apiKeys } from "./apiKeys.ts"
import { auditLog } from "./auditLog.ts"
import { deployments } from "./deployments.ts"
import { idempotency } from "./idempotency.ts"
import { keyRotation } from "./keyRotation.ts"
import { links } from "./links.ts"
import { orgLimits } from "./orgLimits.ts"
import { orgs } from "./orgs.ts"
import { defaultOrg, projects } from "./projects.ts"
import { platformPages } from "./pages.ts"
import { projectUpdates } from "./projectUpdates.ts"
import { registrations } from "./registrations.ts"

const sql = Layer.mergeAll(
  ApiKeysSql.layer,
  AuditLogSql.layer,
  DeploymentsSql.layer,
  IdempotencySql.layer,
  OrgsSql.layer,
  ProjectsSql.layer,
)

/** One suite, three backends: what holds of the fakes that other tests stand on holds of the databases. */
const backends = {
  fake: fakes.layer,
  embedded: Layer.provide(sql, databases.embedded),
  postgres: Layer.provide(sql, databases.postgres),
}

for (const [name, repositories] of Object.entries(backends)) {
  // Real time: a driver's time-outs must not stand still. The tests themselves never read the clock.
  layer(repositories, { excludeTestServices: true })(name, (it) => {
    defaultOrg(it)
    orgs(it)
    orgLimits(it)
    projects(it)
    projectUpdates(it)
    apiKeys(it)
    keyRotation(it)
    auditLog(it)
    idempotency(it)
    registrations(it)
    links(it)
    deployments(it)
    platformPages(it)
  })
}
