import { PGlite, type PGliteOptions } from "@electric-sql/pglite"
import { createHash } from "node:crypto"
import { EventEmitter } from "node:events"
import type { Socket } from "node:net"
import { planSettings } from "#src/infrastructure/database/planSettings.ts"
import { type Actor, type Dice, epochMillis, type World } from "./world.ts"

/** Message types of the PostgreSQL protocol. */
const QUERY = 0x51
const PARSE = 0x50
const BIND = 0x42
const DESCRIBE = 0x44
const CLOSE = 0x43
const SYNC = 0x53
const TERMINATE = 0x58
const NOTIFICATION = 0x41
const READY = 0x5a
const PARSE_COMPLETE = 0x31
const IDLE = 0x49
const ERROR = 0x45
const ROW_DESCRIPTION = 0x54
const DATA_ROW = 0x44

const cancelRequest = 80877102

/** How long a transaction may wait for its client: `idle_in_transaction_session_timeout` of the pool. */
const idleInTransactionMillis = 10_000

const frame = (type: number, ...parts: ReadonlyArray<Uint8Array | string>) => {
  const body = Buffer.concat(parts.map((part) => (typeof part === "string" ? Buffer.from(part) : part)))
  const head = Buffer.alloc(5)
  head[0] = type
  head.writeInt32BE(body.length + 4, 1)
  return Buffer.concat([head, body])
}
const int32 = (value: number) => {
  const bytes = Buffer.alloc(4)
  bytes.writeInt32BE(value)
  return bytes
}
const query = (sql: string) => frame(QUERY, `${sql}\0`)
const errorResponse = (severity: string, code: string, message: string) =>
  frame(ERROR, `S${severity}\0V${severity}\0C${code}\0M${message}\0\0`)
const readyForQuery = (state: number) => frame(READY, Uint8Array.of(state))

/** Messages that end the answer to a message of the client: of Parse, Bind, Close, Describe and Execute. */
const lastAnswers: ReadonlySet<number> = new Set([...Buffer.from("123TnCIs")])

/** The messages that are answered so. */
const answerable: ReadonlySet<number> = new Set([...Buffer.from("PBCDE")])

/** The messages of a piece of the protocol, whole ones only. */
const messages = function* (bytes: Buffer): Generator<Buffer> {
  for (let at = 0; at < bytes.length;) {
    const end = at + 1 + bytes.readInt32BE(at + 1)
    yield bytes.subarray(at, end)
    at = end
  }
}

const columnsOf = (message: Buffer) => {
  const names: Array<string> = []
  for (let at = 7; at < message.length;) {
    const end = message.indexOf(0, at)
    names.push(message.toString("utf8", at, end))
    at = end + 19
  }
  return names
}

const valuesOf = (message: Buffer) => {
  const values: Array<string | null> = []
  for (let at = 7; at < message.length;) {
    const length = message.readInt32BE(at)
    at += 4
    values.push(length < 0 ? null : message.toString("utf8", at, at + length))
    at += Math.max(length, 0)
  }
  return values
}

/** What can be wrong with the connections of a replica to the database. */
export interface Link {
  /** Each way takes a time up to this, in milliseconds. */
  delayMillis: number
  /** Until this true time nothing arrives, in neither direction: packets are sent again until then. */
  silentUntil: number
  /** Whether new connections are refused until then. */
  refusedUntil: number
  /** How often a connection breaks at a COMMIT: before the server has it, or before its answer arrives. */
  cutAtCommit: number
  /** How often a notification is lost, with the connection that should have brought it. */
  cutAtNotify: number
  /** What happens when the server has run a statement with this text, before its answer is on its way. Once. */
  trap: { readonly text: RegExp; readonly spring: (session: Session) => void } | undefined
}

/** A link that nothing is wrong with. */
export const goodLink = (delayMillis: number): Link => ({
  delayMillis,
  silentUntil: 0,
  refusedUntil: 0,
  cutAtCommit: 0,
  cutAtNotify: 0,
  trap: undefined,
})

/** The client's side of a connection, which the driver uses as a socket. */
class ClientSocket extends EventEmitter {
  readonly actor: Actor
  readonly session: Session
  writable = true
  destroyed = false
  constructor(actor: Actor, open: (socket: ClientSocket) => Session) {
    super()
    this.actor = actor
    this.session = open(this)
  }
  write(bytes: Uint8Array): boolean {
    if (this.writable) this.session.send(Buffer.from(bytes))
    return true
  }
  end(bytes?: Uint8Array): this {
    if (bytes !== undefined) this.write(bytes)
    return this.destroy()
  }
  destroy(error?: Error): this {
    if (this.destroyed) return this
    this.destroyed = true
    this.writable = false
    this.session.hangUp()
    this.actor.enqueue(() => {
      if (error !== undefined) this.emit("error", error)
      this.emit("close")
    })
    return this
  }
  pause(): this {
    return this
  }
  resume(): this {
    return this
  }
}

/** The server's side of a connection: a session of PostgreSQL. All sessions share the session of the one engine. */
class Session {
  readonly id: number
  readonly channels = new Set<string>()
  readonly actor: Actor
  readonly socket: ClientSocket
  readonly link: Link
  isOpen = true
  /** The whole statements that have arrived and not run. */
  readonly waiting: Array<Buffer> = []
  inTransaction = false
  idleSince = 0
  /** Its answers arrive no earlier. */
  heldUntil = 0
  readonly #database: SimulatedDatabase
  /** The prepared statements, by the driver's names, which are random: their texts, and their names in the engine. */
  readonly #statements = new Map<string, { readonly text: string; readonly own: string }>()
  #received: Buffer = Buffer.alloc(0)
  #isStarted = false
  /** When the last bytes of each direction arrive: bytes never overtake each other. */
  #lastToServer = 0
  #lastToClient = 0

  constructor(database: SimulatedDatabase, id: number, actor: Actor, socket: ClientSocket, link: Link) {
    this.#database = database
    this.id = id
    this.actor = actor
    this.socket = socket
    this.link = link
  }

  #arrival(last: number) {
    const { world, dice } = this.#database
    return Math.max(last, this.link.silentUntil, world.now + 0.02 + dice.next() * this.link.delayMillis)
  }

  /** The client sends bytes. */
  send(bytes: Buffer) {
    const { world } = this.#database
    this.#lastToServer = this.#arrival(this.#lastToServer)
    world.after(this.#lastToServer - world.now, () => this.isOpen && this.#receive(bytes))
  }

  /** The client's side has closed, or its process has died. */
  hangUp() {
    const { world } = this.#database
    this.#lastToServer = this.#arrival(this.#lastToServer)
    world.after(this.#lastToServer - world.now, () => this.end())
  }

  /** Sends bytes to the client, while the connection holds. */
  answer(bytes: Buffer) {
    if (!this.isOpen) return
    const { world } = this.#database
    this.#lastToClient = Math.max(this.#arrival(this.#lastToClient), this.heldUntil)
    world.after(this.#lastToClient - world.now, () =>
      this.actor.enqueue(() => this.socket.destroyed || this.socket.emit("data", bytes)),
    )
  }

  /** The connection breaks; both sides see it. */
  cut(why: string) {
    if (!this.isOpen) return
    this.#database.world.note(this.actor.name, `database connection ${this.id} breaks ${why}`)
    this.end()
    this.actor.enqueue(() => {
      if (this.socket.destroyed) return
      this.socket.destroyed = true
      this.socket.writable = false
      this.socket.emit("error", Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" }))
      this.socket.emit("close")
    })
  }

  end() {
    if (!this.isOpen) return
    this.isOpen = false
    this.waiting.length = 0
    this.#database.ended(this)
  }

  #receive(bytes: Buffer) {
    this.#received = this.#received.length === 0 ? bytes : Buffer.concat([this.#received, bytes])
    if (!this.#isStarted) {
      if (this.#received.length < 8 || this.#received.length < this.#received.readInt32BE(0)) return
      const length = this.#received.readInt32BE(0)
      const startup = this.#received.subarray(0, length)
      this.#received = this.#received.subarray(length)
      if (startup.readInt32BE(4) === cancelRequest) {
        this.#database.cancel(startup.readInt32BE(8))
        this.cut("after a request to cancel")
        return
      }
      this.#isStarted = true
      this.answer(Buffer.concat([frame(0x52, int32(0)), frame(0x4b, int32(this.id), int32(0)), readyForQuery(IDLE)]))
    }
    // A statement ends with Sync, or is a simple query.
    let start = 0
    let at = 0
    while (at + 5 <= this.#received.length) {
      const end = at + 1 + this.#received.readInt32BE(at + 1)
      if (end > this.#received.length) break
      const type = this.#received[at]!
      if (type === TERMINATE) return this.end()
      if (type === SYNC || type === QUERY) {
        this.waiting.push(this.#received.subarray(start, end))
        start = end
      }
      at = end
    }
    this.#received = this.#received.subarray(start)
    if (this.waiting.length > 0) this.#database.wake()
  }

  /**
   * The statement as the engine gets it: a text is parsed once for all sessions, since that takes longer than to run
   * it.
   * Returns its texts, too, and those that the engine parses now.
   */
  prepare(statement: Buffer): Prepared {
    const texts: Array<string> = []
    const parsed: Array<string> = []
    const known: Array<number> = []
    let asked = 0
    const parts = [...messages(statement)].flatMap((message) => {
      const type = message[0]!
      const before = answerable.has(type) ? asked++ : asked
      const textAt = (at: number) => message.toString("utf8", at, message.indexOf(0, at))
      if (type === QUERY) {
        texts.push(textAt(5))
        return [frame(QUERY, `${withoutSleep(textAt(5))}\0`)]
      }
      if (type === PARSE) {
        const from = message.indexOf(0, 5) + 1
        const sql = textAt(from)
        const types = message.subarray(message.indexOf(0, from) + 1)
        const key = `${sql}\0${types.toString("hex")}`
        this.#database.texts.add(sql)
        const { isNew, own } = this.#database.nameOf(key)
        this.#statements.set(textAt(5), { text: sql, own })
        if (isNew) {
          parsed.push(key)
          return [frame(PARSE, `${own}\0${withoutSleep(sql)}\0`, types)]
        }
        known.push(before)
        return []
      }
      if (type === BIND) {
        const from = message.indexOf(0, 5) + 1
        const name = textAt(from)
        const { own = name, text = "" } = this.#statements.get(name) ?? {}
        texts.push(text)
        return [frame(BIND, message.subarray(5, from), `${own}\0`, message.subarray(message.indexOf(0, from) + 1))]
      }
      if ((type === DESCRIBE || type === CLOSE) && message[5] === SYNC) {
        const name = textAt(6)
        const { own = name } = this.#statements.get(name) ?? {}
        if (type === DESCRIBE) return [frame(type, "S", `${own}\0`)]
        this.#statements.delete(name)
        return [frame(type, "S", "of this session alone\0")]
      }
      return [message]
    })
    return { bytes: Buffer.concat(parts), texts, parsed, known }
  }
}

/** A statement for the engine. */
interface Prepared {
  readonly bytes: Buffer
  readonly texts: ReadonlyArray<string>
  /** What the engine parses with it. */
  readonly parsed: ReadonlyArray<string>
  /** The places of its messages that the engine does not get, because it has parsed their texts before. */
  readonly known: ReadonlyArray<number>
}

const isChange = /\b(INSERT|UPDATE|DELETE)\b/

/** The engine's clock stands still while a statement runs, so a sleep would not end. */
const withoutSleep = (sql: string) => sql.replace(/pg_sleep\([\d.]+\)/, "pg_sleep(0)")

/** A PostgreSQL whose statements run one after the other, in an order that the seed decides, at the world's time. */
export class SimulatedDatabase {
  readonly world: World
  readonly dice: Dice
  /** How the server's clock differs from the true time. */
  skewMillis = 0
  statements = 0
  /** The texts of the prepared statements. */
  readonly texts = new Set<string>()
  /** Of all statements and answers: two runs of one plan have the same. */
  readonly #digest = createHash("sha256")
  readonly #engine: PGlite
  readonly #sessions = new Map<number, Session>()
  /** The engine's names of the texts that it has parsed, with the types of their parameters. */
  readonly #parsed = new Map<string, string>()
  #owner: Session | undefined
  #lastId = 0
  #lastName = 0
  #isAwake = false
  /** When the statement that runs has ended. */
  #busyUntil = 0

  private constructor(world: World, engine: PGlite) {
    this.world = world
    this.dice = world.dice.fork()
    this.#engine = engine
  }

  /** A database with the contents of a data directory, or an empty one. */
  static async open(world: World, options: PGliteOptions) {
    world.wallNow = epochMillis
    const database = new SimulatedDatabase(world, await PGlite.create(options))
    for (const [name, value] of Object.entries(planSettings)) database.execute(query(`SET ${name} = '${value}'`))
    return database
  }

  /** The engine's files, for other databases. */
  files() {
    this.world.wallNow = this.wallMillis()
    return this.#engine.dumpDataDir("none")
  }

  close() {
    this.world.wallNow = this.wallMillis()
    return this.#engine.close()
  }

  /** The time of SQL's `now()`. */
  wallMillis() {
    return epochMillis + this.world.now + this.skewMillis
  }

  /** Opens a connection for an actor. */
  connect(actor: Actor, link: Link): Socket {
    const socket = new ClientSocket(actor, (socket) => {
      const session = new Session(this, ++this.#lastId, actor, socket, link)
      this.#sessions.set(session.id, session)
      return session
    })
    if (this.world.now < link.refusedUntil) this.world.after(1, () => socket.session.cut("at once: refused"))
    return socket as unknown as Socket
  }

  /** Runs messages on the engine and returns the answer. */
  execute(bytes: Uint8Array): Buffer {
    this.statements++
    const parts: Array<Uint8Array> = []
    this.world.wallNow = this.wallMillis()
    // The engine answers before this call returns.
    void this.#engine
      .execProtocolRawStream(bytes, { syncToFs: false, onRawData: (part) => parts.push(part.slice()) })
      .catch((cause: unknown) => this.world.fail(cause))
    this.#busyUntil = Math.max(this.#busyUntil, this.world.now + this.world.wallNow - this.wallMillis())
    this.world.wallNow = undefined
    const answer = Buffer.concat(parts)
    this.#digest.update(bytes).update(answer)
    return answer
  }

  /** The digest of all statements and answers of the run, which ends it. */
  digest() {
    return this.#digest.digest("hex")
  }

  /** Whether no transaction is open, so that `rows` sees what is committed. */
  get isIdle() {
    return this.#owner === undefined
  }

  /** Reads rows for an oracle, as texts by their columns. */
  rows(sql: string): Array<Record<string, string | null>> {
    const { isNew, own } = this.nameOf(sql)
    if (isNew) this.execute(query(`PREPARE ${own} AS ${sql}`))
    let names: ReadonlyArray<string> = []
    const rows: Array<Record<string, string | null>> = []
    for (const message of messages(this.execute(query(`EXECUTE ${own}`)))) {
      if (message[0] === ERROR) throw new Error(`${sql}: ${message.toString("utf8", 5)}`)
      if (message[0] === ROW_DESCRIPTION) names = columnsOf(message)
      if (message[0] === DATA_ROW)
        rows.push(Object.fromEntries(valuesOf(message).map((value, n) => [names[n]!, value])))
    }
    return rows
  }

  /** The processes of an actor's sessions are gone: they roll back what they have not committed. */
  hangUpAll(actor: Actor) {
    for (const session of [...this.#sessions.values()]) if (session.actor === actor) session.end()
  }

  /** Breaks the connections of an actor, or those of them that the dice choose. */
  cutAll(actor: Actor, share: number) {
    for (const session of [...this.#sessions.values()])
      if (session.actor === actor && this.dice.chance(share)) session.cut("in the network")
  }

  ended(session: Session) {
    this.#sessions.delete(session.id)
    if (this.#owner !== session) return
    this.execute(query("ROLLBACK"))
    this.#owner = undefined
    this.wake()
  }

  /** Cancels the statement of a session that waits for its turn. One that runs has ended before this arrives. */
  cancel(id: number) {
    const session = this.#sessions.get(id)
    if (session === undefined || session.waiting.length === 0) return
    session.waiting.shift()
    const state = session.inTransaction ? 0x45 : IDLE
    if (session.inTransaction) this.execute(query("SELECT 1/0"))
    session.answer(
      Buffer.concat([errorResponse("ERROR", "57014", "canceling statement due to user request"), readyForQuery(state)]),
    )
  }

  /** The engine's name of a text, and whether it has to parse it. */
  nameOf(key: string): { readonly own: string; readonly isNew: boolean } {
    const known = this.#parsed.get(key)
    if (known !== undefined) return { own: known, isNew: false }
    const own = `s${++this.#lastName}`
    this.#parsed.set(key, own)
    return { own, isNew: true }
  }

  /** Runs the next statement soon. */
  wake() {
    if (this.#isAwake) return
    this.#isAwake = true
    this.world.after(Math.max(0.01, this.#busyUntil - this.world.now), () => {
      this.#isAwake = false
      this.#runNext()
    })
  }

  /**
   * Runs a statement that waits. A transaction has the engine for itself until it ends: the engine has one session, so
   * statements of other transactions never run inside of it. What row locks decide is left to the second tier.
   */
  #runNext() {
    const owner = this.#owner
    const ready =
      owner === undefined
        ? [...this.#sessions.values()].filter(({ waiting }) => waiting.length > 0)
        : owner.waiting.length > 0
          ? [owner]
          : []
    if (ready.length === 0) return
    const session = ready.length === 1 ? ready[0]! : this.dice.pick(ready)
    this.#run(session, session.waiting.shift()!)
    this.wake()
  }

  #run(session: Session, statement: Buffer) {
    const { bytes, known, parsed, texts } = session.prepare(statement)
    // A change outside of a transaction is one.
    const isCommit = texts.some((text) => text === "COMMIT" || (!session.inTransaction && isChange.test(text)))
    const cut = isCommit && session.link.cutAtCommit > 0 && this.dice.chance(session.link.cutAtCommit)
    if (cut && this.dice.chance(0.5)) {
      // The engine has parsed nothing of it.
      for (const key of parsed) this.#parsed.delete(key)
      return session.cut("before COMMIT arrives")
    }
    const answer: Array<Buffer> = []
    let answered = 0
    const answerKnown = () => {
      for (; known.includes(answered); answered++) answer.push(frame(PARSE_COMPLETE))
    }
    answerKnown()
    const notifications: Array<Buffer> = []
    let state = IDLE
    for (const message of messages(this.execute(bytes))) {
      if (message[0] === NOTIFICATION) notifications.push(message)
      else answer.push(message)
      if (lastAnswers.has(message[0]!)) {
        answered++
        answerKnown()
      }
      if (message[0] === READY) state = message[5]!
      if (message[0] === ERROR) for (const key of parsed) this.#parsed.delete(key)
    }
    this.#noteListening(session, texts)
    session.inTransaction = state !== IDLE
    this.#owner = session.inTransaction ? session : undefined
    if (session.inTransaction) this.#endIfIdle(session)
    if (cut) session.cut("after COMMIT, before its answer")
    const { trap } = session.link
    if (trap !== undefined && texts.some((text) => trap.text.test(text))) {
      session.link.trap = undefined
      trap.spring(session)
    }
    session.heldUntil = Math.max(session.heldUntil, this.#busyUntil)
    session.answer(Buffer.concat(answer))
    for (const notification of notifications) this.#notify(notification)
  }

  #endIfIdle(session: Session) {
    const since = (session.idleSince = this.statements)
    this.world.after(idleInTransactionMillis, () => {
      if (!session.isOpen || this.#owner !== session || session.idleSince !== since) return
      session.answer(errorResponse("FATAL", "25P03", "terminating connection due to idle-in-transaction timeout"))
      this.world.note(session.actor.name, `transaction ${session.id} was idle for 10 s and is rolled back`)
      session.end()
    })
  }

  #noteListening(session: Session, texts: ReadonlyArray<string>) {
    for (const text of texts) {
      const [, not, channel] = /^\s*(UN)?LISTEN\s+"?([\w*]+)"?/i.exec(text) ?? []
      if (channel === undefined) continue
      if (not === undefined) session.channels.add(channel)
      else if (channel === "*") session.channels.clear()
      else session.channels.delete(channel)
    }
  }

  #notify(notification: Buffer) {
    const channel = notification.toString("utf8", 9, notification.indexOf(0, 9))
    for (const session of [...this.#sessions.values()]) {
      if (!session.channels.has(channel)) continue
      if (session.link.cutAtNotify > 0 && this.dice.chance(session.link.cutAtNotify)) session.cut("at a notification")
      else session.answer(notification)
    }
  }
}
