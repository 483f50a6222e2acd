import { connect, type Socket } from "node:net"

/** Message types of the PostgreSQL protocol with which a statement ends. */
const [SYNC, QUERY] = [0x53, 0x51]
/** `Sync`, which has no contents. */
const sync = Buffer.from([SYNC, 0, 0, 0, 4])

const endsStatement = (bytes: Uint8Array) => bytes[0] === QUERY || Buffer.from(bytes.subarray(-5)).equals(sync)
/** What starts a session has no type, or is about its password. */
const isStart = (bytes: Uint8Array) => bytes[0] === 0 || bytes[0] === 0x70

/** The connections of a replica to PostgreSQL, whose statements can be held and let through one at a time. */
export class Gate {
  #isHolding = false
  /** The statements that are held, in the order in which they came. */
  readonly #held: Array<() => void> = []
  #arrived = () => {}
  readonly #port: number
  readonly #host: string

  constructor(url: string) {
    const { hostname, port } = new URL(url)
    this.#port = Number(port)
    this.#host = hostname
  }

  /** Opens a connection, as `OpenSocket` does. */
  readonly open = (): Socket => {
    const socket = connect({ port: this.#port, host: this.#host, noDelay: true })
    const write = socket.write.bind(socket)
    let parts: Array<Uint8Array> = []
    socket.write = (bytes: Uint8Array) => {
      if (isStart(bytes)) return write(bytes)
      parts.push(bytes)
      if (!endsStatement(bytes)) return true
      const statement = Buffer.concat(parts)
      parts = []
      if (!this.#isHolding) return write(statement)
      this.#held.push(() => write(statement))
      this.#arrived()
      return true
    }
    return socket
  }

  hold() {
    this.#isHolding = true
  }

  /** Waits until a statement is held. */
  async untilHeld() {
    while (this.#held.length === 0) await new Promise<void>((resolve) => (this.#arrived = resolve))
  }

  /** Lets the first statement through that is held. */
  letOne() {
    this.#held.shift()?.()
  }

  /** Lets all through, from now on. */
  letAll() {
    this.#isHolding = false
    while (this.#held.length > 0) this.letOne()
  }
}
