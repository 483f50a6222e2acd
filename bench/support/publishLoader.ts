import { readFileSync } from "node:fs"
import { connect } from "node:net"

/**
 * Sends requests over CONNECTIONS connections for MILLIS milliseconds, each connection one after the other, and prints
 * what it counted as JSON. FILE has the steps of one round as requests in full; `{id}` in a step is the `job_id` of the
 * response before. It reads HTTP by itself, as a client of Node would take more CPU than what is measured.
 */
const { CONNECTIONS, FILE = "", MILLIS, PORT } = process.env

/** A request without its `content-length`, which depends on the id. */
interface Step {
  readonly head: string
  readonly body: string
}

const steps = JSON.parse(readFileSync(FILE, "utf8")) as ReadonlyArray<Step>
const bytesOf = ({ body, head }: Step, id: string) => {
  const text = body.replace("{id}", id)
  return `${head}content-length: ${Buffer.byteLength(text)}\r\n\r\n${text}`
}

/** Sends a request and returns the body of a 200. */
type Send = (request: string) => Promise<string>

const open = (): Promise<Send> =>
  new Promise((opened, failed) => {
    let text = ""
    let settle: { readonly done: (body: string) => void; readonly fail: (error: Error) => void } | undefined
    const fail = (error: Error) => (settle === undefined ? failed(error) : settle.fail(error))
    const socket = connect({ port: Number(PORT), host: "127.0.0.1", noDelay: true })
    socket.setEncoding("latin1")
    socket.on("data", (chunk: string) => {
      text += chunk
      const end = text.indexOf("\r\n\r\n")
      if (end === -1) return
      const length = Number(/\r\ncontent-length: *(\d+)/i.exec(text)?.[1])
      if (Number.isNaN(length)) return fail(new Error(`A response without a length: ${text}`))
      if (text.length < end + 4 + length) return
      const [response, body] = [text, text.slice(end + 4, end + 4 + length)]
      text = text.slice(end + 4 + length)
      if (response.startsWith("HTTP/1.1 200 ")) settle?.done(body)
      else fail(new Error(response))
    })
    socket.once("error", fail).once("close", () => fail(new Error("The connection was closed")))
    const send: Send = (request) =>
      new Promise((done, failed) => {
        settle = { done, fail: failed }
        socket.write(request)
      })
    socket.once("connect", () => opened(send))
  })

const senders = await Promise.all(Array.from({ length: Number(CONNECTIONS) }, open))
const since = performance.now()
const until = since + Number(MILLIS)
let rounds = 0
const repeat = async (send: Send) => {
  while (performance.now() < until) {
    let id = ""
    for (const step of steps) id = /"job_id":"(\w+)"/.exec(await send(bytesOf(step, id)))?.[1] ?? ""
    rounds++
  }
}
await Promise.all(senders.map(repeat))
process.stdout.write(`${JSON.stringify({ rounds, millis: performance.now() - since })}\n`)
process.exit()
