import { DateTime, Effect, Layer, Schema } from "effect"
import { ApiKeys } from "#src/domain/keys/ApiKeys.ts"
import { AuditLog } from "#src/domain/audit/AuditLog.ts"
import { CurrentPrincipal, Principal } from "#src/domain/Principal.ts"
import type { RegistrationRules } from "#src/domain/deployments/registration.ts"
import { Deployments, RegistrationPolicy } from "#src/domain/deployments/Deployments.ts"
import {
  Conflict,
  Forbidden,
  InvalidRequest,
  LimitReached,
  NotFound,
  TooManyRequests,
  Unauthorized,
  Unavailable,
} from "#src/domain/Errors.ts"
import { Orgs } from "#src/domain/orgs/Orgs.ts"
import { Projects } from "#src/domain/projects/Projects.ts"
import * as KeyCache from "#src/infrastructure/keys/KeyCache.ts"
import * as CiTokenVerifier from "../fakes/CiTokenVerifier.ts"
import * as crypto from "../fakes/crypto.ts"
import * as fakes from "../fakes/repositories.ts"

/** Every service over the fakes; `options` replace single layers. */
export const services = (
  options: {
    readonly allowedOwners?: RegistrationRules["allowedOwners"]
    /** The only provider that is configured. Default: github. */
    readonly provider?: string
    readonly repositories?: typeof fakes.layer
    readonly crypto?: typeof crypto.layer
  } = {},
) =>
  Layer.mergeAll(ApiKeys.layer, Deployments.layer, Orgs.layer, Projects.layer).pipe(
    Layer.provideMerge(AuditLog.layer),
    Layer.provide(KeyCache.layer),
    Layer.provideMerge(options.repositories ?? fakes.layer),
    Layer.provide([
      options.crypto ?? crypto.layer,
      CiTokenVerifier.layer,
      RegistrationPolicy.layer({
        allowedOwners: options.allowedOwners ?? "any",
        defaultBranches: ["main", "master"],
        issuers: new Map([[options.provider ?? CiTokenVerifier.github.provider, CiTokenVerifier.github.issuer]]),
        pinFault: (_provider, pins) => CiTokenVerifier.github.pinFault(pins),
      }),
    ]),
  )

/** Runs as this principal, in guarded mode unless `open`. */
export const as = (principal: Principal, open = false) => Effect.provideService(CurrentPrincipal, { principal, open })
export const asAdministrator = as(Principal.Administrator())
export const asAnonymous = as(Principal.Anonymous())

const Failure = Schema.Union([
  InvalidRequest,
  Unauthorized,
  Forbidden,
  NotFound,
  Conflict,
  LimitReached,
  TooManyRequests,
  Unavailable,
])
const encode = Schema.encodeUnknownSync(Failure)

/** The error of the operation, as the body of the answer. */
export const failureOf = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.map(Effect.flip(effect), (error) => JSON.stringify(encode(error)))

/** `ok`, or the class of the error. */
export const outcomeOf = <A, E extends { readonly _tag: string }, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.map(Effect.result(effect), (result): string => (result._tag === "Success" ? "ok" : result.failure._tag))

/** A project with its org, and a key of each. */
export const makeTenant = Effect.gen(function* () {
  const [orgs, projects, keys] = [yield* Orgs, yield* Projects, yield* ApiKeys]
  const { orgId } = yield* orgs.create({ name: "Acme" })
  const { projectId } = yield* projects.create({ name: "docs", orgId })
  const orgKey = yield* keys.createForOrg(orgId, { name: "org" })
  const projectKey = yield* keys.createForProject({ name: "project", projectId })
  return { orgId, projectId, orgKey, projectKey }
}).pipe(asAdministrator)

export const nowPlus = (milliseconds: number) => Effect.map(DateTime.now, (now) => DateTime.add(now, { milliseconds }))

/** An id that no resource has. */
export const unknownId = "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"
