import { Effect } from "effect"
import { connect, createServer, type AddressInfo, type Socket } from "node:net"

/** A way to the server of the URL that can be closed, or go silent with every connection open, as a lost network does. */
export const proxied = Effect.fn("proxied")(function* (url: string) {
  const { hostname, port } = new URL(url)
  const sockets = new Set<Socket>()
  let state: "open" | "silent" | "closed" = "open"
  const server = createServer((client) => {
    if (state === "closed") return client.destroy()
    const upstream = connect(Number(port), hostname)
    const pass = (from: Socket, to: Socket) => {
      sockets.add(from)
      from.on("data", (chunk) => state === "silent" || to.write(chunk))
      from.on("error", () => {})
      from.on("close", () => {
        sockets.delete(from)
        if (state !== "silent") to.destroy()
      })
    }
    pass(client, upstream)
    pass(upstream, client)
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
  }
})
