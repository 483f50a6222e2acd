// A product that shows the portal of Gatehouse in a page of its own: docs/portal.md. Its backend has the key, and gives
// the page a token for the person who is signed in. GATEHOUSE_URL is the service, GATEHOUSE_TOKEN an org key.
import { readFileSync } from "node:fs"
import { createServer, type Server, type ServerResponse } from "node:http"

export interface ProductOptions {
  /** `http://127.0.0.1:3000` */
  readonly gatehouse: string
  readonly key: string
}

const page = readFileSync(new URL("index.html", import.meta.url), "utf8")
const script = readFileSync(new URL("page.js", import.meta.url), "utf8")

/** Who is signed in to this product: a sample has one customer. Yours asks its own session. */
const signedIn = () => "customer_42"

/** Asks Gatehouse for a portal link, of which the page gets only the token. */
const newToken = async ({ gatehouse, key }: ProductOptions) => {
  // oxlint-disable-next-line no-restricted-globals -- a product has no Effect
  const response = await fetch(`${gatehouse}/v1/portal/link`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-api-key": key },
    body: JSON.stringify({
      expires_in_seconds: 60,
      keys: { external_id: signedIn(), permissions: ["files.read", "files.write"], max_keys: 3 },
    }),
    redirect: "error",
  })
  if (!response.ok) throw new Error(`Gatehouse answered ${response.status}: ${await response.text()}`)
  return ((await response.json()) as { readonly token: string }).token
}

/** Makes the server of the product; it does not listen yet. */
export const makeProduct = (options: () => ProductOptions): Server => {
  const send = (response: ServerResponse, type: string, body: string, status = 200) =>
    response.writeHead(status, { "content-type": type, "cache-control": "no-store" }).end(body)
  return createServer((request, response) => {
    // A page of another site cannot send JSON here without being asked for permission, which it does not get.
    if (request.method === "POST" && request.url === "/portal-token") {
      if (request.headers["content-type"] !== "application/json") return send(response, "text/plain", "Send JSON.", 415)
      return void newToken(options()).then(
        (token) => send(response, "application/json", JSON.stringify({ token })),
        (error: Error) => {
          process.stderr.write(`${error.message}\n`)
          send(response, "text/plain", "The portal is not available.", 502)
        },
      )
    }
    if (request.url === "/page.js") return send(response, "text/javascript", script)
    return send(response, "text/html; charset=utf-8", page.replaceAll("{gatehouse}", options().gatehouse))
  })
}

if (import.meta.main) {
  const key = process.env["GATEHOUSE_TOKEN"]
  if (key === undefined) throw new Error("Set GATEHOUSE_TOKEN to an org key of Gatehouse.")
  const gatehouse = process.env["GATEHOUSE_URL"] ?? "http://127.0.0.1:3000"
  const port = Number(process.env["PORT"] ?? 4200)
  makeProduct(() => ({ gatehouse, key })).listen(port, "127.0.0.1", () =>
    process.stdout.write(`the product is at http://localhost:${port}\n`),
  )
}
