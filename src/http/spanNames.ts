import { Layer } from "effect"
import { HttpMiddleware } from "effect/http"
import { HttpApi } from "effect/http-api"
import { Api } from "./Api.ts"

const routes: Array<{ readonly method: string; readonly path: RegExp; readonly name: string }> = []
HttpApi.reflect(Api, {
  onGroup: () => {},
  onEndpoint: ({ endpoint: { method, path } }) =>
    routes.push({
      method,
      path: new RegExp(`^${path.replaceAll(".", "\\.").replace(/:\w+/g, "[^/]+")}$`),
      name: `${method} ${path.replace(/:(\w+)/g, "{$1}")}`,
    }),
})

/** Names a request's span by its operation, `GET /api/v0/projects/{projectId}`, and any other by its method alone. */
export const layer = Layer.succeed(HttpMiddleware.SpanNameGenerator, ({ method, url }) => {
  const asked = url.split("?", 1)[0]!
  return routes.find((route) => route.method === method && route.path.test(asked))?.name ?? method
})
