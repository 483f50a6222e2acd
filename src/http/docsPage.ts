import { Effect } from "effect"
import { HttpRouter } from "effect/http"
import { HttpApiScalar } from "effect/http-api"
import { Api } from "./Api.ts"

const page = HttpApiScalar.layer(Api, { path: "/docs", scalar: { withDefaultFonts: false } })

/**
 * The page that explains the interface; its script comes from this server, so that it works without internet. It is made
 * when somebody first asks for it: the script takes 27 MiB of memory.
 */
export const docsPage = HttpRouter.use((router) =>
  Effect.flatMap(Effect.cached(Effect.scoped(HttpRouter.toHttpEffect(page))), (made) =>
    router.add("GET", "/docs", Effect.flatten(made)),
  ),
)
