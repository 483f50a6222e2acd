import { Layer } from "effect"
import * as AlertsSql from "#src/infrastructure/alerts/alertsSql.ts"
import * as ApiKeysSql from "#src/infrastructure/keys/apiKeysSql.ts"
import * as AuditLogSql from "#src/infrastructure/audit/auditLogSql.ts"
import * as DeploymentsSql from "#src/infrastructure/deployments/deploymentsSql.ts"
import * as IdempotencySql from "#src/infrastructure/idempotency/idempotencySql.ts"
import * as KeyCountersSql from "#src/infrastructure/keys/keyCountersSql.ts"
import * as KeyUsageSql from "#src/infrastructure/keys/keyUsageSql.ts"
import * as OrgsSql from "#src/infrastructure/orgs/orgsSql.ts"
import * as DocsQuestionsSql from "#src/infrastructure/docs/docsQuestionsSql.ts"
import * as ProjectDocsSql from "#src/infrastructure/docs/projectDocsSql.ts"
import * as RolesSql from "#src/infrastructure/keys/rolesSql.ts"
import * as ProjectsSql from "#src/infrastructure/projects/projectsSql.ts"
import * as ActivitySql from "#src/infrastructure/activity/activitySql.ts"
import * as SessionsSql from "#src/infrastructure/sessions/sessionsSql.ts"
import * as fakes from "../fakes/repositories.ts"
import { databases } from "../support/databases.ts"
import { layer } from "../support/it.ts"
import { alerts } from "./alerts/alerts.ts"
import { apiKeys } from "./keys/apiKeys.ts"
import { auditLog } from "./audit/auditLog.ts"
import { owners } from "./orgs/owners.ts"
import { docsQuestions } from "./docs/docsQuestions.ts"
import { projectDocs } from "./docs/projectDocs.ts"
import { production } from "./deployments/production.ts"
import { deployments } from "./deployments/deployments.ts"
import { idempotency } from "./idempotency.ts"
import { keyChanges } from "./keys/keyChanges.ts"
import { roles } from "./keys/roles.ts"
import { keyCounters } from "./keys/keyCounters.ts"
import { keyUsage } from "./keys/keyUsage.ts"
import { keyRotation } from "./keys/keyRotation.ts"
import { links } from "./projects/links.ts"
import { orgLimits } from "./orgs/orgLimits.ts"
import { orgs } from "./orgs/orgs.ts"
import { defaultOrg, projects } from "./projects/projects.ts"
import { platformPages } from "./pages.ts"
import { projectUpdates } from "./projects/projectUpdates.ts"
import { activity } from "./activity/activity.ts"
import { sessions } from "./sessions/sessions.ts"
import { registrations } from "./deployments/registrations.ts"

const sql = Layer.mergeAll(
  AlertsSql.layer,
  ApiKeysSql.layer,
  AuditLogSql.layer,
  DeploymentsSql.layer,
  DocsQuestionsSql.layer,
  IdempotencySql.layer,
  KeyCountersSql.layer,
  KeyUsageSql.layer,
  OrgsSql.layer,
  ProjectDocsSql.layer,
  ProjectsSql.layer,
  RolesSql.layer,
  SessionsSql.layer,
  ActivitySql.layer,
)

/** Runs one suite on three backends, so that the fakes of other tests behave like the databases. */
const backends = {
  fake: fakes.layer,
  embedded: Layer.provide(sql, databases.embedded),
  postgres: Layer.provide(sql, databases.postgres),
}

for (const [name, repositories] of Object.entries(backends)) {
  // Uses real time, because a driver's timeouts must run. The tests themselves never read the clock.
  layer(repositories, { excludeTestServices: true })(name, (it) => {
    defaultOrg(it)
    orgs(it)
    orgLimits(it)
    projects(it)
    projectUpdates(it)
    apiKeys(it)
    keyRotation(it)
    keyChanges(it)
    roles(it)
    keyCounters(it)
    keyUsage(it)
    auditLog(it)
    idempotency(it)
    registrations(it)
    links(it)
    deployments(it)
    production(it)
    owners(it)
    platformPages(it)
    sessions(it)
    activity(it)
    projectDocs(it)
    docsQuestions(it)
    alerts(it)
  })
}
