// Measures memory after 1,000 chats: `node --expose-gc bench/chatMemory.ts`. The model and the documentation are local
// servers.
import { ConfigProvider, Context, Effect, Layer, Logger } from "effect"
import { HttpServer } from "effect/http"
import { app } from "../src/boot/app.ts"
import * as Config from "../src/boot/config.ts"
import { ChatRates } from "../src/domain/docs/ChatRateLimits.ts"
import { manyPages } from "../test/support/docs.ts"
import { modelServer } from "../test/support/modelServer.ts"
import { makeReceiver } from "../test/support/receiver.ts"
import { zip } from "../test/support/zip.ts"

const megabytes = () => {
  globalThis.gc?.()
  return process.memoryUsage().heapUsed / 1e6
}

const started = (environment: Record<string, string>) =>
  Effect.gen(function* () {
    const variables = { PORT: "0", DATA_DIR: "memory", ...environment }
    const settings = yield* Config.load.pipe(
      Effect.provide(ConfigProvider.layer(ConfigProvider.fromEnvRecord(variables))),
    )
    const rates = Layer.succeed(ChatRates, { projectKey: 1e9, address: 1e9 })
    const context = yield* Layer.build(Layer.provide(app(settings), [rates, Logger.layer([])]))
    return HttpServer.formatAddress(Context.get(context, HttpServer.HttpServer).address)
  })

/** Sends ten chats at a time; every tenth client leaves after the first byte. */
const chats = async (url: string, body: string, count: number) => {
  const one = async (n: number) => {
    const gone = new AbortController()
    // oxlint-disable-next-line no-restricted-globals -- a client
    const answer = await fetch(`${url}/api/svc/chat`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body,
      signal: gone.signal,
    })
    if (answer.status !== 200) throw new Error(`${answer.status} ${await answer.text()}`)
    const reader = answer.body!.getReader()
    await reader.read()
    if (n % 10 === 0) return gone.abort()
    while (!(await reader.read()).done);
  }
  for (let n = 0; n < count; n += 10) await Promise.all(Array.from({ length: 10 }, (_, at) => one(n + at)))
}

await Effect.runPromise(
  Effect.gen(function* () {
    const host = yield* makeReceiver()
    host.behave({
      status: 200,
      body: zip(manyPages(500).map(({ slug, markdown }) => ({ path: `${slug}.md`, content: markdown }))),
    })
    const model = yield* modelServer
    const body = JSON.stringify({
      messages: [{ role: "user", content: "what is subject7?" }],
      docsZipUrl: `${host.url}/docs.zip`,
    })
    const environments = { "without a model": {}, "with a model": { AI_BASE_URL: model.url, AI_MODEL: "some-model" } }
    for (const [name, environment] of Object.entries(environments)) {
      const url = yield* started(environment)
      const lines: Array<string> = []
      for (const count of [100, 0, 1_000, 1_000]) {
        model.behave({ say: ["An answer", " in parts"] })
        yield* Effect.promise(() => chats(url, body, count))
        model.behave({ say: ["reset"] })
        yield* Effect.sleep("1 second")
        lines.push(`${megabytes().toFixed(1)} MB after ${count} more`)
      }
      process.stdout.write(`${name}: ${lines.join(", ")}\n`)
    }
  }).pipe(Effect.scoped),
)
process.exit(0)
