import { Effect } from "effect"
import { HttpRouter } from "effect/http"
import { OpenApi } from "effect/http-api"
import { Api } from "../api/Api.ts"
import { server } from "../api/openapi.ts"
import { AdminTokens } from "./AdminTokens.ts"
import type { Document } from "./docs/Document.ts"
import { docsPage } from "./docs/page.ts"
import { once } from "./once.ts"
import { prepare } from "./publicDocument.ts"

/** The OpenAPI document, with the address of this service. */
const documentAt = (baseUrl: string) => ({ ...OpenApi.fromApi(Api), servers: [server(baseUrl)] }) as unknown as Document

/** Serves `/openapi.json` and its page at `/docs`, which works offline. Both are made at the first request. */
export const layer = HttpRouter.use(
  Effect.fnUntraced(function* (router) {
    const { baseUrl } = yield* AdminTokens
    const json = yield* once(
      Effect.suspend(() => prepare({ contentType: "application/json", text: JSON.stringify(documentAt(baseUrl)) })),
    )
    const page = yield* once(
      Effect.suspend(() => prepare({ contentType: "text/html; charset=utf-8", text: docsPage(documentAt(baseUrl)) })),
    )
    yield* router.add("GET", "/openapi.json", Effect.flatten(json))
    yield* router.add("GET", "/docs", Effect.flatten(page))
  }),
)
