import { Effect, Redacted } from "effect"
import { SecureRandom } from "effect/crypto"
import { closeSync, fstatSync, fsyncSync, linkSync, mkdirSync, openSync, readSync, rmSync, writeSync } from "node:fs"
import { join, resolve } from "node:path"
import { keyLength } from "./Cipher.ts"
import { StartupError } from "../StartupError.ts"

type Keys = ReadonlyArray<Redacted.Redacted<Uint8Array>>

export interface EncryptionKeysOptions {
  /** ENCRYPTION_KEY: the key in use, then those that only decrypt. */
  readonly encryptionKeys?: Keys | undefined
  /** Where the embedded database's own key is kept; `memory`: nowhere. */
  readonly dataDir: string
}

/**
 * The keys that secrets are encrypted with at rest: those of the configuration; else the one in
 * `DATA_DIR/encryption.key`, made once (base64 text, mode 0600); else, in memory, one that goes with the process.
 * Fails with a `StartupError` when the file holds anything else, cannot be read or cannot be made, and warns when others may
 * read it.
 */
export const load: (options: EncryptionKeysOptions) => Effect.Effect<Keys, StartupError, SecureRandom.SecureRandom> =
  Effect.fn("EncryptionKeys.load")(function* ({ dataDir, encryptionKeys }: EncryptionKeysOptions) {
    if (encryptionKeys !== undefined) return encryptionKeys
    const random = yield* SecureRandom.SecureRandom
    if (dataDir === "memory") return [Redacted.make(yield* random.randomBytes(keyLength))]

    const folder = resolve(dataDir)
    const path = join(folder, "encryption.key")
    const found = yield* attempt(`${path} cannot be read`, () => read(path))
    if (found !== undefined) return yield* check(path, found)

    const text = `${Buffer.from(yield* random.randomBytes(keyLength)).toString("base64")}\n`
    const temporary = `${path}.${Buffer.from(yield* random.randomBytes(8)).toString("hex")}.tmp`
    yield* attempt(`${path} cannot be made; set DATA_DIR to another folder, or set ENCRYPTION_KEY`, () => {
      mkdirSync(folder, { recursive: true, mode: 0o700 })
      publish(folder, temporary, path, text)
    })
    // Read back and not remembered: another process may have been first, and then its key is the one.
    const made = yield* attempt(`${path} cannot be read`, () => read(path))
    return yield* made === undefined
      ? new StartupError({ message: `${path} was taken away while it was made; start again` })
      : check(path, made)
  })

const check = Effect.fnUntraced(function* (path: string, { mode, text }: KeyFile) {
  if (!/^[A-Za-z0-9+/]{43}=\s*$/.test(text)) {
    return yield* new StartupError({
      message: `${path} does not hold a key (${keyLength} bytes in base64); put the file back from a backup, or, to lose the webhook secrets stored so far, delete it`,
    })
  }
  if ((mode & 0o077) !== 0 && process.platform !== "win32") {
    yield* Effect.logWarning(`${path} holds the encryption key, and others may read it: chmod 600 ${path}`)
  }
  return [Redacted.make(new Uint8Array(Buffer.from(text, "base64")))]
})

interface KeyFile {
  readonly text: string
  readonly mode: number
}

/** The file's first bytes, more than a key has; `undefined` when there is no file. */
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
 * Gives a file its name once it is whole and on the disk. A link, because it never replaces: whoever comes second leaves
 * the first one's key in place. What a crash leaves is a temporary file that nobody reads.
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
  // Else the name could be gone after a power cut, and with it every secret stored by then.
  const directory = openSync(folder, "r")
  try {
    fsyncSync(directory)
  } finally {
    closeSync(directory)
  }
}

const codeOf = (cause: unknown) => (cause as NodeJS.ErrnoException).code

const attempt = <A>(fault: string, evaluate: () => A) =>
  Effect.try({
    try: evaluate,
    catch: (cause) => new StartupError({ message: `${fault} (${codeOf(cause) ?? cause})`, cause }),
  })
