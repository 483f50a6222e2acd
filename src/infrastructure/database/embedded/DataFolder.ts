import { Effect, type Scope } from "effect"
import { accessSync, constants, existsSync, mkdirSync, readFileSync, rmSync, statSync } from "node:fs"
import { dirname, join, resolve } from "node:path"
import { DatabaseSync } from "node:sqlite"
import { StartupError } from "../../StartupError.ts"

/** The PostgreSQL whose files the embedded engine reads and writes; a test holds it to the engine's own word. */
export const POSTGRES_MAJOR = "18"

/** Where in DATA_DIR a database is made; it is renamed to its own name once it is whole and on the disk. */
export const unfinished = (folder: string) => `${folder}.new`

/** What to do about a DATA_DIR that will not do. */
const another = "; set it to a folder that can, for example DATA_DIR=./data"

/**
 * Takes DATA_DIR for this process until the scope closes, making it if need be, and checks what is in it.
 * Gives the folder of the database, which may have yet to be made. Fails when another process has DATA_DIR, when it
 * cannot be written, and when its database is not one for this engine.
 */
export const acquire: (
  dataDir: string,
) => Effect.Effect<{ readonly folder: string; readonly exists: boolean }, StartupError, Scope.Scope> = Effect.fn(
  "DataFolder.acquire",
)(function* (dataDir: string) {
  const path = resolve(dataDir)
  yield* attempt(
    `DATA_DIR ${path} cannot be written`,
    () => {
      makeFolder(path)
      accessSync(path, constants.R_OK | constants.W_OK | constants.X_OK)
    },
    another,
  )
  yield* Effect.acquireRelease(lock(path), (held) => Effect.sync(() => held.close()))

  const folder = join(path, "postgres")
  const exists = existsSync(folder)
  if (exists) {
    const version = yield* attempt(`${folder} holds no database that can be read`, () =>
      readFileSync(join(folder, "PG_VERSION"), "utf8").trim(),
    )
    if (version !== POSTGRES_MAJOR) {
      return yield* new StartupError({
        message: `DATA_DIR ${path} holds a database of PostgreSQL ${version}, and this version of Gatehouse reads ${POSTGRES_MAJOR}; start the version that made it, or set another DATA_DIR`,
      })
    }
  }
  // Left by a first start that was cut short; nothing was answered from it.
  yield* attempt(`DATA_DIR ${path} cannot be written`, () =>
    rmSync(unfinished(folder), { recursive: true, force: true }),
  )
  return { folder, exists }
})

/**
 * Makes a folder, and those above it that are missing. Node's own `recursive` never returns where a folder cannot be made
 * although the one above it is there, as in /proc.
 */
const makeFolder = (path: string) => {
  if (existsSync(path)) return
  makeFolder(dirname(path))
  try {
    mkdirSync(path, { mode: 0o700 })
  } catch (cause) {
    // Another start may have made it meanwhile; which of the two has it is for the lock to say.
    if (!statSync(path, { throwIfNoEntry: false })?.isDirectory()) throw cause
  }
}

/**
 * Node has no flock, and SQLite does: its exclusive transaction is a lock of the operating system on the file, so it goes
 * with the process however that ends, and neither two starts at once nor a process id used again can fool it.
 */
const lock = (path: string) =>
  Effect.try({
    try: () => {
      const held = new DatabaseSync(join(path, "lock"), { timeout: 0 })
      try {
        held.exec("PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE")
      } catch (cause) {
        held.close()
        throw cause
      }
      return held
    },
    catch: (cause) =>
      new StartupError({
        message:
          (cause as { readonly errcode?: number }).errcode === SQLITE_BUSY
            ? `DATA_DIR ${path} is in use by another process; stop that one, or set another DATA_DIR`
            : `DATA_DIR ${path} cannot be locked: ${(cause as Error).message}${another}`,
        cause,
      }),
  })

const SQLITE_BUSY = 5

/** Whether DATA_DIR cannot be taken because another process has it. */
export const isInUse = ({ cause }: StartupError) =>
  (cause as { readonly errcode?: number } | undefined)?.errcode === SQLITE_BUSY

const attempt = <A>(fault: string, evaluate: () => A, remedy = "") =>
  Effect.try({
    try: evaluate,
    catch: (cause) =>
      new StartupError({ message: `${fault} (${(cause as NodeJS.ErrnoException).code ?? cause})${remedy}`, cause }),
  })
