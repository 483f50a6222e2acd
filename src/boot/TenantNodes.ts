import { Context, Effect, Fiber, Layer, Scope, Struct } from "effect"
import { SqlClient } from "effect/sql"
import { Idempotency, TenantIdempotency } from "../domain/Idempotency.ts"
import { CurrentPrincipal, tenantOf } from "../domain/Principal.ts"
import { Unavailable } from "../domain/Errors.ts"
import { JobSchedules } from "../domain/jobs/JobSchedules.ts"
import { Jobs } from "../domain/jobs/Jobs.ts"
import { DeliveryLog } from "../domain/webhooks/DeliveryLog.ts"
import { Events } from "../domain/webhooks/Events.ts"
import { EventTypes } from "../domain/webhooks/EventTypes.ts"
import { SigningKeys } from "../domain/webhooks/Signatures.ts"
import { WebhookEndpoints } from "../domain/webhooks/WebhookEndpoints.ts"
import { type Node, Nodes, noNodes } from "../infrastructure/database/Nodes.ts"
import { Admission, orgMoves } from "../infrastructure/database/orUnavailable.ts"

/** The services that act for one org, on the rows that the org's node has. */
type Tenants = DeliveryLog | Events | EventTypes | Idempotency | Jobs | JobSchedules | SigningKeys | WebhookEndpoints

/** How long the start waits for nodes. A node that takes longer serves its orgs when it is ready. */
const startTime = "5 seconds"
const notReady = new Unavailable({ error: "The database of the org is not ready; try again." })

/**
 * Builds the services of tenants once more for each node, with their workers, as soon as the node is ready. So a node
 * runs the same program as a single database, and its failure stops nothing else (ADR 31).
 */
const makeStacks = Effect.fnUntraced(function* <E, R>(stack: Layer.Layer<Tenants, E, R>) {
  const nodes = yield* Nodes
  const context = yield* Effect.context<Exclude<R, SqlClient.SqlClient>>()
  // In parallel, so that a stop waits for the slowest node and not for all of them one after the other.
  const scope = yield* Scope.fork(yield* Effect.scope, "parallel")
  const stacks = new Map<string, Context.Context<Tenants>>()
  const building = yield* Effect.forEach(nodes.all, ({ admission, migrated, name, sql }) =>
    Effect.gen(function* () {
      yield* migrated
      const places = Layer.mergeAll(
        Layer.succeed(SqlClient.SqlClient, sql),
        Layer.succeed(Admission, admission),
        Layer.succeed(Nodes, noNodes),
      )
      // A memo map of its own, so that nodes share no service.
      const [memoMap, own] = [yield* Layer.makeMemoMap, yield* Scope.fork(scope)]
      const built = Layer.buildWithMemoMap(Layer.provide(stack, places), memoMap, own)
      stacks.set(name, yield* Effect.provideContext(built, context))
    }).pipe(
      Effect.tapCause((cause) => Effect.logError(`The services of the node ${name} cannot start`, cause)),
      Effect.forkScoped,
    ),
  )
  yield* Effect.timeoutOption(Fiber.awaitAll(building), startTime)
  return { nodes, stacks }
})

class Stacks extends Context.Service<Stacks, Effect.Success<ReturnType<typeof makeStacks>>>()(
  "gatehouse/boot/Stacks",
) {}

/** Where the operation that this one is a part of runs: one operation runs on one database. */
const Placed = Context.Reference<{ readonly node: Node | undefined } | undefined>("gatehouse/boot/Placed", {
  defaultValue: () => undefined,
})

/** Whether an operation failed because its org moves: it has changed nothing. */
const isMoving = (error: unknown) => error === orgMoves

/** The members of a service of tenants: effects, and functions that return one. */
type Outcome = Effect.Effect<unknown, unknown, unknown>
type Operation = (...args: ReadonlyArray<never>) => Outcome

/**
 * A service whose operations run on the node of the principal's org; those of other orgs, and of no org, on the
 * platform's database.
 */
const routed = <I extends Tenants, S extends { readonly [Name in keyof S]: Outcome | Operation }>(
  tag: Context.Service<I, S>,
) =>
  Effect.gen(function* () {
    const own = yield* tag
    const { nodes, stacks } = yield* Stacks
    if (nodes.all.length === 0) return own
    type Use = (service: S) => Outcome
    const on = (node: Node | undefined, use: Use) => {
      if (node === undefined) return Effect.provideService(use(own), Placed, { node })
      const stack = stacks.get(node.name)
      if (stack === undefined) return Effect.fail(notReady)
      return use(Context.get(stack, tag)).pipe(
        Effect.provideService(Admission, node.admission),
        Effect.provideService(Placed, { node }),
      )
    }
    const there = (use: Use) =>
      Effect.contextWith((context: Context.Context<never>) => {
        const caller = Context.getOrUndefined(context, CurrentPrincipal)
        const orgId = caller && tenantOf(caller.principal)
        if (orgId === undefined) return use(own)
        const placed = Context.get(context, Placed)
        if (placed !== undefined) return on(placed.node, use)
        return Effect.flatMap(nodes.of(orgId), (node) =>
          // The org has moved meanwhile: nothing was changed, so the operation runs again.
          Effect.catchIf(on(node, use), isMoving, () =>
            Effect.flatMap(nodes.movedFrom(orgId, node), (now) => on(now, use)),
          ),
        )
      })
    /** The member of the service on the node. */
    const member = (name: keyof S): Outcome | Operation =>
      Effect.isEffect(own[name])
        ? there((service) => service[name] as Outcome)
        : (...args) => there((service) => (service[name] as Operation)(...args))
    return Object.fromEntries(Struct.keys(own).map((name) => [name, member(name)])) as S
  })

/**
 * The services of tenants on the nodes of NODES; without nodes, the services that it is given.
 *
 * @param stack the services and their workers over one database
 */
export const layer = <E, R>(stack: Layer.Layer<Tenants, E, R>) =>
  Layer.mergeAll(
    Layer.effect(DeliveryLog, routed(DeliveryLog)),
    Layer.effect(Events, routed(Events)),
    Layer.effect(EventTypes, routed(EventTypes)),
    Layer.effect(Jobs, routed(Jobs)),
    Layer.effect(JobSchedules, routed(JobSchedules)),
    Layer.effect(SigningKeys, routed(SigningKeys)),
    Layer.effect(TenantIdempotency, routed(Idempotency)),
    Layer.effect(WebhookEndpoints, routed(WebhookEndpoints)),
  ).pipe(Layer.provide(Layer.effect(Stacks, makeStacks(stack))))
