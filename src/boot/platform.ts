import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { Layer } from "effect"
import type { Settings } from "./config.ts"
import { RegistrationPolicy } from "../domain/deployments/RegistrationPolicy.ts"
import * as Live from "../infrastructure/activity/liveRepositories.ts"
import * as KeyCountersSql from "../infrastructure/keys/KeyCounterRepository.ts"
import * as ApiKeysSql from "../infrastructure/keys/ApiKeyRepository.ts"
import * as DeploymentsSql from "../infrastructure/deployments/DeploymentRepository.ts"
import * as OrgsSql from "../infrastructure/orgs/OrgRepository.ts"
import * as ProjectsSql from "../infrastructure/projects/ProjectRepository.ts"
import * as KeyUsageSql from "../infrastructure/keys/KeyUsageRepository.ts"
import { Activities } from "../domain/activity/Activities.ts"
import { ServiceStates } from "../domain/activity/ServiceStates.ts"
import { ApiKeys } from "../domain/keys/ApiKeys.ts"
import { Deployments } from "../domain/deployments/Deployments.ts"
import { Projects } from "../domain/projects/Projects.ts"
import { LeakedKeys } from "../domain/keys/LeakedKeys.ts"
import { KeyUsageReport } from "../domain/keys/KeyUsageReport.ts"
import { Orgs } from "../domain/orgs/Orgs.ts"
import { Sessions } from "../domain/sessions/Sessions.ts"
import * as Counted from "../infrastructure/activity/countedRepositories.ts"
import * as AfterCommit from "../infrastructure/database/AfterCommit.ts"
import * as DatabaseSize from "../infrastructure/database/DatabaseSize.ts"
import * as Readiness from "../infrastructure/database/Readiness.ts"
import * as GithubKeys from "../infrastructure/keys/GithubKeys.ts"
import * as KeyCache from "../infrastructure/keys/KeyCache.ts"
import * as KeyRevocations from "../infrastructure/keys/KeyRevocations.ts"
import * as ValidationMetrics from "../infrastructure/keys/validationMetrics.ts"
import * as Oidc from "../infrastructure/oidc/CiTokenVerifier.ts"
import * as SessionsSql from "../infrastructure/sessions/SessionRepository.ts"
import { audit } from "./audit.ts"

/** The services of the platform interface: keys, orgs, projects, deployments. */
export const platform = (settings: Settings) => {
  const deployments = Live.deployments.pipe(Layer.provide([DeploymentsSql.layer, ProjectsSql.layer]))
  const repositories = Layer.mergeAll(
    ApiKeysSql.layer,
    deployments,
    KeyCountersSql.layer,
    KeyUsageSql.layer,
    OrgsSql.layer,
    ProjectsSql.layer,
  )
  const policy = Layer.succeed(RegistrationPolicy, {
    allowedOwners: settings.allowedOwners ?? "linked",
    defaultBranches: settings.defaultBranches,
    // The first entry of a name has it, so the entries are read from the last to the first.
    issuers: new Map(settings.ciProviders.toReversed().map(({ issuer, provider }) => [provider, issuer])),
  })
  const keys = AfterCommit.keys.pipe(Layer.provide(KeyCache.layer), Layer.provide(KeyRevocations.layer))
  const validations = Counted.validations.pipe(Layer.provide(ValidationMetrics.layer))
  const tokens = Oidc.layer(settings.ciProviders)
  const signatures = GithubKeys.layer(settings.githubKeysUrl)
  return Layer.mergeAll(
    ApiKeys.layer,
    Deployments.layer,
    KeyUsageReport.layer,
    LeakedKeys.layer,
    Orgs.layer,
    Projects.layer,
  ).pipe(
    Layer.provideMerge(ServiceStates.layer),
    Layer.provideMerge(Layer.mergeAll(Readiness.layer, DatabaseSize.layer)),
    Layer.provideMerge(Activities.layer),
    Layer.provideMerge(Sessions.layer.pipe(Layer.provide(SessionsSql.layer))),
    Layer.provideMerge(Layer.mergeAll(keys, policy, tokens, signatures, audit, validations)),
    Layer.provideMerge(repositories),
    Layer.provide(NodeHttpClient.layerUndici),
  )
}
