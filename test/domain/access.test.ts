import { assert, describe } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { ApiKeys } from "#src/domain/keys/ApiKeys.ts"
import { type CurrentPrincipal, Principal } from "#src/domain/Principal.ts"
import { Deployments } from "#src/domain/deployments/Deployments.ts"
import { Orgs } from "#src/domain/orgs/Orgs.ts"
import { Projects } from "#src/domain/projects/Projects.ts"
import { it } from "../support/it.ts"
import { as, failureOf, makeTenant, outcomeOf, services, unknownId } from "./support.ts"

type Tenant = Effect.Success<typeof makeTenant>
const page = { limit: 10 }

type Services = ApiKeys | CurrentPrincipal | Deployments | Orgs | Projects
type Call = (tenant: Tenant) => Effect.Effect<unknown, { readonly _tag: string }, Services>

/** Every operation, with the resources of a tenant. */
const operations = {
  "create org": () => Orgs.use((orgs) => orgs.create({ name: "new" })),
  "list orgs": () => Orgs.use((orgs) => orgs.list(page)),
  "get org": ({ orgId }: Tenant) => Orgs.use((orgs) => orgs.get(orgId)),
  "update org": ({ orgId }: Tenant) => Orgs.use((orgs) => orgs.update(orgId, { name: "new" })),
  "create org key": ({ orgId }: Tenant) => ApiKeys.use((keys) => keys.createForOrg(orgId, { name: "k" })),
  "create project key": ({ projectId }: Tenant) =>
    ApiKeys.use((keys) => keys.createForProject({ name: "k", projectId })),
  "remove key": ({ orgId, projectKey }: Tenant) => ApiKeys.use((keys) => keys.remove(orgId, projectKey.id)),
  "list keys": ({ orgId }: Tenant) => ApiKeys.use((keys) => keys.list(orgId, page)),
  "validate key": ({ orgKey }: Tenant) => ApiKeys.use((keys) => keys.validate(Redacted.make(orgKey.key), "::1")),
  "create project": ({ orgId }: Tenant) => Projects.use((projects) => projects.create({ name: "p", orgId })),
  "create project, no org named": () => Projects.use((projects) => projects.create({ name: "p" })),
  "list projects": () => Projects.use((projects) => projects.list(page)),
  "list an org's projects": ({ orgId }: Tenant) => Projects.use((projects) => projects.list({ ...page, orgId })),
  "get project": ({ projectId }: Tenant) => Projects.use((projects) => projects.get(projectId)),
  "update project": ({ projectId }: Tenant) => Projects.use((projects) => projects.update(projectId, { name: "new" })),
  "list deployments": ({ projectId }: Tenant) => Deployments.use((deployments) => deployments.list(projectId, page)),
} satisfies Record<string, Call>
type Operation = keyof typeof operations
const callOf = (operation: Operation): Call => operations[operation]

/** The answers to an org key, in its own org and in another. */
const orgKeyGets: Record<Operation, readonly [own: string, foreign: string]> = {
  "create org": ["Forbidden", "Forbidden"],
  "list orgs": ["ok", "ok"],
  "get org": ["ok", "NotFound"],
  "update org": ["Forbidden", "Forbidden"],
  "create org key": ["Forbidden", "Forbidden"],
  "create project key": ["ok", "NotFound"],
  "remove key": ["ok", "NotFound"],
  "list keys": ["ok", "NotFound"],
  "validate key": ["ok", "ok"],
  "create project": ["ok", "Forbidden"],
  "create project, no org named": ["ok", "ok"],
  "list projects": ["ok", "ok"],
  "list an org's projects": ["ok", "NotFound"],
  "get project": ["ok", "NotFound"],
  "update project": ["ok", "NotFound"],
  "list deployments": ["ok", "NotFound"],
}

const callersOf = ({ orgId, projectId, orgKey, projectKey }: Tenant) => ({
  administrator: Principal.Administrator(),
  orgKey: Principal.OrgKey({ keyId: orgKey.id, orgId }),
  projectKey: Principal.ProjectKey({ keyId: projectKey.id, orgId, projectId }),
  anonymous: Principal.Anonymous(),
})
const names = ["administrator", "orgKey", "projectKey", "anonymous"] as const

const expectedOf = (operation: Operation, caller: (typeof names)[number], side: 0 | 1) => {
  if (caller === "administrator" || operation === "validate key") return "ok"
  if (caller === "orgKey") return orgKeyGets[operation][side]
  return caller === "projectKey" ? "Forbidden" : "Unauthorized"
}

const cases = (Object.keys(operations) as Array<Operation>).map((operation) => ({ operation }))

describe("who may call which operation", () => {
  it.effect.each(cases)("$operation", ({ operation }) =>
    Effect.gen(function* () {
      // The first project makes the default org, for projects without an org.
      yield* Projects.use((projects) => projects.create({ name: "p" })).pipe(as(Principal.Administrator()))
      for (const caller of names) {
        for (const side of [0, 1] as const) {
          for (const open of [false, true]) {
            const own = yield* makeTenant
            const target = side === 0 ? own : yield* makeTenant
            const outcome = yield* outcomeOf(callOf(operation)(target)).pipe(as(callersOf(own)[caller], open))
            const expected = open ? "ok" : expectedOf(operation, caller, side)
            assert.strictEqual(outcome, expected, `${caller}, ${side === 0 ? "own" : "foreign"}, open: ${open}`)
          }
        }
      }
    }).pipe(Effect.provide(services())),
  )

  const foreign = cases.filter(({ operation }) => orgKeyGets[operation][1] === "NotFound")
  it.effect.each(foreign)("$operation: another tenant's resource gets the 404 of a missing one, byte for byte", (_) =>
    Effect.gen(function* () {
      const [own, other] = [yield* makeTenant, yield* makeTenant]
      const missing = { ...other, orgId: unknownId, projectId: unknownId }
      const asOrgKey = as(callersOf(own).orgKey)
      const call = callOf(_.operation)
      assert.strictEqual(yield* failureOf(call(other)).pipe(asOrgKey), yield* failureOf(call(missing)).pipe(asOrgKey))
    }).pipe(Effect.provide(services())),
  )

  it.effect("remove key: another tenant's key under one's own org gets the 404 of a missing one", () =>
    Effect.gen(function* () {
      const [own, other] = [yield* makeTenant, yield* makeTenant]
      const keys = yield* ApiKeys
      const asOrgKey = as(callersOf(own).orgKey)
      const refusal = yield* failureOf(keys.remove(own.orgId, other.orgKey.id)).pipe(asOrgKey)
      assert.strictEqual(refusal, yield* failureOf(keys.remove(own.orgId, unknownId)).pipe(asOrgKey))
      assert.strictEqual((yield* keys.authenticate(Redacted.make(other.orgKey.key), "127.0.0.1")).orgId, other.orgId)
    }).pipe(Effect.provide(services())),
  )

  it.effect("an org key's lists have the rows of its own org only", () =>
    Effect.gen(function* () {
      const [own, other] = [yield* makeTenant, yield* makeTenant]
      const lists = Effect.gen(function* () {
        const { orgs } = yield* (yield* Orgs).list(page)
        const { projects } = yield* (yield* Projects).list(page)
        return [...orgs, ...projects].map(({ orgId }) => orgId)
      })
      assert.deepStrictEqual(yield* lists.pipe(as(callersOf(own).orgKey)), [own.orgId, own.orgId])
      const all = yield* lists.pipe(as(callersOf(own).administrator))
      assert.deepStrictEqual(all, [own.orgId, other.orgId, own.orgId, other.orgId])
    }).pipe(Effect.provide(services())),
  )
})
