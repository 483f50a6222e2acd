import { Layer } from "effect"
import * as Activity from "./Activity.ts"
import * as Alerts from "./Alerts.ts"
import * as ApiKeys from "./ApiKeys.ts"
import * as AuditLog from "./AuditLog.ts"
import * as Deployments from "./Deployments.ts"
import * as KeyCounters from "./KeyCounters.ts"
import * as KeyUsage from "./KeyUsageCollector.ts"
import * as Idempotency from "./Idempotency.ts"
import * as DocsQuestions from "./DocsQuestions.ts"
import * as Orgs from "./Orgs.ts"
import * as ProjectDocs from "./ProjectDocs.ts"
import * as Projects from "./Projects.ts"
import * as Roles from "./Roles.ts"
import * as Sessions from "./Sessions.ts"
import { World } from "./World.ts"

/** Every repository of the platform interface in memory, with one world. */
export const layer = Layer.mergeAll(
  Activity.layer,
  Alerts.layer,
  ApiKeys.layer,
  AuditLog.layer,
  Deployments.layer,
  DocsQuestions.layer,
  Idempotency.layer,
  KeyCounters.layer,
  KeyUsage.layer,
  Orgs.layer,
  ProjectDocs.layer,
  Projects.layer,
  Roles.layer,
  Sessions.layer,
).pipe(Layer.provideMerge(World.layer))
