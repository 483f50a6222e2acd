import { createHmac } from "node:crypto"
import { createServer } from "node:net"

/**
 * A receiver of webhooks in a separate process: verifies `x-webhook-signature` with SECRET, and counts. Parses HTTP
 * itself, because Node's server would use more CPU than the measured program. A GET returns the figures so far as JSON,
 * and /reset also starts from zero; a POST to /aside does not count.
 */
const { PORT, SECRET = "" } = process.env
const ok = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
const fresh = () => ({ count: 0, wrong: 0, first: 0, last: 0 })
let figures = fresh()

const signatureOf = (head: string) => /\r\nx-webhook-signature: *([0-9a-f]{64})\r\n/i.exec(head)?.[1]

const receive = (head: string, body: string): string => {
  if (head.startsWith("GET ")) {
    const text = JSON.stringify(figures)
    if (head.startsWith("GET /reset ")) figures = fresh()
    return `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${text.length}\r\n\r\n${text}`
  }
  if (head.startsWith("POST /aside ")) return ok
  // The bytes as they came, one character for each.
  if (createHmac("sha256", SECRET).update(body, "latin1").digest("hex") !== signatureOf(head)) figures.wrong++
  figures.last = performance.now()
  if (figures.count++ === 0) figures.first = figures.last
  return ok
}

const server = createServer({ noDelay: true }, (socket) => {
  let text = ""
  socket.setEncoding("latin1")
  socket.on("data", (chunk: string) => {
    text += chunk
    let answers = ""
    for (;;) {
      const end = text.indexOf("\r\n\r\n")
      if (end === -1) break
      const head = text.slice(0, end + 2)
      const length = Number(/\r\ncontent-length: *(\d+)/i.exec(head)?.[1] ?? 0)
      if (text.length < end + 4 + length) break
      answers += receive(head, text.slice(end + 4, end + 4 + length))
      text = text.slice(end + 4 + length)
    }
    if (answers !== "") socket.write(answers)
  })
  socket.on("error", () => socket.destroy())
})
process.stdin.resume().once("end", () => process.exit())
server.listen(Number(PORT), "127.0.0.1")
