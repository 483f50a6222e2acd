import { Effect, type Scope } from "effect"
import { accessSync, constants, existsSync, mkdirSync, readFileSync, rmSync, statSync } from "node:fs"
import { homedir, tmpdir } from "node:os"
import { dirname, join, resolve } from "node:path"
import { DatabaseSync } from "node:sqlite"
import { StartupError } from "../../StartupError.ts"

/** The PostgreSQL version of the embedded engine's files. A test compares it with the engine's own version. */
export const postgresMajor = "18"

/** The folder in which a database is created. It is renamed after the database is complete and on disk. */
export const unfinished = (folder: string) => `${folder}.new`

const isWritable = (folder: string) => {
  try {
    accessSync(folder, constants.W_OK | constants.X_OK)
    return true
  } catch {
    return false
  }
}

/** What to do about a folder, with another one as the example: the first that the user can create. */
export const chooseFolder = (path: string, canWriteIn = isWritable) => {
  const others = ["./data", join(homedir(), "gatehouse")].filter((folder) => resolve(folder) !== path)
  const example = others.find((folder) => canWriteIn(dirname(resolve(folder)))) ?? join(tmpdir(), "gatehouse")
  return `; set it to a folder that this user can write to, for example DATA_DIR=${example}`
}

/**
 * Locks DATA_DIR for this process until the scope closes, creates it if necessary, and checks its content. Returns the
 * folder of the database, and whether it exists. Fails if another process uses DATA_DIR, if it cannot be written, or if
 * its database has another version of PostgreSQL.
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
    chooseFolder(path),
  )
  yield* Effect.acquireRelease(lock(path), (held) => Effect.sync(() => held.close()))

  const folder = join(path, "postgres")
  const exists = existsSync(folder)
  if (exists) {
    const version = yield* attempt(
      `The database in ${folder} cannot be read`,
      () => readFileSync(join(folder, "PG_VERSION"), "utf8").trim(),
      "; restore it from a backup, or set another DATA_DIR",
    )
    if (version !== postgresMajor) {
      return yield* new StartupError({
        message: `DATA_DIR ${path} has a database of PostgreSQL ${version}, but this version of Gatehouse needs PostgreSQL ${postgresMajor}; start the version of Gatehouse that created it and export the data (docs/upgrading.md), or set another DATA_DIR`,
      })
    }
  }
  // Left by an interrupted first start, which answered no request.
  yield* attempt(`DATA_DIR ${path} cannot be written`, () =>
    rmSync(unfinished(folder), { recursive: true, force: true }),
  )
  return { folder, exists }
})

/**
 * Creates a folder and its missing parents. Node's own `recursive` never returns if a folder cannot be created in an
 * existing parent, as in /proc.
 */
const makeFolder = (path: string) => {
  if (existsSync(path)) return
  makeFolder(dirname(path))
  try {
    mkdirSync(path, { mode: 0o700 })
  } catch (cause) {
    // Another process may have created it at the same time; the lock decides between the two.
    if (!statSync(path, { throwIfNoEntry: false })?.isDirectory()) throw cause
  }
}

/**
 * Locks a folder with an exclusive SQLite transaction on the file `lock`, because Node has no flock. The operating
 * system releases the lock when the process ends, however it ends. Concurrent starts and reused process ids are no
 * problem.
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
            ? `DATA_DIR ${path} is in use by another process; stop that process, or set another DATA_DIR`
            : `DATA_DIR ${path} cannot be locked: ${(cause as Error).message}${chooseFolder(path)}`,
        cause,
      }),
  })

const SQLITE_BUSY = 5

/** Whether DATA_DIR cannot be locked because another process uses it. */
export const isInUse = ({ cause }: StartupError) =>
  (cause as { readonly errcode?: number } | undefined)?.errcode === SQLITE_BUSY

const attempt = <A>(fault: string, evaluate: () => A, remedy = "") =>
  Effect.try({
    try: evaluate,
    catch: (cause) =>
      new StartupError({ message: `${fault} (${(cause as NodeJS.ErrnoException).code ?? cause})${remedy}`, cause }),
  })
