import { Effect } from "effect"
import { createServer, type IncomingHttpHeaders, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"

/** A call of the model, as it arrived. */
export interface ModelCall {
  readonly path: string
  readonly headers: IncomingHttpHeaders
  readonly body: {
    readonly model: string
    readonly stream: boolean
    readonly messages: ReadonlyArray<{
      readonly role: string
      readonly content: unknown
      readonly tool_calls?: unknown
    }>
    readonly tools?: ReadonlyArray<{ readonly function: { readonly name: string; readonly parameters: object } }>
  }
}

/** What the model does with a call. */
export type ModelBehaviour =
  /** Sends these pieces of text; before that, sends reasoning every 50 ms, `think` times. */
  | { readonly say: ReadonlyArray<string>; readonly think?: number }
  /** Calls tools. */
  | { readonly call: ReadonlyArray<{ readonly name: string; readonly arguments: string }> }
  /** Sends this, and then nothing more. */
  | { readonly stall: string }
  /** Sends this, and closes the connection. */
  | { readonly breakAfter: string }
  /** Sends this, and then an error in the stream. */
  | { readonly errorAfter: string }
  /** Sends this, and then something that is no event. */
  | { readonly garbageAfter: string }
  /** Never starts to answer. */
  | { readonly mute: true }
  | { readonly status: number; readonly body?: string }

const chunk = (delta: object, finish: string | null = null) =>
  `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", created: 1, model: "m", choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`

const act = (behaviour: ModelBehaviour, response: ServerResponse) => {
  if ("status" in behaviour) {
    response.writeHead(behaviour.status, { "content-type": "application/json", "retry-after-ms": "1" })
    return void response.end(behaviour.body ?? JSON.stringify({ error: { message: "internals of the model server" } }))
  }
  if ("mute" in behaviour) return
  if (!response.headersSent) response.writeHead(200, { "content-type": "text/event-stream" })
  if ("say" in behaviour && behaviour.think !== undefined && behaviour.think > 0) {
    response.write(chunk({ role: "assistant", reasoning_content: "hmm" }))
    const { think, say } = behaviour
    return void setTimeout(() => act({ think: think - 1, say }, response), 50)
  }
  if ("say" in behaviour) {
    for (const text of behaviour.say) response.write(chunk({ role: "assistant", content: text }))
    response.write(chunk({}, "stop"))
    return void response.end("data: [DONE]\n\n")
  }
  if ("call" in behaviour) {
    behaviour.call.forEach(({ name, arguments: text }, index) => {
      const call = { index, id: `call-${index}`, type: "function", function: { name, arguments: text } }
      response.write(chunk({ role: "assistant", tool_calls: [call] }))
    })
    response.write(chunk({}, "tool_calls"))
    return void response.end("data: [DONE]\n\n")
  }
  const [kind, text] = Object.entries(behaviour)[0] as [string, string]
  response.write(chunk({ role: "assistant", content: text }))
  if (kind === "breakAfter") setImmediate(() => response.destroy())
  if (kind === "errorAfter")
    response.end(`data: ${JSON.stringify({ error: { message: "internals: out of memory" } })}\n\n`)
  if (kind === "garbageAfter") response.end("data: {no json\n\ndata: [DONE]\n\n")
}

/**
 * A local server of an OpenAI-compatible model: each call follows the next behaviour, and the last behaviour repeats.
 */
export const modelServer = Effect.acquireRelease(
  Effect.callback<ModelServer & { readonly close: () => void }>((resume) => {
    const calls: Array<ModelCall> = []
    const closed: Array<() => void> = []
    let ended = 0
    let behaviours: ReadonlyArray<ModelBehaviour> = [{ say: ["Hello"] }]
    const server = createServer((request, response) => {
      const chunks: Array<Buffer> = []
      request.on("data", (bytes: Buffer) => chunks.push(bytes))
      request.on("end", () => {
        calls.push({
          path: request.url!,
          headers: request.headers,
          body: JSON.parse(Buffer.concat(chunks).toString()) as ModelCall["body"],
        })
        const [next, ...later] = behaviours
        if (later.length > 0) behaviours = later
        act(next!, response)
      })
      response.on("close", () => {
        ended++
        closed.splice(0).forEach((tell) => tell())
      })
    })
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address() as AddressInfo
      const allClosed: Effect.Effect<void> = Effect.suspend(() =>
        ended === calls.length && calls.length > 0
          ? Effect.void
          : Effect.flatMap(
              Effect.callback<void>((resume) => void closed.push(() => resume(Effect.void))),
              () => allClosed,
            ),
      )
      resume(
        Effect.succeed({
          url: `http://127.0.0.1:${port}/v1`,
          calls,
          behave: (...next) => {
            behaviours = next
            calls.length = 0
            ended = 0
          },
          allClosed,
          close: () => {
            server.closeAllConnections()
            server.close()
          },
        }),
      )
    })
  }),
  ({ close }) => Effect.sync(close),
)

export interface ModelServer {
  /** Its AI_BASE_URL. */
  readonly url: string
  /** The calls since `behave`. */
  readonly calls: ReadonlyArray<ModelCall>
  readonly behave: (...behaviours: ReadonlyArray<ModelBehaviour>) => void
  /** Resolves once there were calls and all of their connections are closed. */
  readonly allClosed: Effect.Effect<void>
}
