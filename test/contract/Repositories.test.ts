import { layer } from "@effect/vitest"
import { Layer } from "effect"
import * as ApiKeysSql from "#src/infrastructure/sql/ApiKeys.ts"
import * as DeploymentsSql from "#src/infrastructure/sql/Deployments.ts"
import * as OrgsSql from "#src/infrastructure/sql/Orgs.ts"
import * as ProjectsSql from "#src/infrastructure/sql/Projects.ts"
import * as fakes from "../fakes/repositories.ts"
import { databases } from "../support/databases.ts"
import { apiKeys } from "./apiKeys.ts"
import { deployments } from "./deployments.ts"
import { links } from "./links.ts"
import { orgs } from "./orgs.ts"
import { defaultOrg, projects } from "./projects.ts"
import { projectUpdates } from "./projectUpdates.ts"
import { registrations } from "./registrations.ts"

const sql = Layer.mergeAll(ApiKeysSql.layer, DeploymentsSql.layer, OrgsSql.layer, ProjectsSql.layer)

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
    projects(it)
    projectUpdates(it)
    apiKeys(it)
    registrations(it)
    links(it)
    deployments(it)
  })
}
