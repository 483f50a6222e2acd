import { Clock, Duration, Effect } from "effect"
import { EventEmitter } from "node:events"
import { connect, type Socket } from "node:net"
import { type Dice, epochMillis } from "./world.ts"

/** Message types of the PostgreSQL protocol. */
const QUERY = 0x51
const SYNC = 0x53
const TERMINATE = 0x58
const KEY_DATA = 0x4b
const READY = 0x5a

/** How many turns of the event loop must pass without a new statement: what an answer sets going has begun by then. */
const quietTurns = 12
/**
 * Sleeps up to this, in milliseconds, end when the dice say so; those up to `waitMillis` when nothing else can happen.
 */
const jitterMillis = 5
const waitMillis = 1_000
/** How long the world waits for something to happen. Then it is stuck. */
const stuckMillis = 20_000

const turn = () => new Promise<void>((resolve) => setImmediate(resolve))

/** A connection to PostgreSQL whose statements wait until the controller lets them run. */
class HeldSocket extends EventEmitter {
  readonly #socket: Socket
  readonly #locks: Locks
  #out: Buffer = Buffer.alloc(0)
  #in: Buffer = Buffer.alloc(0)
  /** What the server has answered and the driver has not got. */
  readonly #answers: Array<Buffer> = []
  /** The session of the server. */
  pid = 0
  /** The statements that wait for the controller. */
  readonly waiting: Array<Buffer> = []
  /** When its last statement came, or when it was opened: places in the order of all. */
  place: number
  /** How many statements the server has and has not answered. The start of the session is one. */
  running = 1
  #isStarted = false
  writable = true
  destroyed = false

  constructor(locks: Locks, port: number, host: string) {
    super()
    this.#locks = locks
    this.place = locks.nextPlace()
    this.#socket = connect({ port, host, noDelay: true })
    this.#socket.on("data", (bytes: Buffer) => {
      this.#read(bytes)
      this.#answers.push(bytes)
      // A session that starts needs its messages; what it says last may set more going.
      if (!this.#locks.isHolding || (this.running > 0 && !this.#isStarted)) this.deliver()
      else if (this.running === 0) this.#isStarted = true
    })
    for (const event of ["connect", "error", "end"])
      this.#socket.on(event, (...args: Array<unknown>) => this.emit(event, ...args))
    this.#socket.on("close", () => {
      this.#locks.connections.delete(this)
      this.destroyed = true
      this.emit("close")
    })
  }

  get hasAnswers() {
    return this.running === 0 && this.#answers.length > 0
  }
  /** Hands what the server has answered to the driver. */
  deliver() {
    if (this.running === 0) this.#isStarted = true
    for (const bytes of this.#answers.splice(0)) this.emit("data", bytes)
  }

  #read(bytes: Buffer) {
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
    this.#locks.nextPlace()
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
      this.place = this.#locks.nextPlace()
      start = at
    }
    this.#out = this.#out.subarray(start)
    if (!this.#locks.isHolding) this.releaseAll()
    return true
  }

  release() {
    this.running++
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

/** Reads the sessions of these that wait for a lock which somebody else holds. */
export type FindWaiting = (pids: ReadonlyArray<number>) => Promise<ReadonlySet<number>>

interface Sleep {
  readonly millis: number
  readonly place: number
  readonly run: () => void
}

/**
 * Decides, by dice, in which order the statements of all connections run on a real PostgreSQL: one at a time, each
 * until it is answered or waits for a lock. The driver gets the answers in the order in which their statements came,
 * and short sleeps end in an order that the dice decide. So everything follows from a seed, but for what PostgreSQL
 * ends by its own clock (`lock_timeout`).
 */
export class Locks {
  readonly connections = new Set<HeldSocket>()
  /** What was chosen in the last run, of how many: two runs of a seed choose the same. */
  readonly choices: Array<string> = []
  isHolding = false
  readonly #address: { readonly port: number; readonly host: string }
  readonly #findWaiting: FindWaiting
  readonly #sleeps = new Set<Sleep>()
  #places = 0
  #now = epochMillis

  constructor(address: { readonly port: number; readonly host: string }, findWaiting: FindWaiting) {
    this.#address = address
    this.#findWaiting = findWaiting
  }

  /** The next place in the order of all that happens in this process. */
  nextPlace() {
    return ++this.#places
  }

  /** Opens a connection, as `OpenSocket` does. */
  readonly open = (): Socket => {
    const socket = new HeldSocket(this, this.#address.port, this.#address.host)
    this.connections.add(socket)
    return socket as unknown as Socket
  }

  /** Stands still but for its short sleeps, which wait for the controller. Each run begins a minute later. */
  clock(real: Clock.Clock): Clock.Clock {
    const millis = () => this.#now
    const nanos = () => BigInt(this.#now) * 1_000_000n
    const sleep = (duration: Duration.Duration) => {
      const millis = Duration.toMillis(duration)
      if (!this.isHolding || millis > waitMillis) return real.sleep(duration)
      return Effect.callback<void>((resume) => {
        const wake = () => {
          this.#sleeps.delete(one)
          this.#now += Math.ceil(millis)
          resume(Effect.void)
        }
        const one: Sleep = { millis, place: this.nextPlace(), run: wake }
        this.#sleeps.add(one)
        return Effect.sync(() => this.#sleeps.delete(one))
      })
    }
    return {
      currentTimeMillisUnsafe: millis,
      currentTimeMillis: Effect.sync(millis),
      currentTimeNanosUnsafe: nanos,
      currentTimeNanos: Effect.sync(nanos),
      monotonicTimeNanosUnsafe: nanos,
      monotonicTimeNanos: Effect.sync(nanos),
      sleep,
    }
  }

  /** Waits until this process has begun everything that it can begin. */
  async #quiet() {
    for (let turns = 0, places = this.#places; turns < quietTurns; turns++) {
      await turn()
      if (places !== this.#places) [turns, places] = [0, this.#places]
    }
  }

  /** Waits until each statement that runs is answered or waits for a lock, and the driver has all answers. */
  async #settle() {
    const since = performance.now()
    for (;;) {
      await this.#quiet()
      if (performance.now() - since > stuckMillis) throw new Error("A statement neither ends nor waits for a lock")
      const running = [...this.connections].filter((one) => one.running > 0)
      if (running.length > 0) {
        const waiting = await this.#findWaiting(running.map(({ pid }) => pid))
        if (running.some((one) => one.running > 0 && !waiting.has(one.pid))) continue
        // It was answered while the others were looked at.
        if (running.some((one) => one.running === 0)) continue
      }
      const [first] = [...this.connections]
        .filter((one) => one.hasAnswers)
        .toSorted((one, other) => one.place - other.place)
      if (first === undefined) return
      first.deliver()
    }
  }

  /** Runs a task; its statements run in an order that the dice decide. */
  async run<A>(dice: Dice, task: () => Promise<A>): Promise<A> {
    this.isHolding = true
    this.choices.length = 0
    this.#now += 60_000
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
        const statements = [...this.connections]
          .filter((one) => one.waiting.length > 0 && one.running === 0)
          .map((one) => ({ place: one.place, run: () => one.release() }))
        const sleeps = [...this.#sleeps]
        const jitters = sleeps.filter(({ millis }) => millis <= jitterMillis)
        const ready = [...statements, ...jitters].toSorted((one, other) => one.place - other.place)
        const next = ready.length > 0 ? dice.pick(ready) : sleeps.toSorted((one, other) => one.millis - other.millis)[0]
        if (next === undefined) continue
        this.choices.push(`${ready.indexOf(next)} of ${ready.length}`)
        next.run()
      }
    } finally {
      this.isHolding = false
      Math.random = random
      for (const one of this.connections) {
        one.deliver()
        one.releaseAll()
      }
      for (const one of this.#sleeps) one.run()
    }
    return result
  }
}
