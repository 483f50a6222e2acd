import { Duplex } from "node:stream"

/** A running engine: answers frontend messages with backend messages of the PostgreSQL protocol. */
export type Engine = (frames: Uint8Array) => Promise<Uint8Array>

interface Options {
  /** Waits for the earlier sessions and returns the engine. `ended` resolves when this session ends. */
  readonly takeTurn: (ended: Promise<void>) => Promise<Engine>
  readonly onNotification: (channel: string, payload: string) => void
}

/**
 * The server side of one connection to the embedded engine; the driver uses it as a socket. The engine has a single session
 * and handles neither startup nor termination, so each connection resets the session first.
 */
export class EmbeddedSession extends Duplex {
  readonly #options: Options
  #engine: Engine | undefined

  constructor(options: Options) {
    super()
    this.#options = options
  }

  override _read() {}

  override _write(chunk: Buffer, _encoding: string, done: (error?: Error) => void) {
    this.#take([chunk], done)
  }

  /** Sends the writes that arrived while the engine was busy in one piece. */
  override _writev(chunks: Array<{ chunk: Buffer }>, done: (error?: Error) => void) {
    this.#take(
      chunks.map(({ chunk }) => chunk),
      done,
    )
  }

  override _final(done: () => void) {
    done()
    this.destroy()
  }

  #take(chunks: ReadonlyArray<Buffer>, done: (error?: Error) => void) {
    this.#answer(chunks).then(() => done(), done)
  }

  async #answer(chunks: ReadonlyArray<Buffer>) {
    if (this.#engine === undefined) return this.#begin(chunks[0]!)
    // Each write consists of complete messages, and Terminate is a write of its own.
    const frames = chunks.filter((chunk) => chunk[0] !== TERMINATE)
    if (frames.length === 0) return
    const answer = await this.#engine(Buffer.concat(frames))
    if (this.destroyed) return
    for (const [channel, payload] of notifications(answer)) this.#options.onNotification(channel, payload)
    this.push(answer)
  }

  async #begin(startup: Buffer) {
    // A statement cannot be canceled: the engine reads nothing while it executes one.
    if (startup.readInt32BE(4) === CANCEL_REQUEST) return void this.destroy()
    const ended = new Promise<void>((resolve) => this.once("close", resolve))
    const engine = await this.#options.takeTurn(ended)
    for (const sql of reset) {
      if (this.destroyed) return
      await engine(simpleQuery(sql))
    }
    this.#engine = engine
    this.push(greeting)
  }
}

const TERMINATE = 0x58
const CANCEL_REQUEST = 80877102
const NOTIFICATION = 0x41

/**
 * Ends the transaction, statements, settings and locks of the previous session. Keeps LISTEN, which all sessions share.
 */
const reset = ["ROLLBACK", "DEALLOCATE ALL", "RESET ALL", "SELECT pg_advisory_unlock_all()"]

const simpleQuery = (sql: string): Uint8Array => {
  const frame = Buffer.from(`Q....${sql}\0`)
  frame.writeInt32BE(frame.length - 1, 1)
  return frame
}

/** AuthenticationOk, BackendKeyData, ReadyForQuery. */
const greeting = Buffer.from("5200000008000000004b0000000c00000001000000015a0000000549", "hex")

/** Finds the notifications among backend messages. */
const notifications = function* (answer: Uint8Array): Generator<readonly [channel: string, payload: string]> {
  const bytes = Buffer.from(answer.buffer, answer.byteOffset, answer.byteLength)
  for (let at = 0; at < bytes.length; at += 1 + bytes.readInt32BE(at + 1)) {
    if (bytes[at] !== NOTIFICATION) continue
    const channelEnd = bytes.indexOf(0, at + 9)
    yield [
      bytes.toString("utf8", at + 9, channelEnd),
      bytes.toString("utf8", channelEnd + 1, bytes.indexOf(0, channelEnd + 1)),
    ]
  }
}
