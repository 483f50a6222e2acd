import { Context, Effect, Layer } from "effect"
import { HttpServer } from "effect/http"

/** Keys of services by which others are made; an effect that answers a request has no use for them. */
const ofServices = /^(?:gatehouse\/(?:domain|infrastructure)|effect\/(?:crypto|sql)|@effect\/sql-pg)\//

/** How much may be provided around a request before its context is copied: more than is, or each request copies all of it. */
const maxDepth = 24

/** Runs an effect without such services, but for `kept`. */
const withoutServices =
  (kept: ReadonlyArray<string> = []) =>
  <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.updateContext(effect, (context: Context.Context<R>) => {
      const left = [...context.mapUnsafe].filter(([key]) => !ofServices.test(key) || kept.includes(key))
      return Context.makeUnsafe<R>(new Map(left), { maxDepth })
    })

/**
 * Makes a group's handlers of these services, with no others about. What is there when a group is made is copied into the
 * context of each request to it: all of the process's services are a tenth of a read's CPU, and a third of GET /healthz's.
 */
export const madeOf =
  (...services: ReadonlyArray<{ readonly key: string }>) =>
  <A, E, R>(group: Layer.Layer<A, E, R>): Layer.Layer<A, E, R> =>
    Layer.fromBuild((memoMap, scope) =>
      Layer.buildWithMemoMap(group, memoMap, scope).pipe(withoutServices(services.map(({ key }) => key))),
    )

/** Has the server serve requests with no services about, for the same reason. */
export const servedBare = Layer.updateService(HttpServer.HttpServer, ({ address, serve }) =>
  HttpServer.make({ address, serve: (app, middleware) => withoutServices()(serve(app, middleware!)) }),
)
