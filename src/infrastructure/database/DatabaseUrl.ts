import { Redacted, Result } from "effect"
import { readFileSync } from "node:fs"
import type { Socket } from "node:net"
import { Duplex } from "node:stream"
import * as tls from "node:tls"

/** Where a PostgreSQL is, and how to connect to it. */
interface DatabaseAddress {
  /** For messages: `db.example.com:5432`, or the folder of the socket. Contains no secret. */
  readonly name: string
  readonly config: {
    readonly host: string
    readonly port: number
    readonly username: string | undefined
    readonly password: Redacted.Redacted<string> | undefined
    readonly database: string | undefined
    readonly startupOptions: string | undefined
    readonly ssl: tls.ConnectionOptions | false
  }
  /** Negotiates TLS on a new socket, for `prefer`; `undefined`: the driver does it, or there is no TLS. */
  readonly negotiate: ((open: () => Socket) => Duplex) | undefined
}

const modes = ["disable", "prefer", "require", "verify-ca", "verify-full"] as const
type Mode = (typeof modes)[number]
const modeOf = (text: string) => modes.find((mode) => mode === text)

const files = ["sslrootcert", "sslcert", "sslkey"] as const
const understood = ["host", "port", "user", "password", "dbname", "options", "sslmode", ...files, "sslpassword"]
/** Parameters of libpq that are accepted and ignored: Gatehouse sets them itself, or already does what they ask for. */
const overridden = [
  ...["application_name", "fallback_application_name", "client_encoding", "connect_timeout", "target_session_attrs"],
  ...["keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout"],
]

/**
 * Reads a connection URI as libpq does, with the certificates that it names. Fails with what is wrong, without a value,
 * which may be a secret. Refuses a parameter that it does not know: ignoring one could make the connection less secure.
 */
export const parseDatabaseUrl = (text: string): Result.Result<DatabaseAddress, string> => {
  const url = urlOf(text)
  if (url === undefined) return Result.fail("must be a PostgreSQL URL that starts with postgres://")
  try {
    return read(url)
  } catch (fault) {
    // decodeURIComponent throws it.
    if (fault instanceof URIError) return Result.fail("must have every % of its parts written as %25")
    throw fault
  }
}

/** Takes the form without a host, too, which `URL` refuses: `postgresql://user@/db?host=/run/postgresql`. */
const urlOf = (text: string) => {
  const [, start, rest] = /^(postgres(?:ql)?:\/\/(?:[^/?#@]*@)?)((?::\d*)?(?:[/?].*)?)$/.exec(text) ?? []
  const whole = start === undefined || text === start ? text : `${start}localhost${rest}`
  return /^postgres(ql)?:\/\/./.test(whole) && URL.canParse(whole) ? new URL(whole) : undefined
}

const read = (url: URL): Result.Result<DatabaseAddress, string> => {
  // URLSearchParams would read + as a space.
  const parameters = new Map(
    url.search
      .slice(1)
      .split("&")
      .filter((pair) => pair !== "")
      .map((pair) => {
        const [name = "", ...value] = pair.split("=")
        return [decodeURIComponent(name), decodeURIComponent(value.join("="))] as const
      }),
  )
  if ([...parameters.keys()].some((name) => !understood.includes(name) && !overridden.includes(name))) {
    return Result.fail(`must have no other parameters than ${understood.join(", ")}`)
  }
  const host = parameters.get("host") ?? decodeURIComponent(url.hostname).replace(/^\[(.*)\]$/, "$1")
  if (!/^[^,\s]+$/.test(host)) return Result.fail("must name one host")
  const port = Number(parameters.get("port") ?? (url.port || 5432))
  if (!Number.isInteger(port) || port < 1 || port > 65_535) return Result.fail("must have a port from 1 to 65535")
  const ofAuthority = (part: string) => (part === "" ? undefined : decodeURIComponent(part))
  const password = parameters.get("password") ?? ofAuthority(url.password)
  const isSocket = host.startsWith("/")
  return Result.map(readTls(parameters, isSocket), ({ mode, options }) => ({
    name: isSocket ? host : `${host.includes(":") ? `[${host}]` : host}:${port}`,
    config: {
      host,
      port,
      username: parameters.get("user") ?? ofAuthority(url.username),
      password: password === undefined ? undefined : Redacted.make(password),
      database: parameters.get("dbname") ?? ofAuthority(url.pathname.slice(1)),
      startupOptions: parameters.get("options"),
      ssl: mode === "disable" || mode === "prefer" ? false : options,
    },
    negotiate: mode === "prefer" ? (open) => new PreferredTls(open, { ...serverName(host), ...options }) : undefined,
  }))
}

/** What each `sslmode` of libpq checks. With a CA, `require` also checks the chain of certificates. */
const checks = (mode: Mode, hasCa: boolean): tls.ConnectionOptions => {
  if (mode === "verify-full") return { rejectUnauthorized: true }
  return mode === "verify-ca" || hasCa
    ? { rejectUnauthorized: true, checkServerIdentity: () => undefined }
    : { rejectUnauthorized: false }
}

const serverName = (host: string): tls.ConnectionOptions =>
  /[a-z]/i.test(host) && !host.includes(":") ? { servername: host } : {}

interface Tls {
  readonly mode: Mode
  readonly options: tls.ConnectionOptions
}

const readTls = (parameters: ReadonlyMap<string, string>, isSocket: boolean): Result.Result<Tls, string> => {
  const isSystem = parameters.get("sslrootcert") === "system"
  const mode = modeOf(parameters.get("sslmode") ?? (isSystem ? "verify-full" : "prefer"))
  if (mode === undefined) return Result.fail(`must have one of the values ${modes.join(", ")} as sslmode`)
  if (isSystem && mode !== "verify-full") return Result.fail("must have sslmode=verify-full with sslrootcert=system")
  // Like libpq: no TLS on a Unix socket, whatever the mode is.
  if (mode === "disable" || isSocket) return Result.succeed({ mode: "disable", options: {} })
  if (parameters.has("sslcert") !== parameters.has("sslkey")) {
    return Result.fail("must have sslcert and sslkey, or neither")
  }
  const paths = isSystem ? new Map([...parameters].filter(([name]) => name !== "sslrootcert")) : parameters
  return Result.map(certificates(paths), (context) => ({
    mode,
    options: Object.defineProperty({ ...checks(mode, paths.has("sslrootcert")) }, "secureContext", {
      enumerable: true,
      get: context,
    }) as tls.ConnectionOptions,
  }))
}

/**
 * Reads the files of the parameters. Returns a function that reads them again for each new connection, because
 * certificates are replaced while the service runs. When the new files cannot be used, it returns the last ones.
 */
const certificates = (parameters: ReadonlyMap<string, string>): Result.Result<() => tls.SecureContext, string> => {
  const passphrase = parameters.get("sslpassword")
  const readAll = () => files.map((name) => (parameters.has(name) ? readFileSync(parameters.get(name)!, "utf8") : ""))
  const contextOf = ([ca, cert, key]: ReadonlyArray<string>) =>
    tls.createSecureContext({
      ...(ca === "" ? {} : { ca: ca! }),
      ...(cert === "" ? {} : { cert: cert!, key: key! }),
      ...(passphrase === undefined ? {} : { passphrase }),
    })
  for (const name of files.filter((name) => parameters.has(name))) {
    try {
      const text = readFileSync(parameters.get(name)!, "utf8")
      if (!text.includes(name === "sslkey" ? "PRIVATE KEY-----" : "-----BEGIN CERTIFICATE-----")) {
        return Result.fail(`must name a file in PEM with ${name}`)
      }
    } catch (fault) {
      return Result.fail(`must name a file that can be read with ${name} (${(fault as NodeJS.ErrnoException).code})`)
    }
  }
  let known: ReadonlyArray<string>
  let context: tls.SecureContext
  try {
    known = readAll()
    context = contextOf(known)
  } catch (fault) {
    return Result.fail(`must name certificates that can be used: ${(fault as Error).message}`)
  }
  return Result.succeed(() => {
    try {
      const now = readAll()
      if (now.some((text, n) => text !== known[n])) [context, known] = [contextOf(now), now]
    } catch {
      // One of the files is being replaced.
    }
    return context
  })
}

/** A request for TLS, before the first message (PostgreSQL's `SSLRequest`). */
const sslRequest = Buffer.from([0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f])

/**
 * A connection with TLS if the server has it, else without, as libpq's `prefer`. The driver's own `prefer` refuses a
 * certificate that it does not know.
 */
class PreferredTls extends Duplex {
  readonly #open: () => Socket
  #raw: Socket
  #transport: Socket | undefined
  #waiting: (() => void) | undefined

  constructor(open: () => Socket, options: tls.ConnectionOptions) {
    super({ allowHalfOpen: false })
    this.#open = open
    this.#raw = this.#opened()
    this.#raw.once("connect", () => this.#raw.write(sslRequest))
    this.#raw.once("data", (answer: Buffer) => {
      const raw = this.#raw
      if (answer.equals(Buffer.from("S"))) return this.#encrypt(raw, options)
      if (answer.equals(Buffer.from("N"))) return this.#use(raw)
      // An error of the server, which the driver reads.
      if (answer[0] === 0x45) return void (this.#use(raw), this.push(answer))
      this.destroy(new Error("The server answered the request for TLS with something else"))
    })
  }

  /** Opens a raw socket. When it ends, this stream ends, unless another socket has replaced it. */
  #opened() {
    const raw = this.#open()
    raw.on("error", (error) => raw === this.#raw && this.destroy(error))
    raw.on("close", () => raw === this.#raw && (this.#transport ?? raw) === raw && this.destroy())
    return raw
  }

  #encrypt(raw: Socket, options: tls.ConnectionOptions) {
    const secure = tls.connect({ ...options, socket: raw })
    secure.once("secureConnect", () => this.#use(secure))
    secure.on("error", (error) => {
      if (this.#transport !== undefined || this.destroyed) return this.destroy(error)
      // Again without TLS.
      this.#raw = this.#opened()
      raw.destroy()
      this.#raw.once("connect", () => this.#use(this.#raw))
    })
    secure.once("close", () => this.#transport === secure && this.destroy())
  }

  #use(transport: Socket) {
    this.#transport = transport
    transport.on("data", (chunk: Buffer) => {
      if (this.readableFlowing === true && this.readableLength === 0 && this.listenerCount("data") > 0) {
        this.emit("data", chunk)
      } else if (!this.push(chunk)) transport.pause()
    })
    this.#waiting?.()
  }

  /** Writes to the transport at once while the queue is empty: this saves 5 µs of CPU time for each statement. */
  override write(chunk: Buffer, ...rest: ReadonlyArray<never>) {
    const transport = this.#transport
    return transport === undefined || this.writableLength > 0
      ? super.write(chunk, ...rest)
      : transport.write(chunk, ...rest)
  }

  override _write(chunk: Buffer, _encoding: string, done: () => void) {
    const transport = this.#transport
    if (transport === undefined) this.#waiting = () => this._write(chunk, _encoding, done)
    else if (transport.write(chunk)) done()
    else transport.once("drain", done)
  }

  override _read() {
    this.#transport?.resume()
  }

  override _final(done: () => void) {
    if (this.#transport === undefined) done()
    else this.#transport.end(done)
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void) {
    this.#raw.destroy()
    done(error)
  }
}
