import { Effect } from "effect"
import { connect, type Socket } from "node:net"
import type { Service } from "../support/process.ts"
import { until } from "./support.ts"

/** Opens connections that send this text and nothing more; they end with the scope, or with `close`. */
export const crowd = Effect.fnUntraced(function* (
  service: Service,
  count: number,
  says: string,
  options: {
    /** Text that each connection sends repeatedly, with the interval in milliseconds. */
    readonly drip?: { readonly text: string; readonly every: number }
    /** Whether each is answered; if so, the next ones wait for the answers. */
    readonly answered?: boolean
  } = {},
) {
  const { hostname, port } = new URL(service.url)
  const state = { open: 0, answered: 0, ended: 0, answers: [] as Array<string> }
  const sockets: Array<Socket> = []
  const close = Effect.sync(() => sockets.forEach((socket) => socket.destroy()))
  yield* Effect.addFinalizer(() => close)
  while (sockets.length < count) {
    const socket: Socket = connect(Number(port), hostname, () => {
      state.open++
      socket.write(says)
    })
    socket.once("data", (answer) => {
      state.answered++
      if (state.answers.length < 10) state.answers.push(answer.toString("latin1"))
    })
    socket.on("error", () => {}).once("close", () => state.ended++)
    sockets.push(socket)
    // More connections at once than the backlog of the listening socket would wait for seconds.
    if (sockets.length % 100 === 0) yield* Effect.sleep("20 millis")
    if (options.answered === true) yield* until(() => sockets.length - state.answered < 200)
  }
  const { drip } = options
  if (drip !== undefined) {
    yield* Effect.sync(() => sockets.forEach((socket) => socket.writable && socket.write(drip.text))).pipe(
      Effect.delay(drip.every),
      Effect.forever,
      Effect.forkScoped,
    )
  }
  return { state, close }
})
