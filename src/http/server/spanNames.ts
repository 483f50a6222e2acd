import { Layer } from "effect"
import { HttpMiddleware } from "effect/http"
import { operationAt } from "./routes.ts"

/** Names a request's span by its operation, `GET /api/v0/projects/{projectId}`, and any other by its method alone. */
export const layer = Layer.succeed(
  HttpMiddleware.SpanNameGenerator,
  ({ method, url }) => operationAt(method, url)?.name ?? method,
)
