import { Effect } from "effect"
import { connect, createServer, type AddressInfo, type Socket } from "node:net"

/** What is waited for on the wire. */
export interface Passage {
  readonly from: "client" | "server"
  readonly text: string
  /** Whether the bytes with it reach the other side, and those after them; else nothing passes from here on. */
  readonly passes: boolean
}

/**
 * A way to the server of the URL that can be closed, go silent with every connection open, as a lost network does, or
 * be slow.
 */
export const proxied = Effect.fn("proxied")(function* (url: string) {
  const { hostname, port } = new URL(url)
  const sockets = new Set<Socket>()
  /** What a client said first: PostgreSQL's clients name themselves there. */
  const names = new Map<Socket, string>()
  const muted = new Set<Socket>()
  let state: "open" | "silent" | "closed" = "open"
  let delay = 0
  let watched: (Passage & { readonly seen: () => void }) | undefined
  const server = createServer((client) => {
    if (state === "closed") return client.destroy()
    const upstream = connect(Number(port), hostname)
    const isMute = () => state === "silent" || muted.has(client)
    const pass = (from: Socket, to: Socket, side: Passage["from"]) => {
      sockets.add(from)
      from.on("data", (chunk) => {
        if (side === "client" && !names.has(client)) names.set(client, chunk.toString("latin1"))
        if (watched?.from === side && chunk.includes(watched.text)) {
          const { passes, seen } = watched
          watched = undefined
          if (!passes) state = "silent"
          seen()
        }
        if (isMute()) return
        if (side === "client" || delay === 0) to.write(chunk)
        else setTimeout(() => isMute() || to.destroyed || to.write(chunk), delay)
      })
      from.on("error", () => {})
      from.on("close", () => {
        sockets.delete(from)
        names.delete(from)
        if (!isMute()) to.destroy()
        muted.delete(from)
      })
    }
    pass(client, upstream, "client")
    pass(upstream, client, "server")
  })
  yield* Effect.acquireRelease(
    Effect.promise(() => new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))),
    () => Effect.sync(() => server.close(() => {})).pipe(Effect.andThen(cut)),
  )
  const cut = Effect.sync(() => {
    for (const socket of sockets) socket.destroy()
  })
  const become = (next: typeof state) =>
    Effect.sync(() => {
      state = next
    })
  const through = new URL(url)
  through.hostname = "127.0.0.1"
  through.port = String((server.address() as AddressInfo).port)
  return {
    url: through.href,
    /** Ends every connection and takes no other, until `heal`. */
    close: Effect.andThen(become("closed"), cut),
    /** From here on nothing passes and nothing is closed, until `heal`. */
    silence: become("silent"),
    heal: become("open"),
    /** Ends every connection; others are taken. */
    cut,
    /** Of the connections open now, those whose client named itself so stay open and carry nothing any more. */
    mute: (name: string) =>
      Effect.sync(() => {
        for (const [client, said] of names) if (said.includes(name)) muted.add(client)
      }),
    /** From here on every answer of the server takes so many milliseconds more. */
    slow: (milliseconds: number) =>
      Effect.sync(() => {
        delay = milliseconds
      }),
    /** Calls `seen`, once, when the bytes come by and before they are passed on. */
    watch: (passage: Passage, seen: () => void) =>
      Effect.sync(() => {
        watched = { ...passage, seen }
      }),
  }
})
