import { Layer } from "effect"
import { HttpMiddleware } from "effect/http"
import { operationAt } from "./routes.ts"

/** Names the span of a request after its operation (`GET /api/v0/projects/{projectId}`), or after its method. */
export const layer = Layer.succeed(
  HttpMiddleware.SpanNameGenerator,
  ({ method, url }) => operationAt(method, url)?.name ?? method,
)
