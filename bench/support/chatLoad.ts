import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { setTimeout as sleep } from "node:timers/promises"
import { request } from "undici"
import { manyPages } from "../../test/support/docs.ts"
import { zip } from "../../test/support/zip.ts"
import type { Scope } from "./scope.ts"
import { makeTenant, type Service, times } from "./service.ts"

/** The pages of a zip with about 10 MiB of markdown; with `mark.md`, it has as many as a zip may have. */
const largePages = 1_999
/** Chats of one key in a minute are limited; keys take turns. */
const keysOfTenant = 20

const zipOf = (count: number, mark: string) =>
  zip([
    { path: "mark.md", content: `# ${mark}` },
    ...manyPages(count).map(({ markdown, slug }) => ({ path: `${slug}.md`, content: markdown })),
  ])

/** Serves a zip of 500 pages at /small, and others of 2,000 pages at /large/<n>, each with a page of its own. */
export const startDocs = async (scope: Scope, count: number) => {
  const zips = new Map([["/small", zipOf(500, "small")]])
  for (let n = 0; n < count; n++) zips.set(`/large/${n}`, zipOf(largePages, `large${n}`))
  const server = createServer(({ url }, response) => response.end(zips.get(url!)))
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
  scope.defer(() => server.close())
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

/** An org that chats, with keys that take turns. */
export const startReader = async (service: Service) => {
  const { projectId } = await makeTenant(service)
  const keys = await times(keysOfTenant, (n) => service.manage("/api/v0/keys", { name: `reader ${n}`, projectId }))
  let turn = 0
  /** Chats; returns the status, and the milliseconds to the first byte of the answer. */
  return async (docs: object) => {
    const body = JSON.stringify({ messages: [{ role: "user", content: "what is subject7?" }], ...docs })
    const authorization = `Bearer ${keys[turn++ % keys.length]!["key"] as string}`
    const start = performance.now()
    const answer = await request(`${service.url}/api/svc/chat`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization },
      body,
    })
    const first = await answer.body[Symbol.asyncIterator]().next()
    const millis = performance.now() - start
    if (first.done !== true) await answer.body.dump()
    return { status: answer.statusCode, millis }
  }
}

/** The times to the first byte of small chats, one every 50 ms, while other work runs. */
export const smallChatsBeside = async <A>(
  chat: Awaited<ReturnType<typeof startReader>>,
  work: () => Promise<A>,
): Promise<{ readonly found: A; readonly millis: ReadonlyArray<number> }> => {
  const page = { docsPages: { small: "# Small\n\nsubject7 is small." } }
  const chats: Array<ReturnType<typeof chat>> = []
  const state = { ended: false }
  const asking = (async () => {
    while (!state.ended) {
      chats.push(chat(page))
      await sleep(50)
    }
  })()
  const found = await work().finally(() => (state.ended = true))
  await asking
  const answers = await Promise.all(chats)
  const refused = answers.find(({ status }) => status !== 200)
  if (refused !== undefined) throw new Error(`A small chat was answered ${refused.status}`)
  return { found, millis: answers.map(({ millis }) => millis) }
}
