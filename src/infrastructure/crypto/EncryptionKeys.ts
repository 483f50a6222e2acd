import { Effect, Redacted } from "effect"
import { SecureRandom } from "effect/crypto"
import { closeSync, fstatSync, fsyncSync, linkSync, mkdirSync, openSync, readSync, rmSync, writeSync } from "node:fs"
import { join, resolve } from "node:path"
import { keyBytes } from "./AesCipher.ts"
import { StartupError } from "../StartupError.ts"

type Keys = ReadonlyArray<Redacted.Redacted<Uint8Array>>

export interface EncryptionKeysOptions {
  /** ENCRYPTION_KEY: the current key first; the others only decrypt. */
  readonly encryptionKeys?: Keys | undefined
  /** The folder of the key file; `memory`: the key is not stored. */
  readonly dataDir: string
}

/**
 * Returns the encryption keys: those of the configuration; else the key in `DATA_DIR/encryption.key`, which it creates
 * once (base64 text, mode 0600); for `memory`, a new key in memory. Fails with a `StartupError` if the file cannot be
 * read or created, or does not contain a key. Warns if other users may read the file.
 */
export const load: (options: EncryptionKeysOptions) => Effect.Effect<Keys, StartupError, SecureRandom.SecureRandom> =
  Effect.fn("EncryptionKeys.load")(function* ({ dataDir, encryptionKeys }: EncryptionKeysOptions) {
    if (encryptionKeys !== undefined) return encryptionKeys
    const random = yield* SecureRandom.SecureRandom
    if (dataDir === "memory") return [Redacted.make(yield* random.randomBytes(keyBytes))]

    const folder = resolve(dataDir)
    const path = join(folder, "encryption.key")
    const readKeyFile = attempt(`Cannot read ${path}`, "Make it a file that this user can read", () => read(path))
    const existing = yield* readKeyFile
    if (existing !== undefined) return yield* parse(path, existing)

    const text = `${Buffer.from(yield* random.randomBytes(keyBytes)).toString("base64")}\n`
    const temporary = `${path}.${Buffer.from(yield* random.randomBytes(8)).toString("hex")}.tmp`
    yield* attempt(`Cannot create ${path}`, "Set DATA_DIR to another folder, or set ENCRYPTION_KEY", () => {
      mkdirSync(folder, { recursive: true, mode: 0o700 })
      publish(folder, temporary, path, text)
    })
    // Read back, because another process may have created its key first.
    const created = yield* readKeyFile
    return yield* created === undefined
      ? new StartupError({ message: `${path} was deleted while the service started. Start the service again` })
      : parse(path, created)
  })

const parse = Effect.fnUntraced(function* (path: string, { mode, text }: KeyFile) {
  if (!/^[A-Za-z0-9+/]{43}=\s*$/.test(text)) {
    return yield* new StartupError({
      message: `${path} does not contain a key (${keyBytes} bytes in base64). Restore the file from a backup. If there is none, delete it: then the stored webhook secrets are lost`,
    })
  }
  if ((mode & 0o077) !== 0 && process.platform !== "win32") {
    yield* Effect.logWarning(`Other users may read the encryption key in ${path}. Run chmod 600 ${path}`)
  }
  return [Redacted.make(new Uint8Array(Buffer.from(text, "base64")))]
})

interface KeyFile {
  readonly text: string
  readonly mode: number
}

/** Reads the first 256 bytes, more than a key has. Returns `undefined` if there is no file. */
const read = (path: string): KeyFile | undefined => {
  let file: number
  try {
    file = openSync(path, "r")
  } catch (cause) {
    if (codeOf(cause) === "ENOENT") return undefined
    throw cause
  }
  try {
    const bytes = Buffer.alloc(256)
    const length = readSync(file, bytes)
    return { text: bytes.toString("latin1", 0, length), mode: fstatSync(file).mode }
  } finally {
    closeSync(file)
  }
}

/**
 * Writes a file and links it to its name after it is complete and on disk. A link never replaces a file, so the second
 * of two processes keeps the key of the first. A crash leaves at most a temporary file, which nothing reads.
 */
const publish = (folder: string, temporary: string, path: string, text: string) => {
  const file = openSync(temporary, "wx", 0o600)
  try {
    writeSync(file, text)
    fsyncSync(file)
    linkSync(temporary, path)
  } catch (cause) {
    if (codeOf(cause) !== "EEXIST") throw cause
  } finally {
    closeSync(file)
    rmSync(temporary, { force: true })
  }
  if (process.platform === "win32") return
  // Without this a power cut could lose the name of the file, and with it every stored secret.
  const directory = openSync(folder, "r")
  try {
    fsyncSync(directory)
  } finally {
    closeSync(directory)
  }
}

const codeOf = (cause: unknown) => (cause as NodeJS.ErrnoException).code

const attempt = <A>(fault: string, remedy: string, evaluate: () => A) =>
  Effect.try({
    try: evaluate,
    catch: (cause) => new StartupError({ message: `${fault} (${codeOf(cause) ?? cause}). ${remedy}`, cause }),
  })
