import { NodeCrypto, NodeHttpClient, NodeHttpServer } from "@effect/platform-node"
import { Layer } from "effect"
import { createServer } from "node:http"
import type { Settings } from "./config.ts"
import { ApiKeys } from "./domain/ApiKeys.ts"
import { Deployments, RegistrationPolicy } from "./domain/Deployments.ts"
import { Orgs } from "./domain/Orgs.ts"
import { Projects } from "./domain/Projects.ts"
import { AdminToken } from "./http/Authorization.ts"
import { TrustedProxies } from "./http/clientAddress.ts"
import * as Server from "./http/Server.ts"
import { Database } from "./infrastructure/Database.ts"
import * as Oidc from "./infrastructure/Oidc.ts"
import * as Readiness from "./infrastructure/Readiness.ts"
import * as ApiKeysSql from "./infrastructure/sql/ApiKeys.ts"
import * as DeploymentsSql from "./infrastructure/sql/Deployments.ts"
import * as OrgsSql from "./infrastructure/sql/Orgs.ts"
import * as ProjectsSql from "./infrastructure/sql/Projects.ts"
import * as KeyUsage from "./infrastructure/workers/KeyUsage.ts"
import { announce } from "./welcome.ts"

const services = (settings: Settings) => {
  const repositories = Layer.mergeAll(ApiKeysSql.layer, DeploymentsSql.layer, OrgsSql.layer, ProjectsSql.layer)
  const policy = Layer.succeed(RegistrationPolicy, { allowedOwners: settings.allowedOwners ?? "linked" })
  const tokens = Oidc.layer({ issuer: settings.githubIssuer, audiences: settings.oidcAudiences })
  return Layer.mergeAll(ApiKeys.layer, Deployments.layer, Orgs.layer, Projects.layer, Readiness.layer).pipe(
    Layer.provideMerge(Layer.mergeAll(repositories, policy, tokens)),
    Layer.provideMerge(Database.layer(settings)),
    Layer.provide(NodeHttpClient.layerUndici),
    Layer.provideMerge(NodeCrypto.layer),
  )
}

const listener = ({ host, port }: Settings) =>
  NodeHttpServer.layer(
    () => createServer({ headersTimeout: 30_000, requestTimeout: 60_000, keepAliveTimeout: 65_000 }),
    { host, port },
  )

/**
 * The service: listens once everything it needs is up, and stops in the opposite order. Gives the listening server and
 * the services behind it; logger and tracer are the caller's.
 */
export const app = (settings: Settings) =>
  Layer.mergeAll(Server.layer, KeyUsage.layer, announce(settings)).pipe(
    Layer.provideMerge(listener(settings)),
    Layer.provideMerge(services(settings)),
    Layer.provide(Layer.succeed(AdminToken, { token: settings.adminToken })),
    Layer.provide(Layer.succeed(TrustedProxies, settings.trustedProxies)),
  )
