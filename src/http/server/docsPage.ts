import { Effect } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { HttpApiScalar, OpenApi } from "effect/http-api"
import { Api } from "../api/Api.ts"
import { once } from "./once.ts"
import { hashOf, prepare } from "./publicDocument.ts"

const path = "/docs"
const scalar = HttpApiScalar.layer(Api, { path, scalar: { withDefaultFonts: false } })

/** The page as Effect makes it: 3.3 MB of HTML with inline scripts. */
const wholePage = Effect.flatten(Effect.scoped(HttpRouter.toHttpEffect(scalar))).pipe(
  Effect.provideService(HttpServerRequest.HttpServerRequest, HttpServerRequest.fromWeb(new Request(`http://-${path}`))),
  Effect.scoped,
  Effect.map(({ body }) => new TextDecoder().decode(body._tag === "Uint8Array" ? body.body : undefined)),
  Effect.orDie,
)

/** A key on a dark ground. Without an icon in the page, browsers request `/favicon.ico`, which does not exist. */
const icon =
  "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'><rect width='16' height='16' rx='3' fill='#16324f'/>" +
  "<path d='M6 4a3 3 0 1 0 2.8 4H13v2h-2V8' fill='none' stroke='#fff' stroke-width='1.6'/></svg>"
const iconLink = `<link rel="icon" href="data:image/svg+xml,${encodeURIComponent(icon)}">`

/** Moves the inline scripts of the page to files of their own. Their URLs are relative, so that a proxy can add a prefix. */
const takeApart = (page: string) => {
  const scripts = new Map<string, string>()
  const html = page
    .replace("</head>", `${iconLink}</head>`)
    .replace(/<script>([^]*?)<\/script>/g, (_, script: string) => {
      const name = `${hashOf(script)}.js`
      scripts.set(name, script)
      return `<script src="docs/${name}"></script>`
    })
  return { html, scripts }
}

const prepared = Effect.gen(function* () {
  const { html, scripts } = takeApart(yield* wholePage)
  const page = yield* prepare({ contentType: "text/html; charset=utf-8", text: html, isImmutable: false })
  const files = yield* Effect.forEach(
    scripts,
    ([name, text]) =>
      Effect.map(
        prepare({ contentType: "text/javascript; charset=utf-8", text, isImmutable: true }),
        (answer) => [name, answer] as const,
      ),
    { concurrency: "unbounded" },
  )
  return { page, files: new Map(files) }
})

const openApi = Effect.suspend(() =>
  prepare({ contentType: "application/json", text: JSON.stringify(OpenApi.fromApi(Api)), isImmutable: false }),
)

const noSuchFile = Effect.succeed(HttpServerResponse.empty({ status: 404 }))

/**
 * Serves `/openapi.json` and its page at `/docs`. The scripts of the page come from this server, so it works offline. They
 * take some MiB of memory, so they are made at the first request.
 */
export const layer = HttpRouter.use(
  Effect.fnUntraced(function* (router) {
    const docs = yield* once(prepared)
    const json = yield* once(openApi)
    yield* router.add("GET", "/openapi.json", Effect.flatten(json))
    yield* router.add(
      "GET",
      path,
      Effect.flatMap(docs, ({ page }) => page),
    )
    yield* router.add(
      "GET",
      `${path}/:file`,
      Effect.all([docs, HttpRouter.params]).pipe(
        Effect.flatMap(([{ files }, { file }]) => files.get(file ?? "") ?? noSuchFile),
      ),
    )
  }),
)
