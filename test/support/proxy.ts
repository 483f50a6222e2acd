import { Effect } from "effect"
import { connect, createServer, type AddressInfo, type Socket } from "node:net"

/** Bytes to wait for on the wire. */
export interface Passage {
  readonly from: "client" | "server"
  readonly text: string
  /** Whether these bytes and later ones are passed on; if not, nothing passes from here on. */
  readonly passes: boolean
  /** The connection to look at; without it, all of them. */
  readonly on?: Socket
}

/**
 * A proxy to the server in the URL that can be closed, be silent with open connections like a lost network, or be slow.
 */
export const proxied = Effect.fn("proxied")(function* (url: string) {
  const { hostname, port } = new URL(url)
  const sockets = new Set<Socket>()
  /** The first bytes of each client: PostgreSQL's clients send their name there, after they have asked for TLS. */
  const names = new Map<Socket, string>()
  const muted = new Set<Socket>()
  let state: "open" | "silent" | "closed" = "open"
  let delay = 0
  let watched: (Passage & { readonly seen: (on: Socket) => void }) | undefined
  const server = createServer((client) => {
    if (state === "closed") return client.destroy()
    const upstream = connect(Number(port), hostname)
    const isMute = () => state === "silent" || muted.has(client)
    const pass = (from: Socket, to: Socket, side: Passage["from"]) => {
      sockets.add(from)
      from.on("data", (chunk) => {
        const name = names.get(client) ?? ""
        if (side === "client" && name.length < 100) names.set(client, name + chunk.toString("latin1"))
        if (watched?.from === side && (watched.on ?? client) === client && chunk.includes(watched.text)) {
          const { passes, seen } = watched
          watched = undefined
          if (!passes) state = "silent"
          seen(client)
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
    /** Closes every connection and accepts no other, until `heal`. */
    close: Effect.andThen(become("closed"), cut),
    /** Passes nothing on and closes nothing, until `heal`. */
    silence: become("silent"),
    heal: become("open"),
    /** Closes every connection, and accepts new ones. */
    cut,
    /** Open connections of clients with this name stay open, but carry nothing any more. */
    mute: (name: string) =>
      Effect.sync(() => {
        for (const [client, said] of names) if (said.includes(name)) muted.add(client)
      }),
    /** Delays every answer of the server by this number of milliseconds. */
    slow: (milliseconds: number) =>
      Effect.sync(() => {
        delay = milliseconds
      }),
    /** Calls `seen` once with the connection, when the bytes arrive and before they are passed on. */
    watch: (passage: Passage, seen: (on: Socket) => void) =>
      Effect.sync(() => {
        watched = { ...passage, seen }
      }),
  }
})
