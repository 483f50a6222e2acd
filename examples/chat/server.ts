// A documentation site with a chat. Its server serves the page, and passes questions on with the key and the pages,
// so that neither is in the browser. GATEHOUSE is the service, GATEHOUSE_KEY a project key (open mode needs none).
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
  return JSON.parse(Buffer.concat(chunks).toString()) as { readonly messages: unknown; readonly pageSlug?: string }
}

const ask = async (request: IncomingMessage, response: ServerResponse, { gatehouse, key, docsPages }: SiteOptions) => {
  // A reader who goes away ends the chat, and with it the call of the model.
  const gone = new AbortController()
  response.on("close", () => gone.abort())
  const { messages, pageSlug } = await bodyOf(request)
  // oxlint-disable-next-line no-restricted-globals -- what a site has
  const answer = await fetch(`${gatehouse}/api/svc/chat`, {
    method: "POST",
    headers: { "content-type": "application/json", ...(key === undefined ? {} : { authorization: `Bearer ${key}` }) },
    body: JSON.stringify({ messages, pageSlug, docsPages }),
    signal: gone.signal,
  })
  const passed = ["content-type", "x-vercel-ai-ui-message-stream", "retry-after"]
  const headers = passed.flatMap((name) =>
    answer.headers.has(name) ? [[name, answer.headers.get(name)!] as const] : [],
  )
  response.writeHead(answer.status, Object.fromEntries(headers))
  await pipeline(Readable.fromWeb(answer.body! as never), response)
}

/** The site's server, not listening yet. */
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
      else response.writeHead(502).end("The chat cannot be reached.")
    })
  })
}

if (import.meta.main) {
  const folder = new URL("../../docs/", import.meta.url)
  const pages = readdirSync(folder).filter((name) => name.endsWith(".md"))
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
