import { createServer } from "node:net"

/**
 * A receiver in a process of its own that costs as little as one can: answers every request with 200 as soon as it is
 * whole, without reading it, and tells its parent on demand how many there were and when the first came.
 */
const answer = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
let count = 0
let first = 0

const server = createServer({ noDelay: true }, (socket) => {
  let text = ""
  socket.setEncoding("latin1")
  socket.on("error", () => {})
  socket.on("data", (chunk: string) => {
    text += chunk
    const headEnd = text.indexOf("\r\n\r\n")
    if (headEnd === -1) return
    const length = Number(/content-length: (\d+)/i.exec(text)?.[1] ?? 0)
    if (text.length < headEnd + 4 + length) return
    if (count++ === 0) first = Date.now()
    // One request at a time on each connection: nothing can have come behind it.
    text = ""
    socket.write(answer)
  })
})

process.on("message", (what) => {
  if (what === "forget") count = 0
  process.send!({ count, first })
})
process.on("disconnect", () => process.exit())
server.listen(0, "127.0.0.1", () => process.send!(server.address()))
