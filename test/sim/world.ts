import { Clock, Context, Duration, Effect, Random, Scheduler } from "effect"
import { AsyncLocalStorage, createHook } from "node:async_hooks"

/** Random numbers from a seed: sfc32, which is small, fast and the same on every machine. */
export class Dice {
  #a: number
  #b = 0x9e3779b9
  #c = 0x243f6a88
  #d = 1
  constructor(seed: number) {
    this.#a = seed | 0
    this.#b ^= Math.floor(seed / 2 ** 32)
    for (let n = 0; n < 12; n++) this.bits()
  }
  /** 32 random bits. */
  bits(): number {
    const t = (((this.#a + this.#b) | 0) + this.#d) | 0
    this.#d = (this.#d + 1) | 0
    this.#a = this.#b ^ (this.#b >>> 9)
    this.#b = (this.#c + (this.#c << 3)) | 0
    this.#c = (this.#c << 21) | (this.#c >>> 11)
    this.#c = (this.#c + t) | 0
    return t >>> 0
  }
  /** From 0 up to, and without, 1. */
  next(): number {
    return this.bits() / 2 ** 32
  }
  /** A whole number from `minimum` up to, and with, `maximum`. */
  int(minimum: number, maximum: number): number {
    return minimum + Math.floor(this.next() * (maximum - minimum + 1))
  }
  chance(probability: number): boolean {
    return this.next() < probability
  }
  pick<A>(items: ReadonlyArray<A>): A {
    return items[Math.floor(this.next() * items.length)]!
  }
  /** Picks a key, each as often as its weight says. */
  weighted<K extends string>(weights: Readonly<Record<K, number>>): K {
    const entries = Object.entries<number>(weights)
    let left = this.next() * entries.reduce((sum, [, weight]) => sum + weight, 0)
    for (const [key, weight] of entries) if ((left -= weight) < 0) return key as K
    return entries[0]![0] as K
  }
  randomize(bytes: Uint8Array): Uint8Array {
    for (let n = 0; n < bytes.length; n++) bytes[n] = this.bits() >>> 13
    return bytes
  }
  /** Dice of their own for a part of the world, so that a change of one part does not change the others. */
  fork(): Dice {
    return new Dice(this.bits() * 2 ** 20 + (this.bits() >>> 12))
  }
}

/** The true time at which every world begins, in milliseconds. */
export const epochMillis = Date.UTC(2030, 0, 1)

/** What happened, for the log of a run and its story. */
export interface Entry {
  readonly at: number
  readonly who: string
  readonly what: string
}

interface Timer {
  readonly at: number
  readonly order: number
  readonly run: () => void
  isCancelled: boolean
}

/** The timers of a world, in a binary heap: the earliest first, and those of one time in the order of their making. */
class Timers {
  readonly #heap: Array<Timer> = []
  #made = 0
  get next(): Timer | undefined {
    while (this.#heap[0]?.isCancelled === true) this.take()
    return this.#heap[0]
  }
  add(at: number, run: () => void): Timer {
    const timer: Timer = { at, order: this.#made++, run, isCancelled: false }
    const heap = this.#heap
    let n = heap.push(timer) - 1
    while (n > 0) {
      const parent = (n - 1) >> 1
      if (!isBefore(timer, heap[parent]!)) break
      heap[n] = heap[parent]!
      n = parent
    }
    heap[n] = timer
    return timer
  }
  take(): Timer {
    const heap = this.#heap
    const first = heap[0]!
    const last = heap.pop()!
    if (heap.length === 0) return first
    let n = 0
    for (;;) {
      let child = 2 * n + 1
      if (child >= heap.length) break
      if (child + 1 < heap.length && isBefore(heap[child + 1]!, heap[child]!)) child++
      if (!isBefore(heap[child]!, last)) break
      heap[n] = heap[child]!
      n = child
    }
    heap[n] = last
    return first
  }
}

const isBefore = (one: Timer, other: Timer) => one.at < other.at || (one.at === other.at && one.order < other.order)

/** How long a clock runs too fast or too slow. */
const driftMillis = 600_000

/** How an actor's clock differs from the true time. */
export interface ClockError {
  /** Added to the true time, in milliseconds. */
  skewMillis: number
  /** How many seconds its clocks count in a true second, while they drift. */
  readonly rate: number
}

/**
 * A process of the simulated world: a replica, or the clients together. All its code runs as tasks, one after the other
 * with those of the other actors, in an order that the seed decides. It has a clock of its own.
 */
export class Actor {
  readonly name: string
  readonly world: World
  readonly dice: Dice
  readonly clock: ClockError
  state: "running" | "paused" | "dead" = "running"
  /** How often its fibers yield: after so many operations. */
  readonly opsBeforeYield: number
  /** How often a task overtakes the others of the actor. */
  readonly overtaking: number
  /** Effect's services of this actor: time, order and randomness. */
  readonly services: Context.Context<never>
  #tasks: Array<() => void> = []
  readonly #firsts = new Set<() => void>()

  constructor(world: World, name: string, clock: ClockError) {
    this.world = world
    this.name = name
    this.clock = clock
    this.dice = world.dice.fork()
    this.opsBeforeYield = this.dice.pick([64, 512, 2048, 2048])
    this.overtaking = this.dice.pick([0, 0.02, 0.3])
    this.services = servicesOf(this)
    world.actors.push(this)
  }

  get isReady() {
    return this.state === "running" && this.#tasks.length > 0
  }

  /** Adds a task. A paused actor runs it when it continues, a dead one never. */
  enqueue(task: () => void) {
    if (this.state !== "dead") this.#tasks.push(task)
  }
  /** Adds a task before all others: what came last may be read first after a pause, if it came by another socket. */
  enqueueFirst(task: () => void) {
    if (this.state === "dead") return
    this.#tasks.unshift(task)
    this.#firsts.add(task)
  }

  /** Runs the next task. Returns whether what it begins goes on before other tasks. */
  step(): boolean {
    const at =
      this.#tasks.length > 1 && this.dice.chance(this.overtaking) ? this.dice.int(0, this.#tasks.length - 1) : 0
    const task = at === 0 ? this.#tasks.shift()! : this.#tasks.splice(at, 1)[0]!
    this.world.runAs(this, task)
    return this.#firsts.delete(task)
  }

  /** Ends the actor at once: no task of it runs again, no finalizer. */
  kill() {
    this.state = "dead"
    this.#tasks = []
    this.world.actors.splice(this.world.actors.indexOf(this), 1)
  }

  wallMillis() {
    return epochMillis + this.monotonicMillis() + this.clock.skewMillis
  }
  /** It drifts for ten minutes, and back, as a clock that is compared with those of others. */
  monotonicMillis() {
    const { now } = this.world
    const phase = now % (2 * driftMillis)
    return now + (this.clock.rate - 1) * Math.min(phase, 2 * driftMillis - phase)
  }

  /** Runs a task after a time of this actor's clock. Returns what cancels it. */
  after(millis: number, task: () => void): () => void {
    const timer = this.world.timers.add(this.world.now + Math.max(millis, 0) / this.clock.rate, () =>
      this.enqueue(() => timer.isCancelled || task()),
    )
    return () => void (timer.isCancelled = true)
  }
}

const servicesOf = (actor: Actor) => {
  const nanos = (millis: number) => BigInt(Math.floor(millis * 1e3)) * 1000n
  const wall = () => Math.floor(actor.wallMillis())
  const wallNanos = () => nanos(actor.wallMillis())
  const monotonicNanos = () => nanos(actor.monotonicMillis())
  const dispatcher = { scheduleTask: (task: () => void) => actor.enqueue(task), flush: () => {} }
  return Context.empty().pipe(
    Context.add(Clock.Clock, {
      currentTimeMillisUnsafe: wall,
      currentTimeMillis: Effect.sync(wall),
      currentTimeNanosUnsafe: wallNanos,
      currentTimeNanos: Effect.sync(wallNanos),
      monotonicTimeNanosUnsafe: monotonicNanos,
      monotonicTimeNanos: Effect.sync(monotonicNanos),
      sleep: (duration) =>
        Effect.callback<void>((resume) => {
          const millis = Duration.toMillis(duration)
          if (Number.isFinite(millis)) return Effect.sync(actor.after(millis, () => resume(Effect.void)))
        }),
    }),
    Context.add(Scheduler.Scheduler, {
      executionMode: "async",
      shouldYield: (fiber) => fiber.currentOpCount >= actor.opsBeforeYield,
      makeDispatcher: () => dispatcher,
    }),
    Context.add(Random.Random, {
      nextDoubleUnsafe: () => actor.dice.next(),
      nextIntUnsafe: () => Math.floor((actor.dice.next() * 2 - 1) * Number.MAX_SAFE_INTEGER),
    }),
  ) as Context.Context<never>
}

/** Node's own, before a world replaces it. */
const realSetImmediate = globalThis.setImmediate
const macrotask = () => new Promise<void>((resolve) => realSetImmediate(resolve))

/** The resources of Node whose ends do not depend on real time: continuations, and calls that return when they end. */
const timeless = new Set([
  ...["PROMISE", "Microtask", "TickObject", "Immediate", "effect/Fiber"],
  ...["RANDOMBYTESREQUEST", "SIGNREQUEST", "ELDHISTOGRAM"],
])

/** The actor whose code runs, also in what its promises and streams continue. */
const running = new AsyncLocalStorage<Actor>()

/**
 * The simulated world: actors, the true time, and one source of all chance. Nothing in it depends on real time: when no
 * task is left, time moves to the next timer. The same seed makes the same run.
 */
export class World {
  readonly dice: Dice
  readonly timers = new Timers()
  readonly actors: Array<Actor> = []
  readonly log: Array<Entry> = []
  /** The true time since the beginning of the world, in milliseconds. */
  now = 0
  /** The time that `Date.now` answers while the database's engine runs, which has no timers. */
  wallNow: number | undefined
  /** How much later it is with each look of the engine at the clock, in milliseconds. */
  lookMillis = 0
  readonly #seed: number
  /** How many tasks have run. */
  #tasks = 0
  #platformDice: Dice | undefined
  #outside = 0
  #last: Promise<unknown> = Promise.resolve()
  #fault: { readonly cause: unknown } | undefined

  constructor(seed: number, dice = new Dice(seed)) {
    this.#seed = seed
    this.dice = dice
  }

  note(who: string, what: string) {
    this.log.push({ at: this.now, who, what })
  }

  runAs(actor: Actor, task: () => void) {
    // Libraries keep some of what they draw for the life of the process, so a later run draws less. That must not
    // change what later tasks draw.
    this.#platformDice = undefined
    this.#tasks++
    try {
      running.run(actor, task)
    } catch (cause) {
      this.#fault ??= { cause }
    }
  }

  /** Ends the run with a fault of the simulation itself. */
  fail(cause: unknown) {
    this.#fault ??= { cause }
  }

  /** Runs what happens outside of the actors after a time. Returns what cancels it. */
  after(millis: number, run: () => void): () => void {
    const timer = this.timers.add(this.now + Math.max(millis, 0), run)
    return () => void (timer.isCancelled = true)
  }

  /** Holds the world while the platform works elsewhere, one task after the other: its duration decides nothing. */
  hold<A>(task: () => Promise<A>): Promise<A> {
    this.#outside++
    const done = this.#last.then(task)
    this.#last = done.then(
      () => void this.#outside--,
      () => void this.#outside--,
    )
    return done
  }

  /** Runs the world until the condition holds. Fails if nothing more can happen. */
  async run(isDone: () => boolean): Promise<void> {
    while (!isDone()) {
      this.#runReady()
      // What promises and streams of the platform continue runs now, in the order in which they were resolved.
      do await macrotask()
      while (this.#outside > 0)
      if (this.#fault !== undefined) throw this.#fault.cause
      if (this.actors.some(({ isReady }) => isReady)) continue
      const timer = this.timers.next
      if (timer === undefined) throw new Error("Nothing can happen any more in this world")
      this.timers.take()
      this.now = Math.max(this.now, timer.at)
      timer.run()
    }
  }

  #runReady() {
    for (;;) {
      const ready = this.actors.filter(({ isReady }) => isReady)
      if (ready.length === 0) return
      if ((ready.length === 1 ? ready[0]! : this.dice.pick(ready)).step()) return
    }
  }

  /**
   * Lives: what code asks the platform for meanwhile, time, timers and chance, is answered by the world. An actor that
   * begins something whose end depends on real time (a file, a socket, a timer of the platform) ends the run.
   */
  async live<A>(life: () => Promise<A>): Promise<A> {
    const restore = this.#replacePlatform()
    const watch = createHook({
      init: (_, type) => {
        if (timeless.has(type) || this.#outside > 0 || running.getStore()?.world !== this) return
        this.fail(new Error(`An actor waits for the real world (${type})`))
      },
    }).enable()
    try {
      return await life()
    } finally {
      watch.disable()
      restore()
    }
  }

  /** The actor that asks the platform. Who is none of the world would ask at a moment of real time: a run may not. */
  #asking() {
    const actor = running.getStore()
    if (actor?.world === this) return actor
    const cause = new Error("Code from outside of the world asks for time, timers or chance")
    this.#fault ??= { cause }
    throw cause
  }

  #replacePlatform() {
    const actor = () => this.#asking()
    const dice = () => {
      if (this.wallNow === undefined) actor()
      return (this.#platformDice ??= new Dice(this.#seed + this.#tasks * 2 ** 32))
    }
    const start = (run: (...args: Array<unknown>) => void, millis: number | undefined, args: Array<unknown>) => {
      // The engine's timers end statements that take too long; in this world a statement takes no time.
      if (this.wallNow !== undefined) return () => {}
      const cancel = actor().after(Number(millis ?? 0), () => run(...args))
      return Object.assign(cancel, {
        ref: () => cancel,
        unref: () => cancel,
        hasRef: () => true,
        refresh: () => cancel,
      })
    }
    const stop = (timer: unknown) => void (typeof timer === "function" && timer())
    const repeat = (run: (...args: Array<unknown>) => void, millis?: number, ...args: Array<unknown>) => {
      let cancel = () => {}
      const again = () => void (cancel = actor().after(Number(millis ?? 1), () => (again(), run(...args))))
      again()
      const end = () => cancel()
      return Object.assign(end, { ref: () => end, unref: () => end })
    }
    const subtle = ["decrypt", "digest", "encrypt", "exportKey", "generateKey", "importKey", "sign", "verify"] as const
    const held =
      (method: (...args: Array<never>) => Promise<unknown>) =>
      (...args: Array<never>) =>
        this.hold(() => method.apply(crypto.subtle, args))
    const replaced: Array<[object, string, unknown]> = [
      // All of them work in threads of their own, and end when these do.
      ...subtle.map((name): [object, string, unknown] => [crypto.subtle, name, held(crypto.subtle[name])]),
      [
        Date,
        "now",
        () => (this.wallNow === undefined ? Math.floor(actor().wallMillis()) : (this.wallNow += this.lookMillis)),
      ],
      [performance, "now", () => (this.wallNow === undefined ? actor().monotonicMillis() : this.now)],
      [Math, "random", () => dice().next()],
      [crypto, "getRandomValues", (bytes: Uint8Array) => dice().randomize(bytes)],
      [
        globalThis,
        "setTimeout",
        (run: () => void, millis?: number, ...args: Array<unknown>) => start(run, millis, args),
      ],
      [globalThis, "clearTimeout", stop],
      [globalThis, "setInterval", repeat],
      [globalThis, "clearInterval", stop],
      [globalThis, "setImmediate", (run: () => void, ...args: Array<unknown>) => start(run, 0, args)],
      [globalThis, "clearImmediate", stop],
    ]
    const before = replaced.map(([owner, name, value]) => {
      const descriptor = Object.getOwnPropertyDescriptor(owner, name)
      Object.defineProperty(owner, name, { value, configurable: true, writable: true })
      return [owner, name, descriptor] as const
    })
    return () => {
      for (const [owner, name, descriptor] of before) {
        if (descriptor === undefined) Reflect.deleteProperty(owner, name)
        else Object.defineProperty(owner, name, descriptor)
      }
    }
  }
}
