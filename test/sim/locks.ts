import { EventEmitter } from "node:events"
import { connect, type Socket } from "node:net"
import type { Dice } from "./world.ts"

/** Message types of the PostgreSQL protocol. */
const QUERY = 0x51
const SYNC = 0x53
const TERMINATE = 0x58
const KEY_DATA = 0x4b
const READY = 0x5a

/** How long nothing must happen before the next statement runs: what the answers set going has begun by then. */
const quietMillis = 2
/** How long the world waits for something to happen. Then it is stuck. */
const stuckMillis = 20_000

const sleep = (millis: number) => new Promise<void>((resolve) => setTimeout(resolve, millis))

/** A connection to PostgreSQL whose statements wait until the controller lets them run. */
class HeldSocket extends EventEmitter {
  readonly #socket: Socket
  readonly #locks: Locks
  #out: Buffer = Buffer.alloc(0)
  #in: Buffer = Buffer.alloc(0)
  /** The session of the server. */
  pid = 0
  /** The statements that wait for the controller. */
  readonly waiting: Array<Buffer> = []
  /** How many statements the server has and has not answered. The start of the session is one. */
  running = 1
  writable = true
  destroyed = false

  constructor(locks: Locks, port: number, host: string) {
    super()
    this.#locks = locks
    this.#socket = connect({ port, host, noDelay: true })
    this.#socket.on("data", (bytes: Buffer) => {
      this.#read(bytes)
      this.emit("data", bytes)
    })
    for (const event of ["connect", "error", "end"])
      this.#socket.on(event, (...args: Array<unknown>) => this.emit(event, ...args))
    this.#socket.on("close", () => {
      this.#locks.connections.delete(this)
      this.destroyed = true
      this.emit("close")
    })
  }

  #read(bytes: Buffer) {
    this.#locks.noteActivity()
    // The answer to the question for TLS, which the servers of tests do not have.
    if (this.pid === 0 && bytes.length === 1) return
    this.#in = Buffer.concat([this.#in, bytes])
    while (this.#in.length >= 5 && this.#in.length > this.#in.readInt32BE(1)) {
      if (this.#in[0] === KEY_DATA) this.pid = this.#in.readInt32BE(5)
      if (this.#in[0] === READY) this.running--
      this.#in = this.#in.subarray(1 + this.#in.readInt32BE(1))
    }
  }

  write(bytes: Uint8Array): boolean {
    this.#locks.noteActivity()
    // What starts a session is no statement: the driver sends nothing else until the server is ready.
    if (this.running > 0 && this.pid === 0) return this.#socket.write(bytes)
    this.#out = Buffer.concat([this.#out, bytes])
    let [start, at] = [0, 0]
    while (at + 5 <= this.#out.length && at + 1 + this.#out.readInt32BE(at + 1) <= this.#out.length) {
      const type = this.#out[at]!
      at += 1 + this.#out.readInt32BE(at + 1)
      if (type === TERMINATE) return this.#socket.write(this.#out.subarray(start, at))
      if (type !== SYNC && type !== QUERY) continue
      this.waiting.push(this.#out.subarray(start, at))
      start = at
    }
    this.#out = this.#out.subarray(start)
    if (!this.#locks.isHolding) this.releaseAll()
    return true
  }

  release() {
    this.running++
    this.#locks.noteActivity()
    this.#socket.write(this.waiting.shift()!)
  }
  releaseAll() {
    while (this.waiting.length > 0) this.release()
  }

  end(bytes?: Uint8Array): this {
    if (bytes !== undefined) this.write(bytes)
    this.#socket.end()
    return this
  }
  destroy(error?: Error): this {
    this.#socket.destroy(error)
    return this
  }
  pause(): this {
    this.#socket.pause()
    return this
  }
  resume(): this {
    this.#socket.resume()
    return this
  }
}

/** Reads the sessions of these that wait for a lock. */
export type FindWaiting = (pids: ReadonlyArray<number>) => Promise<ReadonlySet<number>>

/**
 * Decides, by dice, in which order the statements of all connections run on a real PostgreSQL: one at a time, each
 * until
 * it is answered or waits for a lock. So the order in which transactions meet at their locks follows from a seed.
 */
export class Locks {
  readonly connections = new Set<HeldSocket>()
  isHolding = false
  readonly #address: { readonly port: number; readonly host: string }
  readonly #findWaiting: FindWaiting
  #lastActivity = 0

  constructor(address: { readonly port: number; readonly host: string }, findWaiting: FindWaiting) {
    this.#address = address
    this.#findWaiting = findWaiting
  }

  noteActivity() {
    this.#lastActivity = performance.now()
  }

  /** Opens a connection, as `OpenSocket` does. */
  readonly open = (): Socket => {
    const socket = new HeldSocket(this, this.#address.port, this.#address.host)
    this.connections.add(socket)
    return socket as unknown as Socket
  }

  /** Waits until each statement that runs is answered or waits for a lock, and nothing else happens. */
  async #settle() {
    const since = performance.now()
    for (;;) {
      await sleep(0.5)
      if (performance.now() - since > stuckMillis) throw new Error("A statement neither ends nor waits for a lock")
      if (performance.now() - this.#lastActivity < quietMillis) continue
      const running = [...this.connections].filter((one) => one.running > 0)
      if (running.length === 0) return
      const activity = this.#lastActivity
      const waiting = await this.#findWaiting(running.map(({ pid }) => pid))
      if (activity === this.#lastActivity && running.every(({ pid }) => waiting.has(pid))) return
    }
  }

  /** Runs a task; its statements run in an order that the dice decide. */
  async run<A>(dice: Dice, task: () => Promise<A>): Promise<A> {
    this.isHolding = true
    // The races begin one of their writes up to a millisecond later, by chance.
    const { random } = Math
    const chance = dice.fork()
    Math.random = () => chance.next()
    let isDone = false
    const result = task().finally(() => {
      isDone = true
    })
    result.catch(() => {})
    try {
      for (;;) {
        await this.#settle()
        if (isDone) break
        const ready = [...this.connections].filter((one) => one.waiting.length > 0 && one.running === 0)
        if (ready.length === 0) continue
        const next = dice.pick(ready)
        next.release()
      }
    } finally {
      this.isHolding = false
      Math.random = random
      for (const one of this.connections) one.releaseAll()
    }
    return result
  }
}
