// A documentation site with a chat. Its server serves the page, and adds the key and the pages to each question, so that
// neither is in the browser. GATEHOUSE is the service, GATEHOUSE_KEY a project key (open mode needs none).
import { readdirSync, readFileSync } from "node:fs"
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http"
import { Readable } from "node:stream"
import { pipeline } from "node:stream/promises"
import { build } from "vite"

export interface SiteOptions {
  /** `http://127.0.0.1:3000` */
  readonly gatehouse: string
  readonly key?: string | undefined
  /** The site's pages, as markdown, by their slugs. */
  readonly docsPages: Readonly<Record<string, string>>
}

interface File {
  readonly fileName: string
  readonly code?: string
  readonly source?: string | Uint8Array
}

/** The page and its script, bundled. */
const bundle = async () => {
  const built = await build({
    root: import.meta.dirname,
    configFile: false,
    logLevel: "error",
    build: { write: false },
  })
  const { output } = built as unknown as { readonly output: ReadonlyArray<File> }
  return new Map(output.map(({ fileName, code, source }) => [`/${fileName}`, code ?? source ?? ""]))
}

const bodyOf = async (request: IncomingMessage) => {
  const chunks: Array<Buffer> = []
  for await (const chunk of request) chunks.push(chunk as Buffer)
  return JSON.parse(Buffer.concat(chunks).toString()) as {
    readonly messages: unknown
    readonly pageSlug?: string
    readonly docsUrl?: string
  }
}

const ask = async (request: IncomingMessage, response: ServerResponse, { gatehouse, key, docsPages }: SiteOptions) => {
  // If the reader leaves, the chat and its call of the model end.
  const gone = new AbortController()
  response.on("close", () => gone.abort())
  const { messages, pageSlug, docsUrl } = await bodyOf(request)
  // oxlint-disable-next-line no-restricted-globals -- a site has no Effect
  const answer = await fetch(`${gatehouse}/api/svc/chat`, {
    method: "POST",
    headers: { "content-type": "application/json", ...(key === undefined ? {} : { authorization: `Bearer ${key}` }) },
    body: JSON.stringify({ messages, pageSlug: pageSlug || undefined, docsUrl, docsPages }),
    signal: gone.signal,
    // A redirect would take the key and the documentation elsewhere.
    redirect: "error",
  })
  const passed = ["content-type", "cache-control", "x-accel-buffering", "x-vercel-ai-ui-message-stream", "retry-after"]
  const headers = passed.flatMap((name) =>
    answer.headers.has(name) ? [[name, answer.headers.get(name)!] as const] : [],
  )
  response.writeHead(answer.status, Object.fromEntries(headers))
  await pipeline(Readable.fromWeb(answer.body! as never), response)
}

/** Makes the site's server; it does not listen yet. */
export const makeSite = async (options: SiteOptions): Promise<Server> => {
  const files = await bundle()
  const serve = (request: IncomingMessage, response: ServerResponse) => {
    const path = new URL(request.url ?? "/", "http://site").pathname
    const file = files.get(path)
    const type = path.endsWith(".js") ? "text/javascript" : "text/html; charset=utf-8"
    // Every other path is a page of the documentation.
    response.writeHead(200, { "content-type": type }).end(file ?? files.get("/index.html"))
  }
  return createServer((request, response) => {
    if (request.method !== "POST" || request.url !== "/api/chat") return serve(request, response)
    ask(request, response, options).catch(() => {
      if (response.headersSent) response.destroy()
      else response.writeHead(502).end("Cannot reach the chat.")
    })
  })
}

if (import.meta.main) {
  const folder = new URL("../../docs/", import.meta.url)
  // Pages for those who change Gatehouse, which answer no question of those who use it.
  const ofMaintainers = ["promises.md", "promises-tests.md", "dependencies.md", "architecture.md", "simulation.md"]
  const pages = readdirSync(folder).filter((name) => name.endsWith(".md") && !ofMaintainers.includes(name))
  const site = await makeSite({
    gatehouse: process.env["GATEHOUSE"] ?? "http://127.0.0.1:3000",
    key: process.env["GATEHOUSE_KEY"],
    docsPages: Object.fromEntries(
      pages.map((name) => [name.replace(/\.md$/, ""), readFileSync(new URL(name, folder), "utf8")]),
    ),
  })
  const port = Number(process.env["PORT"] ?? 4100)
  site.listen(port, "127.0.0.1", () => process.stdout.write(`the site is at http://127.0.0.1:${port}\n`))
}
