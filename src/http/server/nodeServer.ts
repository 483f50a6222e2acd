import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Context, Effect, Layer, Scope } from "effect"
import { type HttpMiddleware, HttpServer, type HttpServerRequest } from "effect/http"
import type { HotPath } from "./hotPath.ts"
import * as Listener from "./listener.ts"

/** How long a stop waits for answers that are in flight. */
const shutdownGrace = "5 seconds"

/**
 * How many services may be added to the context of a request before Effect copies the whole context. A request adds
 * fewer. With Effect's default of 8, each request copies all services: `GET /healthz` takes 12 % more CPU.
 */
const maxContextDepth = 24

const behindHandlers = /^gatehouse\/(domain|infrastructure)\//

/**
 * A context without the services behind the handlers. A handler has them in a context of its own, which Effect merges with the
 * request's: with all services in both, merging is a tenth of the CPU time of a simple request.
 */
const forRequests = ({ mapUnsafe }: Context.Context<never>) =>
  Context.makeUnsafe<never>(new Map([...mapUnsafe].filter(([key]) => !behindHandlers.test(key))), {
    maxDepth: maxContextDepth,
  })

/** Closes a server: takes no more connections, and waits for the answers in flight for the time of the grace. */
const close = ({ server, endSilent }: Listener.Listener) =>
  Effect.callback<void>((resume) => {
    server.close(() => resume(Effect.void))
    endSilent()
  }).pipe(Effect.timeoutOption(shutdownGrace))

type PerRequest = HttpServerRequest.HttpServerRequest | Scope.Scope

/** Where a server listens, and for how many connections. */
export interface NodeServerOptions {
  readonly host: string
  readonly port: number
  readonly maxConnections: number
}

/** An `HttpServer` of Node. A request goes to the hot path first, then to the application that is served. */
export const layer = (hotPath: HotPath, { host, port, maxConnections }: NodeServerOptions) =>
  Layer.suspend(() => {
    const listener = Listener.make()
    const { server } = listener
    server.maxConnections = maxConnections
    const serve: Parameters<typeof HttpServer.make>[0]["serve"] = Effect.fnUntraced(
      function* (application, middleware) {
        const scope = Scope.forkUnsafe(yield* Effect.scope, "parallel")
        const applied = middleware as HttpMiddleware.HttpMiddleware.Applied<typeof application, unknown, PerRequest>
        const handle = yield* NodeHttpServer.makeHandler(application, { middleware: applied, scope }).pipe(
          Effect.updateContext(forRequests),
        )
        const stopAnswering = Listener.answerBy(server, (request, response) =>
          hotPath(request, response, () => handle(request, response)),
        )
        yield* Effect.addFinalizer(() => Effect.andThen(close(listener), Effect.sync(stopAnswering)))
      },
    )
    return Layer.effect(
      HttpServer.HttpServer,
      Effect.map(HttpServer.HttpServer, ({ address }) => HttpServer.make({ address, serve })),
    ).pipe(Layer.provideMerge(NodeHttpServer.layer(() => server, { host, port })))
  })
