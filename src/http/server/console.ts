import { Context, Effect } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { readdir, readFile } from "node:fs/promises"
import { extname, join } from "node:path"
import { fileURLToPath } from "node:url"
import { People } from "../../domain/sessions/People.ts"
import { prepare } from "./apiReferencePage.ts"
import { PortalLook } from "./portalLook.ts"

/** The folder that `npm run build` fills. The same from `src` and from `dist`. */
export const ConsoleFolder = Context.Reference<string>("gatehouse/http/console/ConsoleFolder", {
  defaultValue: () => fileURLToPath(new URL("../../../dist/console/", import.meta.url)),
})

const path = "/console"
/** A picture runs no script, and loads nothing, also when a browser opens it as a page. */
const picturePolicy = "default-src 'none'; style-src 'unsafe-inline'; sandbox"

/** The settings of the page: how the portal looks, and whose identity signs people in. */
interface Look {
  readonly portal: typeof PortalLook.Service
  readonly issuer: string | undefined
}

/** The page of the console, with its settings in attributes of its body. The page in a frame has the origins. */
const withLook = (page: Uint8Array, { issuer, portal: { logo, origins = [], ...look } }: Look, isInFrame = false) => {
  const framed = isInFrame ? { origins } : {}
  const text = JSON.stringify({ ...look, ...framed, ...(logo && { logo: `${path}/portal-logo${logo.extension}` }) })
  const escaped = text.replaceAll("&", "&amp;").replaceAll('"', "&quot;")
  const signIn = issuer === undefined ? "" : ` data-sign-in="${new URL(issuer).host}"`
  return Buffer.from(page)
    .toString()
    .replace("<body>", () => `<body data-portal="${escaped}"${signIn}>`)
}

/** Where the build puts files whose names have their hash. */
const hashed = "assets/"
/** Files of the folder that are served. The build has some tens. */
const maxFiles = 500

const types: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
  ".json": "application/json",
  ".woff2": "font/woff2",
  ".png": "image/png",
}

/** Only files of this server, and no script or style in the page. Trusted Types refuse HTML that is made of text. */
const policy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "img-src 'self'",
  "font-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join("; ")

const framePath = "/portal/embed"
/** The custom element that shows the frame, for pages of other origins. */
const elementPath = "/portal/element.js"

/** In a frame of these origins; the page that shows it may have a logo elsewhere. */
const framePolicy = (origins: ReadonlyArray<string>) =>
  policy
    .replace("frame-ancestors 'none'", `frame-ancestors ${origins.join(" ")}`)
    .replace("img-src 'self'", "img-src 'self' https: data:")

const headers = {
  "content-security-policy": policy,
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=()",
}

/** A page of any origin may load the element, which has no secret. */
const forAnyOrigin = { "access-control-allow-origin": "*", "cross-origin-resource-policy": "cross-origin" }

type Answer = Effect.Effect<HttpServerResponse.HttpServerResponse, never, HttpServerRequest.HttpServerRequest>
type Files = ReadonlyMap<string, Answer>

const ofFrame = (origins: ReadonlyArray<string>) => ({
  "content-security-policy": framePolicy(origins),
  "cross-origin-resource-policy": "cross-origin",
})

/** Reads and compresses the files of a build; `undefined` when there is none. */
const load = Effect.fnUntraced(function* (folder: string, look: Look) {
  const names = yield* Effect.promise(() => readdir(folder, { recursive: true }).catch(() => []))
  const known = names.filter((name) => extname(name) in types).slice(0, maxFiles)
  if (!known.includes("index.html")) return undefined
  const files = yield* Effect.forEach(
    known,
    Effect.fnUntraced(function* (name) {
      const content = yield* Effect.promise(() => readFile(join(folder, name)))
      const contentType = types[extname(name)]!
      const text = name === "index.html" ? withLook(content, look) : content
      const answer = yield* prepare({ contentType, text, isImmutable: name.startsWith(hashed) })
      return [name.replaceAll("\\", "/"), answer] as const
    }),
    { concurrency: 4 },
  )
  const { logo, origins = [] } = look.portal
  if (origins.length > 0) {
    const page = withLook(yield* Effect.promise(() => readFile(join(folder, "index.html"))), look, true)
    const answer = yield* prepare({ contentType: types[".html"]!, text: page })
    files.push([framePath, Effect.map(answer, HttpServerResponse.setHeaders(ofFrame(origins)))])
  }
  if (logo !== undefined) {
    const { content, extension } = logo
    const picture = yield* prepare({ contentType: types[extension]!, text: content })
    const asPicture = Effect.map(picture, HttpServerResponse.setHeader("content-security-policy", picturePolicy))
    files.push([`portal-logo${extension}`, asPicture])
  }
  return new Map(files) as Files
})

const notBuilt = HttpServerResponse.jsonUnsafe(
  {
    error: "The console is not built. Run npm run build:console, then reload this page. Published packages contain it.",
    code: "not_found",
  },
  { status: 404 },
)
const noFile = HttpServerResponse.jsonUnsafe(
  { error: "The console has no such file.", code: "not_found" },
  { status: 404 },
)

const noFrame = HttpServerResponse.jsonUnsafe(
  {
    error:
      "The portal is not set up for frames. Set PORTAL_ORIGINS to the origins of your pages that show it, such as https://app.example.com.",
    code: "forbidden",
  },
  { status: 403 },
)

/** The name of the file at a path: a page's address has no extension, and is the address of the whole console. */
const nameOf = (url: string) => {
  const pathname = url.split("?", 1)[0]!
  if (pathname.startsWith(framePath)) return framePath
  if (pathname === elementPath) return "element.js"
  const name = pathname.slice(path.length + 1)
  return extname(name) === "" ? "index.html" : name
}

/**
 * Serves the console from the folder of its build. Files are read and compressed once, at the first request; a build
 * that is not there is looked for again at the next.
 */
export const layer = HttpRouter.use(
  Effect.fnUntraced(function* (router) {
    const folder = yield* ConsoleFolder
    const look = { portal: yield* PortalLook, issuer: (yield* People)?.issuer }
    let loading: Promise<Files | undefined> | undefined
    const files = Effect.promise(async () => {
      const found = await (loading ??= Effect.runPromise(load(folder, look)))
      if (found === undefined) loading = undefined
      return found
    })
    const answer = Effect.gen(function* () {
      const { url } = yield* HttpServerRequest.HttpServerRequest
      const found = yield* files
      if (found === undefined) return notBuilt
      return yield* found.get(nameOf(url)) ?? Effect.succeed(noFile)
    }).pipe(Effect.map((response) => HttpServerResponse.setHeaders(response, { ...headers, ...response.headers })))
    const toConsole = Effect.map(HttpServerRequest.HttpServerRequest, ({ headers }) =>
      headers["accept"]?.includes("text/html") === true
        ? HttpServerResponse.redirect(path, { status: 303 })
        : HttpServerResponse.empty({ status: 404 }),
    )
    // A person's browser; for programs, there is no operation.
    yield* router.add("GET", "/", toConsole)
    // Also the path without the slash.
    yield* router.add("GET", `${path}/*`, answer)
    const isFrame = (look.portal.origins ?? []).length > 0
    yield* router.add(
      "GET",
      `${framePath}/*`,
      isFrame ? answer : Effect.succeed(HttpServerResponse.setHeaders(noFrame, headers)),
    )
    yield* router.add("GET", elementPath, Effect.map(answer, HttpServerResponse.setHeaders(forAnyOrigin)))
  }),
)
