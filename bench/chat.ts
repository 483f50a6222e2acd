// Measures the chat: the first byte of the embedded answer, indexing of a zip, memory. `node --expose-gc bench/chat.ts`
import { Effect } from "effect"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import * as DocsSearch from "../src/domain/docs/DocsSearch.ts"
import { ZipReader } from "../src/infrastructure/docs/ZipReader.ts"
import { manyPages } from "../test/support/docs.ts"
import { zip } from "../test/support/zip.ts"

/**
 * A service started with `PORT=3000 DATA_DIR=memory node --expose-gc src/main.ts`. More CHATS than its rate limit take
 * minutes.
 */
const url = process.env["GATEHOUSE"]
const say = (line: string) => process.stdout.write(`${line}\n`)
const pages = (count: number) => manyPages(count)
const asZip = (count: number) =>
  zip(pages(count).map(({ slug, markdown }) => ({ path: `${slug}.md`, content: markdown })))
const heap = () => {
  globalThis.gc?.()
  return process.memoryUsage().heapUsed
}

const indexing = Effect.gen(function* () {
  const zips = yield* ZipReader
  for (const count of [500, 2_000]) {
    const bytes = asZip(count)
    for (let round = 0; round < 3; round++) {
      const before = heap()
      const cpu = process.cpuUsage()
      const start = performance.now()
      const { pages: unpacked } = yield* zips.read(bytes)
      const middle = performance.now()
      const index = DocsSearch.make(unpacked)
      const end = performance.now()
      const { user, system } = process.cpuUsage(cpu)
      const text = unpacked.reduce((sum, { markdown }) => sum + markdown.length, 0)
      const memory = heap() - before
      const searchStart = performance.now()
      for (let n = 0; n < 100; n++) index.search(`what is subject${n} in word${n}`, { limit: 3 })
      const search = (performance.now() - searchStart) / 100
      say(
        `${count} pages, ${(text / 1e6).toFixed(1)} million characters: unpacked in ${(middle - start).toFixed(0)} ms, ` +
          `indexed in ${(end - middle).toFixed(0)} ms (${((user + system) / 1_000).toFixed(0)} ms of the processor), ${(memory / text).toFixed(1)} bytes a character, ` +
          `a search ${search.toFixed(2)} ms`,
      )
    }
  }
})

/** The time to the first byte of an answer, in milliseconds. */
const firstByte = async (body: string) => {
  const start = performance.now()
  // oxlint-disable-next-line no-restricted-globals -- a client
  const answer = await fetch(`${url}/api/svc/chat`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body,
  })
  if (answer.status !== 200) throw new Error(`${answer.status} ${await answer.text()}`)
  const reader = answer.body!.getReader()
  await reader.read()
  const time = performance.now() - start
  while (!(await reader.read()).done);
  return time
}

const serving = async () => {
  const bytes = asZip(500)
  const host = createServer((_, response) => response.end(bytes))
  await new Promise<void>((resolve) => host.listen(0, "127.0.0.1", resolve))
  const docsZipUrl = `http://127.0.0.1:${(host.address() as AddressInfo).port}/docs.zip`
  const messages = [{ role: "user", content: "what is subject7?" }]
  const docsPages = Object.fromEntries(pages(500).map(({ slug, markdown }) => [slug, markdown]))
  for (const [name, body] of Object.entries({ zip: { messages, docsZipUrl }, docsPages: { messages, docsPages } })) {
    const text = JSON.stringify(body)
    const first = await firstByte(text)
    const times: Array<number> = []
    for (let n = 0; n < 25; n++) times.push(await firstByte(text))
    times.sort((a, b) => a - b)
    const [median, worst] = [times[12]!, times.at(-1)!].map((time) => time.toFixed(1))
    say(`first byte, 500 pages by ${name}: ${first.toFixed(0)} ms at first, then ${median} ms (worst ${worst})`)
  }
  host.close()
}

await Effect.runPromise(Effect.provide(indexing, ZipReader.layer))
if (url !== undefined) await serving()
